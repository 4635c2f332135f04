"""The crowd's coroutines in virtual time against the virtual box."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from crowd_people import ASK, RESULT, SYSTEM, TITLE, crowd, fixed, persona
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headroom_bench.box import Box
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import Persona
from headroom_bench.crowd.script import Prompts
from headroom_bench.crowd.world import Device
from headroom_bench.records import RequestRecord
from headroom_bench.roofline.pricer import Batch
from headroom_bench.simulate.ways import Path
from headroom_bench.simulate.world import Lengths, Naming, SimulatedWorld

pytestmark = pytest.mark.filterwarnings("error")


@dataclass
class FlatPricer:
    """A pass takes the same time whatever it carries; prompts cost by the token."""

    pass_time_s: float = 0.0625
    read_s: float = 0.0
    window: int | None = None

    def pass_s(self, batch: Batch) -> float:
        return self.pass_time_s + self.read_s * sum(chunk.tokens for chunk in batch.chunks)

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, self.pass_s(batch))


@dataclass
class Lived:
    """What a simulated life left behind."""

    records: list[RequestRecord]
    times: dict[str, list[float]]
    ended_s: float
    box: Box

    def of(self, request_id: str) -> RequestRecord:
        return next(r for r in self.records if r.request_id == request_id)


def simulate(
    people: Crowd,
    duration_s: float | None = None,
    *,
    requests: int | None = None,
    lengths: Mapping[str, Lengths] | None = None,
    one_way_s: float = 0.0,
    max_rps: float | None = None,
    pricer: FlatPricer | None = None,
    slots: int = 4,
    ctx: int = 100_000,
) -> Lived:
    records: list[RequestRecord] = []
    times: dict[str, list[float]] = {}

    def emit(record: RequestRecord, token_times: NDArray[np.float64]) -> None:
        records.append(record)
        times[record.request_id] = token_times.tolist()

    box = Box(pricer or FlatPricer(), slots, ctx)
    world = SimulatedWorld(
        box,
        Naming("run", "mock", "model"),
        emit,
        path=Path(one_way_s),
        max_requests=requests,
        lengths=lengths,
        max_rps=max_rps,
    )
    return Lived(records, times, world.run(people, duration_s), box)


def probe(output: int, **changes: Any) -> Persona:
    """Asks at once, 50 tokens, no system prompt, and thinks for 1 s."""
    return persona(
        segments=(replace(ASK, tokens=fixed(50)),), output=fixed(output), think_s=fixed(1),
        turns=fixed(1), single_request=True, **changes,
    )  # fmt: skip


# --- ends ---------------------------------------------------------------------------------------


def test_nothing_would_ever_end_it() -> None:
    with pytest.raises(ValueError, match="needs a duration"):
        simulate(crowd((persona(), 1)))


def test_no_coroutine_is_left_behind_wherever_the_end_falls() -> None:
    """Any of them would warn 'was never awaited', or die with GeneratorExit, when collected."""
    one = persona(
        extras=(TITLE,), rounds=fixed(2), segments=(SYSTEM, ASK, RESULT), device=Device(before_s=1)
    )
    for duration_s in np.arange(0.0, 12.0, 0.37).tolist():
        lived = simulate(crowd((one, 3)), duration_s)
        assert all(r.started_at_s <= duration_s for r in lived.records)
    for requests in range(1, 12):
        assert len(simulate(crowd((one, 3)), requests=requests).records) == requests
    gc.collect()


def test_answers_in_flight_at_the_end_go_on_to_their_end() -> None:
    lived = simulate(crowd((probe(100), 1)), 2.0)
    assert [r.ok for r in lived.records] == [True]
    assert lived.ended_s == lived.records[0].end_s == pytest.approx(100 * 0.0625)


def test_a_life_that_ends_in_a_pause_ends_with_the_duration() -> None:
    lived = simulate(crowd((probe(16), 1)), 1.5)
    assert lived.records[0].end_s == 1.0
    assert lived.ended_s == 1.5


def test_max_requests_ends_before_the_duration() -> None:
    lived = simulate(crowd((persona(), 2)), 1000.0, requests=5)
    assert len(lived.records) == 5
    assert lived.ended_s == max(r.end_s or 0 for r in lived.records)


def test_starts_are_spaced_and_first_come_first_served() -> None:
    """Three ask at once, twice: each start is half a second after the last at least."""
    lived = simulate(crowd((probe(4), 3)), requests=6, max_rps=2.0)
    records = sorted(lived.records, key=lambda record: record.sent_s or 0)
    assert [record.user for record in records] == [0, 1, 2, 0, 1, 2]
    sent = [record.sent_s for record in records]
    assert sent[:3] == [0.0, 0.5, 1.0]
    assert all(b - a >= 0.5 for a, b in itertools.pairwise(sent))  # type: ignore[operator]
    assert [record.started_at_s for record in records][:3] == [0.0, 0.0, 0.0]
    assert [record.ttft_s for record in records][:3] == [0.0625] * 3, "the wait is not the server's"
    assert [record.concurrent_at_start for record in records] == [1] * 6


def test_who_waits_for_a_turn_when_the_world_ends_asks_no_more() -> None:
    lived = simulate(crowd((probe(4), 5)), 1.2, max_rps=2.0)
    assert [record.sent_s for record in lived.records] == [0.0, 0.5, 1.0]


def test_what_a_measured_run_never_asked_takes_no_turn_from_others() -> None:
    """User 0's second request, which nobody measured, would come before user 2's first."""
    told = {f"chat-{user}/c0/t0/r0": Lengths(True, 50, 4, 0, 1.0) for user in (1, 2)}
    lived = simulate(crowd((probe(4), 3)), lengths=told, max_rps=2.0)
    sent = sorted((record.sent_s, record.user) for record in lived.records)
    assert sent == [(0.0, 1), (0.5, 2)], "user 0 was never heard of"


def test_nobody_at_all() -> None:
    lived = simulate(crowd(), 10.0)
    assert (lived.records, lived.box.usage.busy_s) == ([], 0.0)


# --- records ------------------------------------------------------------------------------------


def test_times_of_one_request_by_hand() -> None:
    """50 tokens read in one pass, which also gives the first of 16 tokens."""
    record = simulate(crowd((probe(16), 1)), requests=1).records[0]
    assert (record.started_at_s, record.sent_s, record.first_byte_s) == (0.0, 0.0, 0.0625)
    assert record.ttft_s == record.ttfv_s == record.server_prefill_s == 0.0625
    assert record.e2e_s == record.end_s == 1.0
    assert record.itl_mean_s == record.tpot_s == 0.0625
    assert record.decode_tok_s == record.server_decode_tok_s == 16.0
    assert record.server_prefill_tok_s == 50 / 0.0625
    assert record.server_queue_s == 0.0
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (50, 0, 16)
    assert record.context_depth_tokens == 50
    assert (record.finish_reason, record.truncated, record.error_kind) == ("length", False, None)


def test_an_answer_as_short_as_the_measured_one_was_is_not_cut() -> None:
    """The model ended it; only a full context cuts in a prediction."""
    told = {"chat-0/c0/t0/r0": Lengths(True, 50, 4, 0, 1.0)}
    record = simulate(crowd((probe(16), 1)), lengths=told).records[0]
    assert (record.completion_tokens, record.asked_tokens) == (4, 16)
    assert (record.finish_reason, record.truncated) == ("stop", False)
    cut = simulate(crowd((probe(400), 1)), requests=1, ctx=400, slots=4).records[0]
    assert (cut.finish_reason, cut.truncated) == ("length", True)


NEVER_PREDICTED = {
    "connect_s", "headers_s", "itl_p99_s", "error_kind", "error", "tokens_source", "draft_tokens",
    "accepted_tokens", "prompt_kind", "harness_lag_ms", "buffered", "suspect", "template_tokens",
}  # fmt: skip


def test_every_column_is_known_but_those_that_only_a_client_can_know() -> None:
    record = simulate(crowd((probe(16), 1)), requests=1).records[0]
    unknown = {field.name for field in fields(record) if getattr(record, field.name) is None}
    assert unknown == NEVER_PREDICTED


def test_the_path_adds_its_delay_once_each_way() -> None:
    near, far = (
        simulate(crowd((probe(16), 1)), requests=1, one_way_s=delay).records[0]
        for delay in (0.0, 0.25)
    )
    for name in ("ttft_s", "ttfv_s", "e2e_s", "last_token_s"):
        assert getattr(far, name) == getattr(near, name) + 0.5
    for name in ("decode_tok_s", "itl_max_s", "server_prefill_s", "server_queue_s"):
        assert getattr(far, name) == getattr(near, name)
    assert (near.network_s, far.network_s) == (0.0, 0.5)


def test_a_queue_shows_in_ttft_and_in_its_own_column() -> None:
    lived = simulate(crowd((probe(16), 2)), requests=2, slots=1)
    first, second = lived.records
    assert second.concurrent_at_start == 2
    assert second.server_queue_s == first.e2e_s == 1.0
    assert second.ttft_s == 1.0 + 0.0625
    assert second.server_prefill_s == 0.0625


def test_the_second_turn_finds_the_first_in_the_slot() -> None:
    one = persona(segments=(SYSTEM, ASK), turns=fixed(2), output=fixed(10))
    first, second = simulate(crowd((one, 1)), requests=2).records
    assert (first.prompt_tokens or 0) + 10 - 1 == second.cached_tokens


def test_reasoning_is_hidden_from_a_speaker_and_not_remembered() -> None:
    speaker = Device(shows_reasoning=False, buffer_tokens=4, before_s=0.5, after_s=0.25)
    one = probe(8, reasoning=fixed(6), device=speaker)
    record = simulate(crowd((one, 1)), requests=1).records[0]
    assert (record.completion_tokens, record.reasoning_tokens, record.visible_tokens) == (14, 6, 8)
    assert record.ttft_s == 0.0625
    assert record.ttfv_s == 10 * 0.0625 + 0.5 + 0.25


def test_a_prompt_that_does_not_fit_is_refused_not_counted_as_a_success() -> None:
    record = simulate(crowd((probe(8), 1)), requests=1, ctx=50).records[0]
    assert (record.ok, record.error_kind) == (False, "context_exceeded")
    assert record.prompt_tokens == 50
    assert (record.completion_tokens, record.ttft_s, record.network_s) == (0, None, None)


def test_a_full_context_cuts_the_answer_and_says_so() -> None:
    record = simulate(crowd((probe(80), 1)), requests=1, ctx=60).records[0]
    assert (record.ok, record.truncated, record.completion_tokens) == (True, True, 10)


# --- patience -----------------------------------------------------------------------------------


def test_silence_before_the_first_token_ends_in_giving_up() -> None:
    """Two ask at once, one slot: the second has heard nothing after its 0.7 s."""
    lived = simulate(crowd((probe(16, patience_s=0.7), 2)), requests=2, slots=1)
    served, gone = sorted(lived.records, key=lambda r: r.user)
    assert served.ok
    assert (gone.ok, gone.error_kind, gone.ttft_s) == (False, "abandoned", None)
    assert gone.e2e_s == pytest.approx(0.7)
    assert gone.prompt_tokens == 50
    assert gone.server_queue_s is None


def test_a_stream_that_moves_is_never_given_up_on() -> None:
    """40 s of answer in one leap, a token each 62.5 ms, patience of a tenth of a second."""
    record = simulate(crowd((probe(640, patience_s=0.1), 1)), requests=1).records[0]
    assert record.ok
    assert record.e2e_s == 40.0


def test_silence_between_tokens_ends_in_giving_up_with_what_was_heard() -> None:
    """The second prompt is read for 2.5 s, in which the first one's stream stands still."""
    first = probe(200, patience_s=1.0)
    second = replace(probe(4), name="late", segments=(replace(ASK, tokens=fixed(400)),))
    late = replace(second, single_request=False, think_s=fixed(8))
    lived = simulate(crowd((first, 1), (late, 1)), 8.0, pricer=FlatPricer(0.0625, read_s=1 / 160))
    gone = lived.of("chat-0/c0/t0/r0")
    assert gone.error_kind == "abandoned"
    heard = lived.times[gone.request_id]
    assert gone.completion_tokens == len(heard) > 0
    assert gone.end_s == pytest.approx(heard[-1] + 1.0)
    assert gone.decode_tok_s == pytest.approx(16.0)
    assert lived.of("late-0/c0/t0/r0").ok


