"""What the documents say of servers, each as a test."""

from __future__ import annotations

import numpy as np
import pytest
from box_toys import ToyPricer, request, segment

from headroom_bench.box import (
    POOL_EXHAUSTED,
    QUEUE_FULL,
    TOO_LONG,
    Box,
    BoxDesign,
    BoxRequest,
    Event,
    Speculation,
    alpha_of,
    tokens_a_pass,
)
from headroom_bench.roofline.pricer import Batch
from headroom_bench.segments import Segment, total_tokens


def serve(box: Box) -> list[Event]:
    events: list[Event] = []
    while (at := box.next_event_at()) is not None:
        events += box.advance(at)
    return events


def message(role: str, content_id: str, tokens: int) -> Segment:
    return Segment("ask", role, "prose", content_id, tokens)


CHAT = (
    message("system", "rules", 100),
    message("user", "first", 300),
    message("assistant", "answer", 300),
    message("user", "last", 100),
)


# --- overflow ---------------------------------------------------------------------------------


def test_a_request_longer_than_its_slot_fails_on_llama_cpp_and_is_cut_on_ollama() -> None:
    asked = BoxRequest("a", CHAT, 10, "a/answer")
    strict = Box.of(ToyPricer(), BoxDesign("split_slots", 512, 1))
    strict.submit(asked, 0.0)
    assert serve(strict) == [Event("rejected", "a", 0.0, 800, TOO_LONG)]

    ollama = Box.of(ToyPricer(), BoxDesign("split_slots", 512, 1, overflow="cut"))
    ollama.submit(asked, 0.0)
    events = serve(ollama)
    assert events[0] == Event("cut", "a", 0.0, 300)  # the first ask is gone: 500 tokens are left
    assert events[-1].kind == "finished"
    served = ollama.served("a")
    assert (served.prompt_tokens, served.cut_tokens, served.outcome) == (500, 300, "done")


def test_one_message_too_long_keeps_its_end_in_half_the_window() -> None:
    box = Box.of(ToyPricer(), BoxDesign("split_slots", 4096, 1, overflow="cut"))
    box.submit(request("a", ("book", 9000), max_tokens=10), 0.0)
    assert serve(box)[0] == Event("cut", "a", 0.0, 9000 - 2050)
    assert box.served("a").prompt_tokens == 4096 // 2 + 2


def test_a_conversation_that_is_cut_at_every_turn_finds_less_in_the_cache() -> None:
    """The dropped message was near the start, so what follows it matches no more."""
    box = Box.of(ToyPricer(), BoxDesign("split_slots", 1024, 1, overflow="cut"))
    said = [message("system", "rules", 50)]
    cached = []
    for turn in range(8):
        said.append(message("user", f"ask{turn}", 100))
        box.submit(BoxRequest(f"r{turn}", tuple(said), 100, f"r{turn}/answer"), turn * 100.0)
        serve(box)
        cached.append(box.served(f"r{turn}").cached_tokens)
        said.append(Segment("answer", "assistant", "prose", f"r{turn}/answer", 100))
    whole = [turn for turn in range(8) if box.served(f"r{turn}").cut_tokens == 0]
    assert whole == [0, 1, 2, 3, 4]
    assert cached[4] > 800
    assert cached[6] == cached[7] == 50


def test_vllm_refuses_where_the_answer_would_not_fit() -> None:
    design = BoxDesign("paged", 512, 8, pool_tokens=4096, counts_answer=True)
    box = Box.of(ToyPricer(), design)
    box.submit(request("a", ("text", 500), max_tokens=13), 0.0)
    box.submit(request("b", ("text", 500), max_tokens=12), 0.0)
    kinds = [(event.kind, event.id) for event in serve(box)]
    assert kinds[0] == ("rejected", "a")
    assert kinds[-1] == ("finished", "b")


def test_a_queue_that_is_full_turns_people_away() -> None:
    box = Box.of(ToyPricer(), BoxDesign("split_slots", 512, 1, max_queue=2))
    for name in "abcd":
        box.submit(request(name, (name, 20), max_tokens=5), 0.0)
    rejected = [event for event in serve(box) if event.kind == "rejected"]
    assert rejected == [Event("rejected", "d", 0.0, 20, QUEUE_FULL)]


