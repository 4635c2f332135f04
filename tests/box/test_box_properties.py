"""Whatever is asked, in whatever pieces time passes: leaping, stepping and the rules agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from box_stepper import Call, Stepper
from box_toys import ODD_COSTS, ToyPricer, segment
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom_bench.box import Box, BoxRequest, Event, plan, timeline
from headroom_bench.segments import Segment


@pytest.fixture(scope="module", autouse=True)
def _short_blocks() -> Iterator[None]:
    """Answers here are short: make the blocks and the trimming fit them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "FIRST_LEAP", 3)
        patch.setattr(timeline, "TRIM_PASSES", 5)
        yield


@dataclass(frozen=True)
class Case:
    """A box, what is asked of it, and where its time is cut."""

    slots: int
    ctx: int
    batch_tokens: int
    window: int | None
    calls: tuple[Call, ...]
    cuts: tuple[float, ...]

    def pricer(self, exact: bool = True) -> ToyPricer:
        return ToyPricer(self.window, **({} if exact else ODD_COSTS))

    def box(self, leap: bool, exact: bool = True) -> Box:
        pricer = self.pricer(exact)
        return Box(pricer, self.slots, self.ctx, batch_tokens=self.batch_tokens, leap=leap)

    def stepper(self, exact: bool = True) -> Stepper:
        return Stepper(self.pricer(exact), self.slots, self.ctx, self.batch_tokens)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    texts = [segment(f"text{i}", draw(st.integers(1, 40))) for i in range(4)]
    # Binary fractions, so that sums are exact; coarse ones for calls at the same time.
    moments = st.one_of(
        st.integers(0, 128).map(lambda n: n / 64), st.integers(0, 2**15).map(lambda n: n / 2**14)
    )
    calls: list[Call] = []
    answers: list[tuple[Segment, ...]] = []
    for number in range(draw(st.integers(1, 12))):
        parts = draw(st.lists(st.sampled_from(texts), min_size=1, max_size=4))
        said = draw(st.sampled_from(answers)) if answers and draw(st.booleans()) else ()
        length = draw(st.integers(0, 60))
        request = BoxRequest(f"r{number}", (*said, *parts), length, f"a{number}")
        answer = Segment("answer", "assistant", "prose", f"a{number}", max(1, length))
        answers.append((*request.segments, answer))
        at = draw(moments)
        calls.append(Call(at, request))
        if draw(st.integers(0, 2)) == 0:
            calls.append(Call(at + draw(moments) / 2, request, cancel=True))
    calls.sort(key=lambda call: call.at)
    return Case(
        slots=draw(st.integers(1, 4)),
        ctx=draw(st.integers(30, 300)),
        batch_tokens=draw(st.sampled_from([1, 3, 16, 64, 2048])),
        window=draw(st.sampled_from([None, 1, 20, 50, 120])),
        calls=tuple(calls),
        cuts=tuple(sorted(draw(st.lists(moments, max_size=8)))),
    )


def ask(box: Box, call: Call) -> None:
    if call.cancel:
        box.cancel(call.request.id, call.at)
    else:
        box.submit(call.request, call.at)


def advance_checked(box: Box, to: float) -> list[Event]:
    """Advance, and hold the forecast to what came: nothing happens before it, and the tokens until
    then can be told beforehand."""
    forecast = box.next_event_at()
    quiet = forecast is None or to < forecast
    tokens = box.decode_tokens_by(to) if quiet else 0
    events = box.advance(to)
    if quiet:
        assert not events
        assert tokens == box.usage.decode_tokens
    if events:
        assert forecast is not None
        assert forecast <= events[0].at
    return events


def drain(box: Box) -> list[Event]:
    """Follow the forecasts until the box has nothing more to say; each one gets somewhere."""
    events: list[Event] = []
    silent = 0
    while (at := box.next_event_at()) is not None:
        new = box.advance(at)
        assert {event.at for event in new} <= {at}
        silent = 0 if new else silent + 1
        assert silent <= 400, "forecasts that lead nowhere"  # more than a case has calls and chunks
        events += new
    assert box.advance(1e6) == []
    return events


def serve_cut(box: Box, case: Case) -> list[Event]:
    """Calls come when their time is near; time passes in the case's pieces."""
    events: list[Event] = []
    cuts = list(case.cuts)
    for call in case.calls:
        while cuts and cuts[0] < call.at:
            events += advance_checked(box, cuts.pop(0))
        ask(box, call)
    for cut in cuts:
        events += advance_checked(box, cut)
    return events + drain(box)