@pytest.mark.parametrize("patience_s", [0.3, 0.7, 1.1, 2.3])
def test_rounding_does_not_keep_patience_for_ever(patience_s: float) -> None:
    """(start + patience) - start is often a bit less than patience."""
    one = probe(64, patience_s=patience_s)
    lived = simulate(crowd((replace(one, single_request=False), 12)), 20.0, slots=1)
    assert {r.error_kind for r in lived.records} == {None, "abandoned"}


def test_who_gave_up_frees_the_slot() -> None:
    impatient = probe(1600, patience_s=0.05)
    record = simulate(crowd((impatient, 1)), requests=1).records[0]
    assert record.error_kind == "abandoned"
    lived = simulate(crowd((impatient, 1)), 10.0, slots=1)
    assert all(r.server_queue_s is None for r in lived.records)
    assert lived.box.snapshot().free == 1


def test_an_answer_still_on_its_way_does_not_help_the_impatient() -> None:
    record = simulate(
        crowd((probe(1, patience_s=1.0), 1)), requests=1, one_way_s=0.6, pricer=FlatPricer(0.1)
    ).records[0]
    assert (record.error_kind, record.e2e_s) == ("abandoned", 1.0)


# --- lengths that were measured -----------------------------------------------------------------


def measured(**changes: Any) -> Lengths:
    return replace(Lengths(True, 80, 32, 0, 2.5), **changes)