def test_when_a_unified_cache_runs_out_every_stream_dies() -> None:
    """llama.cpp's default: four slots, each of which may use the whole."""
    box = Box.of(ToyPricer(), BoxDesign("unified_slots", 1000, 4, pool_tokens=1000))
    for name in "abc":
        box.submit(request(name, (name, 300), max_tokens=400), 0.0)
    events = serve(box)
    killed = [event for event in events if event.kind == "rejected"]
    assert [(event.id, event.reason) for event in killed] == [
        (name, POOL_EXHAUSTED) for name in "abc"
    ]
    assert len({event.at for event in killed}) == 1
    assert [box.served(name).generated for name in "abc"] == [34, 34, 34]
    assert box.usage.killed == 3
    box.submit(request("d", ("d", 900), max_tokens=5), 1000.0)  # and the server goes on
    assert serve(box)[-1].reason == "done"


def test_the_same_three_take_turns_in_a_paged_memory() -> None:
    box = Box.of(ToyPricer(), BoxDesign("paged", 1000, 4, pool_tokens=1008))
    for name in "abc":
        box.submit(request(name, (name, 300), max_tokens=400), 0.0)
    events = serve(box)
    # The last one admitted steps back first, and again once both are back.
    assert [event.id for event in events if event.kind == "preempted"] == ["c", "b", "c"]
    assert [box.served(name).outcome for name in "abc"] == ["done"] * 3
    assert all(len(box.token_times(name)) == 400 for name in "abc")


def test_room_kept_for_the_whole_answer_preempts_nobody() -> None:
    design = BoxDesign("paged", 1000, 4, pool_tokens=1008, reserve_answer=True)
    box = Box.of(ToyPricer(), design)
    for name in "abc":
        box.submit(request(name, (name, 300), max_tokens=400), 0.0)
    assert "preempted" not in {event.kind for event in serve(box)}
    assert box.served("b").admitted_at >= box.served("a").finished_at


# --- prompt caches ----------------------------------------------------------------------------


def languages(box: Box, prompts: int, rounds: int = 4) -> list[int]:
    """People of `prompts` system prompts of 1000 tokens ask in turn: tokens found each time."""
    at, found = 0.0, []
    for number in range(prompts * rounds):
        name = f"r{number}"
        parts = ((f"system{number % prompts}", 1000), (f"{name}/ask", 50))
        box.submit(request(name, *parts, max_tokens=10), at)
        serve(box)
        found.append(box.served(name).cached_tokens)
        at += 100.0
    return found[prompts:]


def test_six_system_prompts_evict_each_other_in_a_small_cache_and_not_in_a_large_one() -> None:
    small = Box.of(ToyPricer(), BoxDesign("paged", 2048, 8, pool_tokens=4096))
    assert set(languages(small, 6)) == {0}
    large = Box.of(ToyPricer(), BoxDesign("paged", 2048, 8, pool_tokens=16_384))
    assert set(languages(large, 6)) == {992}  # whole blocks of 16
    same = Box.of(ToyPricer(), BoxDesign("paged", 2048, 8, pool_tokens=4096))
    assert set(languages(same, 1)) == {992}


def test_slots_lose_prompts_that_host_memory_brings_back_for_a_price() -> None:
    bare = Box.of(ToyPricer(), BoxDesign("split_slots", 2048, 2))
    assert set(languages(bare, 6)) == {0}
    pricer = ToyPricer()
    parked = Box.of(pricer, BoxDesign("split_slots", 2048, 2, host_tokens=100_000))
    assert set(languages(parked, 6)) == {1000}
    assert parked.usage.moved_tokens > 0
    moved = [batch.moved_tokens for batch in pricer.priced if batch.chunks]
    assert moved[0] == 0  # nothing was there to be parked
    assert moved[-1] > 1000  # what was in the slot went out, what was parked came in
    little = Box.of(ToyPricer(), BoxDesign("split_slots", 2048, 2, host_tokens=2000))
    assert set(languages(little, 6)) == {0}


