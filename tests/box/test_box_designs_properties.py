"""Whatever the design and whatever is asked: leaping, stepping and the plain rules agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
from box_toys import ODD_COSTS, ToyPricer, segment
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_box import Call, PlainBox

from headroom_bench.box import (
    Box,
    BoxDesign,
    BoxRequest,
    Event,
    Speculation,
    plan,
    timeline,
)
from headroom_bench.box.pages import PagedMemory
from headroom_bench.segments import Segment


@pytest.fixture(scope="module", autouse=True)
def _short_blocks() -> Iterator[None]:
    """Answers here are short: make the blocks and the trimming fit them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "FIRST_LEAP", 3)
        patch.setattr(timeline, "TRIM_PASSES", 5)
        yield


@st.composite
def designs(draw: st.DrawFn, kind: str) -> BoxDesign:
    ctx = draw(st.integers(30, 300))
    pool = None
    page = draw(st.sampled_from([1, 4, 16]))
    if kind in ("paged", "unified_slots") or (kind == "dynamic_batch" and draw(st.booleans())):
        pool = draw(st.integers(ctx + page, 2 * ctx + page))
    speculation = None
    if draw(st.integers(0, 3)) == 0:
        alpha = {"prose": draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))}
        speculation = Speculation(draw(st.integers(1, 6)), alpha)
    slots = kind in ("split_slots", "unified_slots")
    return BoxDesign(
        memory=kind,  # type: ignore[arg-type]
        ctx=ctx,
        parallel=draw(st.integers(1, 5)),
        pool_tokens=pool,
        page_tokens=page,
        reserve_answer=draw(st.integers(0, 4)) == 0,
        batch_tokens=draw(st.sampled_from([1, 3, 16, 64, 2048])),
        chunk_tokens=draw(st.sampled_from([None, None, 8, 50])),
        prompts_a_pass=draw(st.sampled_from([None, None, 1, 2])),
        mixed=draw(st.integers(0, 2)) > 0,
        prefix_cache=draw(st.integers(0, 5)) > 0,
        rewind="any"
        if kind == "paged"
        else draw(st.sampled_from(["any", "checkpoints", "extend"])),
        host_tokens=draw(st.sampled_from([0, 100, 1000])) if slots else 0,
        cached_prompts=draw(st.integers(1, 4)),
        overflow=draw(st.sampled_from(["reject", "cut"])),
        counts_answer=False,
        max_queue=draw(st.sampled_from([None, None, 1, 3])),
        speculation=speculation,
    )


@dataclass(frozen=True)
class Case:
    """A design, what is asked of it, and where its time is cut."""

    design: BoxDesign
    window: int | None
    calls: tuple[Call, ...]
    cuts: tuple[float, ...]

    def pricer(self, exact: bool = True) -> ToyPricer:
        return ToyPricer(self.window, **({} if exact else ODD_COSTS))

    def box(self, leap: bool, exact: bool = True) -> Box:
        return Box.of(self.pricer(exact), self.design, leap)