def test_measured_lengths_replace_the_drawn_ones_and_end_the_life() -> None:
    one = replace(probe(16), turns=fixed(9))
    lengths = {
        "chat-0/c0/t0/r0": measured(),
        "chat-0/c0/t1/r0": measured(prompt_tokens=200, completion_tokens=3),
    }
    lived = simulate(crowd((one, 1)), lengths=lengths)
    first, second = lived.records
    assert (first.prompt_tokens, first.completion_tokens) == (80, 32)
    assert (second.prompt_tokens, second.completion_tokens) == (200, 3)
    assert second.cached_tokens == 80 + 32 - 1
    assert lived.ended_s == second.end_s


def failed(**changes: Any) -> Lengths:
    return measured(ok=False, completion_tokens=None, **changes)


def test_a_measured_failure_fails_for_as_long_as_it_took() -> None:
    one = replace(probe(16), turns=fixed(9))
    lengths = {"chat-0/c0/t0/r0": failed(prompt_tokens=None), "chat-0/c1/t0/r0": measured()}
    gone, good = simulate(crowd((one, 1)), lengths=lengths).records
    assert (gone.ok, gone.error_kind, gone.e2e_s) == (False, "as_measured", 2.5)
    assert good.ok
    assert good.started_at_s == 2.5 + 1.0