def test_slots_are_chosen_and_parked_as_a_recorded_llama_cpp_did() -> None:
    """b11549, two split slots, `--cache-ram` on: five tasks with the sizes of its journal. Which
    slot, how much it had, what was copied to host memory when the task began."""
    pricer = ToyPricer()
    box = Box.of(pricer, BoxDesign("split_slots", 2048, 2, host_tokens=100_000))
    template, again = ("template", 24), ("same question", 15)
    asked = [
        request("0", template, again, max_tokens=110),
        request("2", template, ("long question", 427), max_tokens=30),
        request("112", template, again, max_tokens=8),
        request("121", template, ("third question", 13), max_tokens=8),
        request("130", template, again, max_tokens=8),
    ]
    for number, each in enumerate(asked):
        box.submit(each, (0.0, 0.1, 100.0, 200.0, 300.0)[number])
    serve(box)
    served = [box.served(each.id) for each in asked]
    # The last slot first; a full match; of two equal matches the first slot's; a full match.
    assert [(one.slot, one.cached_tokens) for one in served] == [
        (1, 0), (0, 0), (1, 38), (0, 24), (1, 38)
    ]  # fmt: skip
    moved = [batch.moved_tokens for batch in pricer.priced if batch.chunks]
    # What slot 1 would lose, and a copy of idle slot 0. Then a text that is parked already, but our
    # task 112 answers in other words than task 0, so its 46 tokens are new. Then slot 0's 44.
    assert moved == [0, 0, 148 + 480, 46, 44]