def texts(draw: st.DrawFn) -> list[Segment]:
    """Texts without known blocks, and three that share their first blocks."""
    roles = st.sampled_from(["system", "user", "user", "assistant", "tool"])
    plain = [
        Segment("ask", draw(roles), "prose", f"text{i}", draw(st.integers(1, 40))) for i in range(4)
    ]
    whole = draw(st.integers(33, 60))
    hashed = [
        Segment("ask", "user", "prose", f"hashed{i}", whole, blocks)
        for i, blocks in enumerate(((1, 2), (1, 3), (1, 2, 4)[: whole // 16]))
    ]
    return [*plain, *hashed]


@st.composite
def cases(draw: st.DrawFn, *kinds: str) -> Case:
    parts = texts(draw)
    # Binary fractions, so that sums are exact; coarse ones for calls at the same time.
    moments = st.one_of(
        st.integers(0, 128).map(lambda n: n / 64), st.integers(0, 2**15).map(lambda n: n / 2**14)
    )
    calls: list[Call] = []
    answers: list[tuple[Segment, ...]] = []
    for number in range(draw(st.integers(1, 12))):
        new = draw(st.lists(st.sampled_from(parts), min_size=1, max_size=4))
        said = draw(st.sampled_from(answers)) if answers and draw(st.booleans()) else ()
        length = draw(st.integers(0, 60))
        request = BoxRequest(
            f"r{number}",
            (*said, *new),
            length,
            f"a{number}",
            kind=draw(st.sampled_from(["prose", "tool_call"])),
            greedy=draw(st.booleans()),
            alone=draw(st.integers(0, 7)) == 0,
        )
        answer = Segment("answer", "assistant", "prose", f"a{number}", max(1, length))
        answers.append((*request.segments, answer))
        at = draw(moments)
        calls.append(Call(at, request))
        if draw(st.integers(0, 2)) == 0:
            calls.append(Call(at + draw(moments) / 2, request, cancel=True))
    calls.sort(key=lambda call: call.at)
    return Case(
        design=draw(designs(draw(st.sampled_from(kinds)))),
        window=draw(st.sampled_from([None, 1, 20, 50, 120])),
        calls=tuple(calls),
        cuts=tuple(sorted(draw(st.lists(moments, max_size=8)))),
    )


ALL = ("split_slots", "unified_slots", "paged", "dynamic_batch")


def ask(box: Box, call: Call) -> None:
    if call.cancel:
        box.cancel(call.request.id, call.at)
    else:
        box.submit(call.request, call.at)


def advance(box: Box, to: float) -> list[Event]:
    """Advance, and hold the forecast to what came: nothing happens before it, and the tokens until
    then can be told beforehand."""
    due = box.next_event_at(by=to)
    quiet = due is None or to < due
    tokens = box.decode_tokens_by(to) if quiet else 0
    new = box.advance(to)
    if quiet:
        assert not new
        assert tokens == box.usage.decode_tokens
    assert not new or (due is not None and due <= new[0].at)
    return new


def drain(box: Box, look: float = float("inf")) -> list[Event]:
    """Follow the forecasts, each looking no further than `look` ahead, to the end; each one gets
    somewhere."""
    events: list[Event] = []
    at, silent = box.snapshot().at, 0
    while (due := box.next_event_at(by=at + look)) is not None:
        new = box.advance(due)
        assert all(event.at == due for event in new)
        silent = 0 if new else silent + 1
        assert silent <= 400, "forecasts that lead nowhere"  # more than a case has calls and chunks
        at = due
        events += new
    assert box.advance(1e6) == []
    return events


def serve(box: Box, case: Case, look: float = float("inf")) -> list[Event]:
    """Calls come when their time is near; time passes in the case's pieces."""
    events: list[Event] = []
    cuts = list(case.cuts)
    for call in case.calls:
        while cuts and cuts[0] < call.at:
            events += advance(box, cuts.pop(0))
        ask(box, call)
    for cut in cuts:
        events += advance(box, cut)
    return events + drain(box, look)


def serve_planned(box: Box, case: Case) -> list[Event]:
    """All calls are made beforehand, for times to come, and not in order of time."""
    for cancels in (False, True):
        for call in reversed(case.calls):
            if call.cancel == cancels:
                ask(box, call)
    return drain(box)


def without_tokens(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind != "tokens"]


def check_rules(case: Case) -> None:
    want = PlainBox(case.pricer(), case.design).serve(list(case.calls))
    stepped = case.box(leap=False)
    assert serve(stepped, case) == want.events
    leaped, planned = case.box(leap=True), case.box(leap=True)
    boxes = [stepped, leaped]
    assert serve(leaped, case, look=0.05) == without_tokens(want.events)
    if len({call.at for call in case.calls}) == len(
        case.calls
    ):  # else the order of calling decides
        assert serve_planned(planned, case) == without_tokens(want.events)
        boxes.append(planned)
    for box in boxes:
        for id_, times in want.times.items():
            assert box.token_times(id_).tolist() == times
        assert box.usage == stepped.usage
        assert box.usage.passes == want.passes
        assert box.usage.busy_s == pytest.approx(want.busy_s, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(cases("paged"))
def test_paged_memory_keeps_the_rules(case: Case) -> None:
    check_rules(case)


@settings(max_examples=300, deadline=None)
@given(cases("split_slots", "unified_slots", "dynamic_batch"))
def test_slots_and_dynamic_batches_keep_the_rules(case: Case) -> None:
    check_rules(case)


@settings(max_examples=60, deadline=None)
@given(cases(*ALL))
def test_leap_equals_step_for_times_that_do_not_add_up_exactly(case: Case) -> None:
    # A call that meets the end of a pass to the last bit may be heard there or one pass later.
    calls = tuple(
        Call(c.at + 1e-3 * np.sqrt(2.0 + i), c.request, c.cancel) for i, c in enumerate(case.calls)
    )
    case = replace(case, calls=calls)
    leaped, stepped = case.box(True, exact=False), case.box(False, exact=False)
    ours = serve(leaped, case)
    theirs = without_tokens(serve(stepped, case))
    assert [event._replace(at=0.0) for event in ours] == [e._replace(at=0.0) for e in theirs]
    ours_at, theirs_at = [event.at for event in ours], [event.at for event in theirs]
    np.testing.assert_allclose(ours_at, theirs_at, rtol=1e-9, atol=0.0)
    for call in calls:
        id_ = call.request.id
        times = leaped.token_times(id_)
        np.testing.assert_allclose(times, stepped.token_times(id_), rtol=1e-9, atol=0.0)


@settings(max_examples=120, deadline=None)
@given(cases(*ALL))
def test_nothing_is_lost_and_nobody_starves(case: Case) -> None:
    box = case.box(leap=False)
    events = serve(box, case)
    assert all(a.at <= b.at for a, b in pairwise(events))
    told = {call.request.id: 0 for call in case.calls}
    for event in events:
        if event.kind in ("first_token", "tokens"):
            told[event.id] += event.n
    read_tokens = 0
    for id_, tokens in told.items():
        served = box.served(id_)  # everyone came to an end
        assert served.generated == tokens == len(box.token_times(id_))
        assert (np.diff(box.token_times(id_)) >= 0).all()
        assert served.accepted <= served.drafted
        if served.first_token_at is not None:
            read_tokens += served.prompt_tokens - served.cached_tokens
            assert 0 <= served.cached_tokens < served.prompt_tokens
            assert served.submitted_at <= served.admitted_at <= served.prefill_at
            assert served.prefill_at < served.first_token_at <= served.finished_at
    assert box.usage.prefill_tokens >= read_tokens
    snapshot = box.snapshot()
    assert (snapshot.free, snapshot.queued) == (case.design.parallel, 0)
    assert snapshot.memory_share in (None, 0.0)
    first = [event.id for event in events if event.kind == "admitted"]
    asked = [call.request.id for call in case.calls if not call.cancel]
    firsts = list(dict.fromkeys(first))
    assert firsts == [id_ for id_ in asked if id_ in set(firsts)]  # first come, first served


@settings(max_examples=60, deadline=None)
@given(cases("split_slots", "unified_slots"))
def test_slots_are_never_shared(case: Case) -> None:
    box = case.box(leap=True)
    admitted = {event.id for event in serve(box, case) if event.kind == "admitted"}
    stays = sorted(
        (served.slot, served.admitted_at, served.finished_at)
        for served in map(box.served, admitted)
    )
    for (slot, _, left), (next_slot, came, _) in pairwise(stays):
        assert slot != next_slot or left <= came


@settings(max_examples=80, deadline=None)
@given(cases("paged"))
def test_pages_are_conserved(case: Case) -> None:
    box = case.box(leap=True)
    memory = box._memory
    assert isinstance(memory, PagedMemory)
    cuts = list(case.cuts)
    for call in case.calls:
        while cuts and cuts[0] < call.at:
            box.advance(cuts.pop(0))
            memory.settle()  # evictions wait until somebody looks
            used = memory.used_share()
            assert used is not None
            assert 0.0 <= used <= 1.0
            tree = memory.tree
            assert 0 <= tree.used <= tree.pages <= memory._limit
            held = tree._nodes.values()
            assert sum(node.pages for node in held) == tree.pages
            assert sum(node.pages for node in held if node.refs) == tree.used
        ask(box, call)
    drain(box)
    assert memory._beside == 0
    assert memory.tree.used == 0


def test_a_text_that_two_read_at_once_is_kept_once() -> None:
    """The second is admitted while the first has a part of it in the tree, and ends after it."""
    book = Segment("ask", "user", "prose", "book", 56, (1, 3))
    more, other = segment("more", 18), segment("other", 21)
    requests = [
        BoxRequest("r0", (book, more), 54, "a0"),
        BoxRequest("r1", (book, more), 36, "a1"),
        BoxRequest("r2", (book, other), 58, "a2"),
    ]
    calls = [
        Call(0.0, requests[0]),
        Call(0.13, requests[0], cancel=True),
        Call(0.35, requests[1]),
        Call(0.36, requests[2]),
    ]
    design = BoxDesign("paged", 182, 3, pool_tokens=352, page_tokens=4, batch_tokens=3)
    case = Case(design, None, tuple(calls), ())
    check_rules(case)
    box = case.box(leap=True)
    serve(box, case)
    assert 0 < box.served("r2").cached_tokens < 56
    memory = box._memory
    assert isinstance(memory, PagedMemory)
    texts = 74 + 36 - 1 + 21 + 58 - 1  # the book once
    assert memory.tree.pages <= texts // 4