@pytest.mark.parametrize(("served", "queue_s"), [(True, 2.5), (False, 0.0)])
def test_a_failure_keeps_the_box_busy_for_as_long_as_it_did_the_server(
    served: bool, queue_s: float
) -> None:
    """Two at once, one slot. The first was cut off after 2.5 s of 100: the other gets the slot
    then. Had it been turned away, it would have cost nothing."""
    lengths = {"chat-0/c0/t0/r0": failed(served=served), "chat-1/c0/t0/r0": measured()}
    lived = simulate(crowd((probe(1600), 2)), lengths=lengths, slots=1)
    gone, good = (lived.of(name) for name in lengths)
    assert (gone.error_kind, gone.end_s) == ("as_measured", 2.5)
    assert good.ok
    assert good.server_queue_s == pytest.approx(queue_s, abs=0.0625)
    busy_s = 32 * 0.0625 + (2.5 if served else 0.0)
    assert lived.box.usage.busy_s == pytest.approx(busy_s, abs=0.0625)


def test_a_failure_that_the_box_would_have_answered_by_then_fails_all_the_same() -> None:
    lengths = {"chat-0/c0/t0/r0": failed(), "chat-0/c1/t0/r0": measured()}
    one = replace(probe(16), turns=fixed(9))
    lived = simulate(crowd((one, 1)), lengths=lengths, slots=1)
    gone, good = lived.records
    assert (gone.error_kind, gone.end_s) == ("as_measured", 2.5)
    assert good.started_at_s == 3.5
    assert lived.box.usage.busy_s == pytest.approx((16 + 32) * 0.0625)