def test_a_match_below_the_threshold_is_still_used_by_the_slot_that_it_falls_to() -> None:
    """b11549, task 198: a slot taken as the least recently used, for 24 of 1833 tokens is no
    similarity, read 1809."""
    box = Box.of(ToyPricer(), BoxDesign("split_slots", 2048, 2, host_tokens=100_000))
    for number, tokens in enumerate((30, 27, 1809)):
        asked = request(f"r{number}", ("template", 24), (f"ask{number}", tokens), max_tokens=1)
        box.submit(asked, number // 2 * 100.0)
    serve(box)
    assert (box.served("r2").slot, box.served("r2").cached_tokens) == (1, 24)


def test_idle_slots_that_share_a_pool_are_parked_and_cleared_when_a_task_begins() -> None:
    """The server says so when it starts: "saved to prompt cache and cleared"."""
    design = BoxDesign("unified_slots", 2048, 2, pool_tokens=2048, host_tokens=100_000)
    box = Box.of(ToyPricer(), design)
    for number, at in enumerate((0.0, 0.0, 100.0)):
        asked = request(f"r{number}", (f"text{number % 2}", 300), max_tokens=10)
        box.submit(asked, at)
    serve(box)
    held = {view.index: view.held_tokens for view in box.snapshot().slots}
    assert held == {0: 0, 1: 309}
    assert box.served("r2").cached_tokens == 299
    box.submit(request("r3", ("text1", 300), max_tokens=1), 200.0)
    serve(box)
    assert box.served("r3").cached_tokens == 299  # brought back from host memory


def test_a_shared_prefix_is_stored_once_in_pages() -> None:
    box = Box.of(ToyPricer(), BoxDesign("paged", 1600, 32, pool_tokens=3200))
    box.submit(request("first", ("system", 1040), ("one", 8), max_tokens=1), 0.0)
    serve(box)
    for number in range(30):
        parts = (("system", 1040), (f"ask{number}", 16))
        box.submit(request(f"r{number}", *parts, max_tokens=32), 100.0)
    box.advance(100.0)
    share = box.snapshot().memory_share
    assert box.snapshot().free == 2
    assert share == pytest.approx((65 + 30) / 200)  # the prompt's pages once, one more for each
    serve(box)
    assert box.usage.preempted == 0


def test_answers_of_which_text_is_known_are_found_as_a_whole() -> None:
    """The mock hashes what it is sent; what it said itself it knows by name."""
    box = Box.of(ToyPricer(), BoxDesign("paged", 1000, 4, pool_tokens=4000))
    ask = Segment("ask", "user", "prose", "ask", 64, (1, 2, 3, 4))
    box.submit(BoxRequest("a", (ask,), 64, "said"), 0.0)
    serve(box)
    said = Segment("answer", "assistant", "prose", "said", 64, (5, 6, 7, 8))
    box.submit(BoxRequest("b", (ask, said, segment("next", 16)), 1, "b"), 50.0)
    serve(box)
    assert box.served("b").cached_tokens == 112  # the answer's last token was never read
    other = Segment("ask", "user", "prose", "other", 64, (1, 2, 9, 9))
    box.submit(BoxRequest("c", (other,), 1, "c"), 60.0)
    serve(box)
    assert box.served("c").cached_tokens == 32


def turn_after_reasoning(rewind: str) -> int:
    """Tokens found by a second turn that does not send the first one's reasoning again."""
    design = BoxDesign("split_slots", 8192, 1, rewind=rewind)  # type: ignore[arg-type]
    box = Box.of(ToyPricer(), design)
    ask = message("user", "ask", 2000)
    box.submit(BoxRequest("a", (ask,), 300, "a/thought-and-said"), 0.0)
    serve(box)
    said = message("assistant", "a/said", 200)
    box.submit(BoxRequest("b", (ask, said, message("user", "more", 50)), 1, "b"), 500.0)
    serve(box)
    return box.served("b").cached_tokens


def test_models_with_windows_or_states_go_back_to_a_checkpoint_or_read_all_again() -> None:
    assert turn_after_reasoning("any") == 2000
    assert turn_after_reasoning("checkpoints") == 1996
    assert turn_after_reasoning("extend") == 0


def test_a_checkpoint_is_saved_before_a_message_not_in_the_midst_of_one() -> None:
    """However many segments make up what a user says: a server sees one message."""
    design = BoxDesign("split_slots", 8192, 1, rewind="checkpoints")
    system, shared = message("system", "all", 600), message("user", "shared", 500)
    for opening, found in (((), 0), ((system,), 600)):
        box = Box.of(ToyPricer(), design)
        for number in (1, 2):
            own = message("user", f"own-{number}", 500)
            asked = BoxRequest(f"r{number}", (*opening, shared, own), 1, f"a{number}")
            box.submit(asked, 500.0 * number)
            serve(box)
        assert box.served("r2").cached_tokens == found


def test_mlx_keeps_ten_caches_and_forgets_the_least_recent() -> None:
    # A cache that is cut back is copied, so each round leaves one more of each prompt.
    box = Box.of(ToyPricer(), BoxDesign("dynamic_batch", 4096, 32, cached_prompts=10))
    assert set(languages(box, 5, rounds=2)) == {1000}
    box = Box.of(ToyPricer(), BoxDesign("dynamic_batch", 4096, 32, cached_prompts=10))
    assert set(languages(box, 11, rounds=2)) == {0}


def test_a_request_that_must_run_alone_waits_and_is_waited_for() -> None:
    box = Box.of(ToyPricer(), BoxDesign("dynamic_batch", 4096, 32))
    box.submit(request("a", ("a", 50), max_tokens=50), 0.0)
    alone = BoxRequest("seeded", (segment("s", 50),), 50, "s", alone=True)
    box.submit(alone, 0.0)
    box.submit(request("b", ("b", 50), max_tokens=50), 0.0)
    serve(box)
    a, seeded, b = (box.served(name) for name in ("a", "seeded", "b"))
    assert a.finished_at <= seeded.admitted_at
    assert seeded.finished_at <= b.admitted_at


# --- speculation and lockstep -----------------------------------------------------------------


def test_one_alpha_gives_both_of_the_tuning_articles_points() -> None:
    alpha = alpha_of(0.70, 4)
    assert alpha == pytest.approx(0.86, abs=0.005)
    assert tokens_a_pass(alpha, 4) == pytest.approx(3.78, abs=0.03)
    assert (tokens_a_pass(alpha, 12) - 1) / 12 == pytest.approx(0.41, abs=0.03)
    assert tokens_a_pass(alpha, 4) == pytest.approx((1 - alpha**5) / (1 - alpha))


@pytest.mark.parametrize(("kind", "alpha"), [("prose", 0.5), ("tool_call", 0.95)])
def test_drafts_are_accepted_as_often_as_the_kind_of_text_says(kind: str, alpha: float) -> None:
    pricer = ToyPricer()
    speculation = Speculation(4, {"prose": 0.5, "tool_call": 0.95})
    box = Box.of(pricer, BoxDesign("split_slots", 50_000, 4, speculation=speculation))
    for number in range(4):
        asked = BoxRequest(f"r{number}", (segment(f"t{number}", 10),), 10_000, "a", kind=kind)
        box.submit(asked, 0.0)
    serve(box)
    passes = [batch for batch in pricer.priced if not batch.chunks]
    assert passes[0] == Batch(4, 40, 40, 4, (), verify=16, draft_passes=4)
    usage = box.usage
    assert usage.decode_tokens == 4 * 9999
    assert usage.accepted / usage.drafted == pytest.approx(
        (tokens_a_pass(alpha, 4) - 1) / 4, rel=0.03
    )
    # Tokens of one pass come together.
    times = box.token_times("r0")
    bursts = np.unique(times[1:], return_counts=True)[1]
    assert bursts.max() == 5
    assert bursts.mean() == pytest.approx(tokens_a_pass(alpha, 4), rel=0.03)


def test_identical_prompts_at_temperature_0_route_in_lockstep() -> None:
    def lockstep(greedy: bool, prompts: int) -> set[int]:
        pricer = ToyPricer()
        box = Box(pricer, slots=16, ctx_per_slot=1000)
        for number in range(16):
            parts = (segment(f"text{number % prompts}", 40),)
            box.submit(BoxRequest(f"r{number}", parts, 50, f"a{number}", greedy=greedy), 0.0)
        serve(box)
        return {batch.lockstep for batch in pricer.priced if not batch.chunks}

    assert lockstep(True, 1) == {15}
    assert lockstep(True, 4) == {12}
    assert lockstep(True, 16) == lockstep(False, 1) == {0}


# --- batching ---------------------------------------------------------------------------------


def chunks_of(design: BoxDesign) -> list[tuple[int, list[int]]]:
    """Decodes and chunk sizes of the passes of one who decodes and two who come later."""
    pricer = ToyPricer()
    box = Box.of(pricer, design, leap=False)
    box.submit(request("a", ("a", 10), max_tokens=60), 0.0)
    box.advance(0.03)
    for name in "bc":
        box.submit(request(name, (name, 100), max_tokens=2), 0.03)
    serve(box)
    passes = [(b.decodes, [chunk.tokens for chunk in b.chunks]) for b in pricer.priced]
    return [each for each in passes if each[1]][1:]


def test_prompts_share_a_pass_with_decodes_under_a_budget_on_vllm() -> None:
    passes = chunks_of(BoxDesign("paged", 512, 8, pool_tokens=4096, batch_tokens=64))
    assert passes == [(1, [63]), (1, [37, 26]), (2, [62]), (1, [12])]


def test_prompts_go_first_and_alone_on_sglang() -> None:
    design = BoxDesign("paged", 512, 8, pool_tokens=4096, page_tokens=1, batch_tokens=64)
    passes = chunks_of(BoxDesign(design.memory, 512, 8, pool_tokens=4096, page_tokens=1,
                                 batch_tokens=64, mixed=False))  # fmt: skip
    assert passes == [(0, [64]), (0, [36, 28]), (0, [64]), (0, [8])]


def test_mlx_reads_several_prompts_side_by_side_a_step_of_each() -> None:
    design = BoxDesign("dynamic_batch", 512, 8, batch_tokens=160, chunk_tokens=40,
                       prompts_a_pass=4, mixed=False)  # fmt: skip
    assert chunks_of(design) == [(0, [40, 40]), (0, [40, 40]), (0, [20, 20])]


# --- what cannot be meant ---------------------------------------------------------------------


def test_designs_that_cannot_be_meant_are_refused() -> None:
    for design, why in (
        ({"memory": "paged"}, "needs pool_tokens"),
        ({"memory": "paged", "pool_tokens": 99}, "cannot hold one sequence"),
        ({"memory": "unified_slots", "pool_tokens": 50}, "cannot hold"),
        ({"memory": "split_slots", "pool_tokens": 500}, "share no pool"),
        ({"memory": "split_slots", "host_tokens": -1}, "not be negative"),
        ({"memory": "split_slots", "max_queue": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=why):
            BoxDesign(ctx=100, parallel=1, **design)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 token"):
        Speculation(0, {})
    with pytest.raises(ValueError, match="alpha must be"):
        Speculation(1, {"prose": 1.5})


def test_totals_of_a_cut_prompt_fit() -> None:
    from headroom_bench.box.overflow import cut_to_fit

    for ctx in (2, 3, 5, 60, 201, 500):
        kept = cut_to_fit(BoxRequest("a", CHAT, 1, "a"), ctx)
        assert 0 < total_tokens(kept) < ctx