def serve_planned(box: Box, case: Case) -> list[Event]:
    """All calls are made beforehand, for times to come, and not in order of time."""
    for submits_last in (False, True):
        for call in reversed(case.calls):
            if call.cancel == submits_last:
                ask(box, call)
    return drain(box)


def without_tokens(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind != "tokens"]


@settings(max_examples=150, deadline=None)
@given(cases())
def test_the_box_keeps_the_rules(case: Case) -> None:
    want = case.stepper().serve(list(case.calls))
    stepped = case.box(leap=False)
    assert serve_cut(stepped, case) == want.events
    for serve in (serve_cut, serve_planned):
        box = case.box(leap=True)
        if serve is serve_planned and ties(case):
            continue
        assert serve(box, case) == without_tokens(want.events)
        for id_, times in want.times.items():
            assert box.token_times(id_).tolist() == times
            assert stepped.token_times(id_).tolist() == times
        assert box.usage == stepped.usage
        assert box.usage.passes == want.passes
        assert box.usage.busy_s == pytest.approx(want.busy_s, rel=1e-12)


def ties(case: Case) -> bool:
    """Whether two calls have one time, so that the order of calling decides."""
    return len({call.at for call in case.calls}) < len(case.calls)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_leap_equals_step_for_times_that_do_not_add_up_exactly(case: Case) -> None:
    # A call that meets the end of a pass to the last bit may be heard there or one pass later.
    calls = tuple(
        Call(c.at + 1e-3 * np.sqrt(2.0 + i), c.request, c.cancel) for i, c in enumerate(case.calls)
    )
    case = Case(case.slots, case.ctx, case.batch_tokens, case.window, calls, case.cuts)
    leaped, stepped = case.box(True, exact=False), case.box(False, exact=False)
    ours = serve_cut(leaped, case)
    theirs = without_tokens(serve_cut(stepped, case))
    assert [event._replace(at=0.0) for event in ours] == [e._replace(at=0.0) for e in theirs]
    ours_at, theirs_at = [event.at for event in ours], [event.at for event in theirs]
    np.testing.assert_allclose(ours_at, theirs_at, rtol=1e-9, atol=0.0)
    for call in calls:
        id_ = call.request.id
        times = leaped.token_times(id_)
        np.testing.assert_allclose(times, stepped.token_times(id_), rtol=1e-9, atol=0.0)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_nothing_is_lost(case: Case) -> None:
    box = case.box(leap=False)
    events = serve_cut(box, case)
    assert all(a.at <= b.at for a, b in pairwise(events))
    told = {call.request.id: 0 for call in case.calls}
    for event in events:
        if event.kind in ("first_token", "tokens"):
            told[event.id] += event.n
    read_tokens = 0
    for id_, tokens in told.items():
        served = box.served(id_)
        assert served.generated == tokens == len(box.token_times(id_))
        if served.first_token_at is not None:
            read_tokens += served.prompt_tokens - served.cached_tokens
            assert 0 <= served.cached_tokens < served.prompt_tokens
            assert served.submitted_at <= served.admitted_at <= served.prefill_at
            assert served.prefill_at < served.first_token_at <= served.finished_at
            assert box.token_times(id_)[0] == served.first_token_at
    assert box.usage.prefill_tokens >= read_tokens
    assert box.snapshot().free == case.slots
    assert box.snapshot().queued == 0


@settings(max_examples=60, deadline=None)
@given(cases())
def test_first_come_first_served_and_slots_are_never_shared(case: Case) -> None:
    box = case.box(leap=True)
    events = serve_cut(box, case)
    asked = [call.request.id for call in case.calls if not call.cancel]
    admitted = [event.id for event in events if event.kind == "admitted"]
    assert admitted == [id_ for id_ in asked if id_ in set(admitted)]
    for id_ in asked:  # nobody starves
        assert box.served(id_).outcome in ("done", "length", "cancelled", "rejected")
    stays = sorted(
        (served.slot, served.admitted_at, served.finished_at)
        for served in map(box.served, admitted)
    )
    for (slot, _, left), (next_slot, came, _) in pairwise(stays):
        assert slot != next_slot or left <= came