def test_a_replay_of_its_own_prediction_is_that_prediction() -> None:
    people = crowd((persona(reasoning=fixed(3), extras=(TITLE,)), 4))
    drawn = simulate(people, 30.0, slots=2)
    lengths = {
        r.request_id: Lengths(
            r.ok, r.prompt_tokens, r.completion_tokens, r.reasoning_tokens, r.e2e_s
        )
        for r in drawn.records
    }
    again = simulate(people, lengths=lengths, slots=2)
    assert again.records == drawn.records


# --- how hard it was ----------------------------------------------------------------------------


def test_the_warm_up_is_left_out_of_how_busy_the_box_was() -> None:
    """10 s of answer from the start, then nothing until 20 s."""
    people = crowd((replace(probe(160), think_s=fixed(60)), 1))
    for warmup_s, busy_s in ((0.0, 10.0), (4.0, 6.0), (15.0, 0.0)):
        box = Box(FlatPricer(), 1, 1000)
        world = SimulatedWorld(box, Naming("run", "mock"), lambda *_: None)
        world.run(people, 20.0, warmup_s)
        worked = world.worked()
        assert worked.seconds == 20.0 - warmup_s
        assert worked.busy_s == pytest.approx(busy_s, abs=0.0625)
        assert worked.all_taken_s == worked.busy_s
        assert (worked.preempted, worked.killed) == (0, 0)


# --- crowds -------------------------------------------------------------------------------------


def test_the_same_crowd_twice_leaves_the_same_records_and_another_seed_does_not() -> None:
    one = persona(extras=(TITLE,), rounds=fixed(2), segments=(SYSTEM, ASK, RESULT))
    runs = [simulate(crowd((one, 5), seed=seed), 40.0, slots=2) for seed in (3, 3, 4)]
    assert runs[0].records == runs[1].records
    assert runs[0].times == runs[1].times
    assert runs[0].records != runs[2].records


def test_what_a_cache_may_hold_is_of_the_measured_lengths() -> None:
    """The same prompt from two people: of the second all may be held, and no more than it has."""
    people = crowd((probe(10), 2)).with_prompts(Prompts("identical"))
    lengths = {f"chat-{user}/c0/t0/r0": measured(prompt_tokens=40) for user in (0, 1)}
    records = simulate(people, lengths=lengths).records
    assert [record.prompt_tokens for record in records] == [40, 40]
    assert sorted(record.reusable_tokens for record in records) == [0, 40]


