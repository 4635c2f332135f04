"""The box in small cases whose answer can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from box_toys import ToyPricer, request

from headroom_bench.box import TOO_LONG, Box, Event
from headroom_bench.roofline.pricer import Batch, Chunk


def serve(box: Box) -> list[Event]:
    events: list[Event] = []
    while (at := box.next_event_at()) is not None:
        events += box.advance(at)
    return events


def kinds(events: list[Event]) -> list[tuple[str, str, int]]:
    return [(event.kind, event.id, event.n) for event in events]


@pytest.mark.parametrize("leap", [True, False])
@pytest.mark.parametrize("window", [None, 2100])
def test_a_lone_request_takes_the_sum_of_its_passes(leap: bool, window: int | None) -> None:
    pricer = ToyPricer(window)
    box = Box(pricer, slots=2, ctx_per_slot=8192, leap=leap)
    box.submit(request("a", ("text", 5000), max_tokens=3000), at=10.0)
    serve(box)

    at = 10.0
    for tokens, held in ((2048, 0), (2048, 2048), (904, 4096)):
        at += pricer.pass_s(Batch(0, 0, 0, 0, (Chunk(tokens, held),)))
    times = [at]
    for context in range(5000, 5000 + 2999):
        at += pricer.pass_s(Batch(1, context, window or context, int(window is None)))
        times.append(at)
    np.testing.assert_allclose(box.token_times("a"), times, rtol=1e-12)
    served = box.served("a")
    assert (served.submitted_at, served.admitted_at, served.prefill_at) == (10.0, 10.0, 10.0)
    assert (served.first_token_at, served.generated) == (times[0], 3000)
    assert box.usage.busy_s == pytest.approx(served.finished_at - 10.0)
    assert (box.usage.passes, box.usage.decode_tokens) == (3002, 2999)


def test_a_context_that_crosses_the_window_stops_growing() -> None:
    pricer = ToyPricer(window=60)
    box = Box(pricer, slots=1, ctx_per_slot=512)
    box.submit(request("a", ("text", 50), max_tokens=30), at=0.0)
    serve(box)
    at = pricer.pass_s(Batch(0, 0, 0, 0, (Chunk(50, 0),)))
    for context in range(50, 79):
        at += pricer.pass_s(Batch(1, context, min(context, 60), int(context < 60)))
    assert box.served("a").finished_at == at


def test_decoding_comes_first_and_prompts_share_the_rest() -> None:
    pricer = ToyPricer()
    box = Box(pricer, slots=3, ctx_per_slot=512, batch_tokens=21, leap=False)
    box.submit(request("a", ("a", 10), max_tokens=50), at=0.0)
    box.advance(0.0)
    box.submit(request("b", ("b", 30)), at=0.001)
    box.submit(request("c", ("c", 5)), at=0.001)
    serve(box)
    chunks = [batch.chunks for batch in pricer.priced[:4]]
    assert chunks == [
        (Chunk(10, 0),),
        (Chunk(20, 0),),
        (Chunk(10, 20), Chunk(5, 0)),
        (),
    ]


def test_more_decoders_than_the_budget_starve_nobody_for_ever() -> None:
    box = Box(ToyPricer(), slots=3, ctx_per_slot=64, batch_tokens=2)
    for name, length in (("a", 9), ("b", 5), ("c", 1)):
        box.submit(request(name, (name, 1), max_tokens=length), at=0.0)
    serve(box)
    assert [box.served(name).outcome for name in "abc"] == ["done"] * 3
    assert box.served("c").first_token_at > box.served("b").finished_at


def test_the_events_of_one_request_in_each_mode() -> None:
    for leap, between in ((True, []), (False, [("tokens", "a", 1)] * 2)):
        box = Box(ToyPricer(), slots=1, ctx_per_slot=64, leap=leap)
        box.submit(request("a", ("text", 10), max_tokens=3), at=0.0)
        assert kinds(serve(box)) == [
            ("admitted", "a", 10),
            ("cached", "a", 0),
            ("first_token", "a", 1),
            *between,
            ("finished", "a", 3),
        ]


def test_a_prompt_that_fills_the_slot_is_rejected_without_waiting() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=100)
    box.submit(request("long", ("text", 50), max_tokens=40), at=0.0)
    box.submit(request("waits", ("text", 50)), at=0.0)
    box.submit(request("huge", ("text", 100)), at=0.0)
    events = box.advance(0.0)
    assert events[0] == Event("rejected", "huge", 0.0, 100, TOO_LONG)
    assert [event.id for event in events[1:]] == ["long", "long"]
    assert box.served("huge").outcome == "rejected"
    assert box.token_times("huge").shape == (0,)


def test_a_full_slot_ends_the_answer() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=100)
    box.submit(request("cut", ("text", 90), max_tokens=11), at=0.0)
    assert serve(box)[-1].reason == "length"
    served = box.served("cut")
    assert (served.outcome, served.truncated, served.generated) == ("length", True, 10)
    box.submit(request("fits", ("text", 90), max_tokens=10), at=served.finished_at)
    assert serve(box)[-1].reason == "done"
    assert not box.served("fits").truncated


def test_no_tokens_wanted_still_gives_one() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=100)
    box.submit(request("a", ("text", 9), max_tokens=0), at=0.0)
    assert kinds(serve(box))[-2:] == [("first_token", "a", 1), ("finished", "a", 1)]


def cached(box: Box, name: str) -> tuple[int | None, int]:
    serve(box)
    return box.served(name).slot, box.served(name).cached_tokens


def test_a_conversation_comes_back_to_its_slot() -> None:
    box = Box(ToyPricer(), slots=3, ctx_per_slot=1000)
    box.submit(request("other", ("other", 30), max_tokens=5), at=0.0)
    box.submit(request("a", ("system", 40), ("ask", 20), max_tokens=10), at=0.0)
    assert cached(box, "a") == (1, 0)
    turn = (("system", 40), ("ask", 20), ("a/answer", 10), ("next", 7))
    box.submit(request("b", *turn), at=1.0)
    # The answer's last token was sampled, never read: 69 of the 70 are in memory.
    assert cached(box, "b") == (1, 69)
    box.submit(request("again", *turn), at=2.0)
    assert cached(box, "again") == (1, 76)  # a known prompt still reads one token
    box.submit(request("little", ("system", 40), ("else", 400)), at=3.0)
    assert cached(box, "little") == (0, 0)  # less than a tenth: the slot never used


def test_the_longest_free_slot_is_taken_first() -> None:
    box = Box(ToyPricer(), slots=3, ctx_per_slot=1000)
    for name, length in (("a", 30), ("b", 10), ("c", 20)):
        box.submit(request(name, (name, 30), max_tokens=length), at=0.0)
    serve(box)
    for number, (name, slot) in enumerate((("d", 1), ("e", 0), ("f", 2))):
        box.submit(request(name, (name, 30)), at=5.0 + number)
        assert cached(box, name) == (slot, 0)


def test_a_request_cancelled_while_it_is_read_leaves_what_was_read() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=1000, batch_tokens=100)
    box.submit(request("a", ("long", 450)), at=0.0)
    first_pass_s = 2.0**-6 + 100 * 2.0**-10
    box.advance(0.0)
    box.cancel("a", at=first_pass_s * 1.5)
    assert box.advance(9.0) == []
    assert box.next_event_at() is None
    served = box.served("a")
    assert (served.outcome, served.generated, box.usage.passes) == ("cancelled", 0, 2)
    box.submit(request("b", ("long", 450)), at=9.0)
    # Segments match whole, the memory holds the first 200 tokens.
    assert cached(box, "b") == (0, 200)


def test_a_cancelled_decode_frees_its_slot_at_the_end_of_the_pass() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=1000)
    box.submit(request("a", ("text", 10), max_tokens=500), at=0.0)
    box.submit(request("gone", ("text", 10)), at=0.0)
    box.submit(request("b", ("text", 10)), at=0.0)
    box.advance(1.0)
    tokens = len(box.token_times("a"))
    box.cancel("gone", at=1.0)
    box.cancel("a", at=1.0)
    box.cancel("nobody", at=1.0)
    events = box.advance(box.next_event_at())
    assert [(event.kind, event.id) for event in events] == [("admitted", "b"), ("cached", "b")]
    served = box.served("a")
    assert served.generated == tokens + 1
    assert served.finished_at == box.served("gone").finished_at == events[0].at > 1.0
    serve(box)
    assert box.served("b").queue_s == events[0].at


def test_what_is_asked_at_the_end_of_a_pass_is_heard_there() -> None:
    box = Box(ToyPricer(), slots=2, ctx_per_slot=1000)
    box.submit(request("a", ("text", 10)), at=0.0)
    at = serve(box)[-1].at
    box.submit(request("b", ("text", 10)), at)
    box.submit(request("c", ("else", 10)), at)
    box.advance(at)
    serve(box)
    assert box.served("b").admitted_at == box.served("c").admitted_at == at
    assert box.served("b").first_token_at == box.served("c").first_token_at


def test_the_snapshot_follows_a_request() -> None:
    box = Box(ToyPricer(), slots=2, ctx_per_slot=1000, batch_tokens=50)
    box.submit(request("a", ("text", 80), max_tokens=20), at=0.0)
    for name in "bc":
        box.submit(request(name, (name, 10), max_tokens=1), at=0.0)
    box.advance(0.07)
    snapshot = box.snapshot()
    assert (snapshot.at, snapshot.free, snapshot.queued) == (0.07, 0, 1)
    view = snapshot.slots[1]
    assert (view.state, view.request_id, view.task, view.prompt_tokens) == ("prefill", "a", 0, 80)
    assert (view.processed_tokens, view.generated, view.held_tokens) == (50, 0, 50)
    box.advance(box.next_event_at())
    view = box.snapshot().slots[1]
    assert (view.state, view.processed_tokens, view.generated) == ("decode", 80, 1)
    serve(box)
    view = box.snapshot().slots[1]
    assert (view.state, view.request_id, view.held_tokens) == ("free", None, 99)
    assert 0 < box.usage.all_taken_s < box.usage.busy_s


def test_calls_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Box(ToyPricer(), slots=0, ctx_per_slot=10)
    box = Box(ToyPricer(), slots=1, ctx_per_slot=10)
    box.advance(5.0)
    for call in (
        lambda: box.submit(request("a", ("text", 1)), at=4.0),
        lambda: box.cancel("a", at=4.0),
        lambda: box.advance(4.0),
        lambda: box.advance(float("nan")),
    ):
        with pytest.raises(ValueError, match="before 5"):
            call()
    with pytest.raises(ValueError, match="empty"):
        box.submit(request("a"), at=5.0)
    box.submit(request("a", ("text", 1)), at=5.0)
    with pytest.raises(ValueError, match="known"):
        box.submit(request("a", ("text", 1)), at=6.0)
    with pytest.raises(KeyError):
        box.served("a")
    with pytest.raises(KeyError):
        box.token_times("b")


def test_a_pricer_that_turns_time_back_is_refused() -> None:
    box = Box(ToyPricer(fixed_s=-1.0), slots=1, ctx_per_slot=10)
    box.submit(request("a", ("text", 1)), at=0.0)
    with pytest.raises(ValueError, match="pricer"):
        box.advance(1.0)


def test_the_forgotten_are_gone_now_or_when_they_end() -> None:
    box = Box(ToyPricer(), slots=1, ctx_per_slot=1000)
    box.submit(request("a", ("text", 10), max_tokens=100), at=0.0)
    box.submit(request("b", ("text", 10)), at=0.0)
    box.advance(0.1)
    box.cancel("a", at=0.1)
    box.forget("a")
    assert len(box.token_times("a")) > 0
    serve(box)
    box.forget("b")
    for name in "ab":
        with pytest.raises(KeyError):
            box.served(name)
    box.submit(request("a", ("text", 10)), at=9.0)  # the id is free again
    serve(box)
    assert box.served("a").outcome == "done"


def test_forecasts_lead_past_a_silent_cancel() -> None:
    box = Box(ToyPricer(), slots=2, ctx_per_slot=4000)
    box.submit(request("a", ("text", 10), max_tokens=100), at=0.0)
    box.submit(request("b", ("else", 10), max_tokens=900), at=0.0)
    box.advance(1.0)
    slow = box.next_event_at()
    box.cancel("a", at=1.0)
    heard = box.next_event_at()
    assert 1.0 < heard < slow  # the end of the pass in flight: nobody is told of it
    assert box.advance(heard) == []
    at = box.next_event_at()
    assert box.advance(at) == [Event("finished", "b", at, 900, "done")]