def test_lengths_do_not_depend_on_the_box() -> None:
    """Draws are keyed by the request, not by the order of events."""
    people = crowd((persona(output=Distribution("uniform", 1, 99, 99)), 6))
    fast, slow = (
        {r.request_id: r.completion_tokens for r in simulate(people, 60.0, slots=slots).records}
        for slots in (6, 1)
    )
    shared = fast.keys() & slow.keys()
    assert len(shared) > 20
    assert {key: fast[key] for key in shared} == {key: slow[key] for key in shared}


small_people = st.builds(
    persona,
    segments=st.sampled_from([(ASK,), (SYSTEM, ASK), (SYSTEM, ASK, RESULT)]),
    output=st.builds(fixed, st.integers(1, 60)),
    turns=st.builds(fixed, st.integers(1, 4)),
    rounds=st.builds(fixed, st.integers(1, 3)),
    reasoning=st.builds(fixed, st.integers(0, 9)),
    think_s=st.builds(fixed, st.floats(0, 5)),
    read_tok_s=st.none() | st.floats(1, 50),
    patience_s=st.none() | st.floats(0.01, 3),
    extras=st.sampled_from([(), (TITLE,)]),
    device=st.builds(
        Device,
        shows_reasoning=st.booleans(),
        buffer_tokens=st.integers(1, 20),
        whole=st.booleans(),
        before_s=st.sampled_from([0.0, 0.3]),
    ),
)


@settings(max_examples=150, deadline=None)
@given(
    small_people,
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([150, 400, 10_000]),
    st.sampled_from([0.0, 0.013, 0.4]),
    st.floats(0, 20),
)
def test_times_are_ordered_and_tokens_conserved(
    one: Persona, users: int, slots: int, ctx: int, one_way_s: float, duration_s: float
) -> None:
    pricer = FlatPricer(0.013, read_s=0.0007)
    lived = simulate(
        crowd((one, users)), duration_s, slots=slots, ctx=ctx, one_way_s=one_way_s, pricer=pricer,
        requests=80,
    )  # fmt: skip
    assert len({r.request_id for r in lived.records}) == len(lived.records)
    for record in lived.records:
        check_record(record, lived.times[record.request_id], one_way_s)
    for _, own in itertools.groupby(
        sorted(lived.records, key=lambda r: (r.user, r.conversation_id, r.turn, r.round)),
        key=lambda r: (r.user, r.conversation_id, r.turn),
    ):
        assert len({r.turn_rounds for r in own}) == 1
    assert sum(r.prompt_tokens or 0 for r in lived.records if r.ok) <= (
        lived.box.usage.prefill_tokens + lived.box.usage.cached_tokens
    )
    assert lived.box.snapshot().queued == 0
    assert lived.box.snapshot().free == slots


def check_record(record: RequestRecord, times: list[float], one_way_s: float) -> None:
    assert record.sent_s == record.started_at_s >= 0
    assert record.end_s is not None
    assert record.e2e_s == pytest.approx(record.end_s - record.started_at_s)
    assert record.completion_tokens == len(times)
    assert record.completion_tokens == (record.reasoning_tokens or 0) + (record.visible_tokens or 0)
    assert times == sorted(times)
    assert record.ok == (record.error_kind is None)
    if not times:
        assert not record.ok
        return
    assert record.ttft_s is not None
    assert record.last_token_s is not None
    assert 2 * one_way_s <= record.ttft_s <= record.last_token_s <= record.e2e_s + 1e-9
    assert times[0] == record.first_byte_s
    if record.ok:
        assert record.last_token_s == pytest.approx(record.e2e_s)
        assert record.cached_tokens is not None
        assert 0 <= record.cached_tokens < (record.prompt_tokens or 0)
        server_s = (record.server_queue_s or 0.0) + (record.server_prefill_s or 0.0)
        assert server_s <= record.ttft_s - 2 * one_way_s + 1e-9
    if record.decode_tok_s is not None:
        span_s = record.last_token_s - record.ttft_s
        assert record.decode_tok_s == pytest.approx((len(times) - 1) / span_s)
