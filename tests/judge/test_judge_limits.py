"""Limits of a run, and what took the time of turns that missed their target."""

from __future__ import annotations

from typing import Any

import pytest
from record_makers import failed, record

from headroom_bench.crowd.persona import Target
from headroom_bench.judge.causes import first_to_break, what_broke
from headroom_bench.judge.limits import limits_of, time_by_bound_in
from headroom_bench.judge.turns import Turn, turns_of
from headroom_bench.judge.verdict import GroupVerdict, Load, is_lost, judge, misses
from headroom_bench.judge.waits import Phase
from headroom_bench.records import RequestRecord

E2E = Target("e2e", 1.0, None, 0.95)
BOUND = {"prefill": "compute", "decode": "bandwidth"}


def served(**fields: Any) -> RequestRecord:
    """4 s: 1 in the queue, 0.5 reading, 0.25 on the way, 2.25 writing 30 tokens."""
    whole = {
        "server_queue_s": 1.0, "server_prefill_s": 0.5, "network_s": 0.25, "ttft_s": 1.75,
        "ttfv_s": 1.75, "e2e_s": 4.0, "server_decode_s": 2.25, "completion_tokens": 30,
        "reasoning_tokens": 0,
    }  # fmt: skip
    return record(**(whole | fields))


def turn(*rounds: RequestRecord, target: Target = E2E) -> Turn:
    (only,) = turns_of(rounds, {"chat": target})
    return only


def test_a_wait_is_parted_into_phases_that_sum_to_it() -> None:
    whole = turn(served())
    assert whole.phases == pytest.approx(
        {"queue": 1.0, "prefill": 0.5, "network": 0.25, "unexplained": 0.0, "reasoning": 0.0,
         "decode": 2.25}
    )  # fmt: skip
    assert sum(whole.phases.values()) == pytest.approx(whole.wait_s)
    two = turn(served(step=0), served(step=1))
    assert sum(two.phases.values()) == pytest.approx(two.wait_s)


def test_reasoning_has_its_share_of_the_writing() -> None:
    phases = turn(served(reasoning_tokens=20)).phases
    assert (phases["reasoning"], phases["decode"]) == pytest.approx((1.5, 0.75))


def test_only_what_was_waited_for_counts() -> None:
    """A chat reader waits for the first words, a speaker for reasoning and a few tokens more."""
    early = turn(served(), target=Target("ttfv", 1.0, None, 0.95)).phases
    assert (early["reasoning"], early["decode"]) == (0.0, 0.0)
    later = turn(
        served(ttfv_s=2.75, reasoning_tokens=8), target=Target("ttfv", 1.0, None, 0.95)
    ).phases
    assert later["reasoning"] == pytest.approx(2.25 * 8 / 30)
    assert later["reasoning"] + later["decode"] == pytest.approx(1.0)


def test_what_writing_took_longer_than_the_server_is_the_ways_where_all_of_it_is_known() -> None:
    simulated = turn(served(e2e_s=10.0, world="predicted")).phases
    assert (simulated["network"], simulated["decode"]) == pytest.approx((6.25, 2.25))
    measured = turn(served(e2e_s=10.0)).phases
    assert (measured["network"], measured["unexplained"]) == pytest.approx((0.25, 6.0))


def test_what_nobody_told_is_missing_and_its_time_unexplained() -> None:
    """A server's own times without its queue: the way is the round trip and no more."""
    told = turn(served(server_queue_s=None, network_s=0.01))
    assert told.phases == pytest.approx(
        {"prefill": 0.5, "network": 0.01, "unexplained": 1.24, "reasoning": 0.0, "decode": 2.25}
    )
    assert told.as_row()["queue_s"] is None
    silent = turn(served(server_queue_s=None, server_prefill_s=None, network_s=None)).as_row()
    assert (silent["prefill_s"], silent["network_s"], silent["unexplained_s"]) == (None, None, 1.75)
    half = turn(served(step=0), served(step=1, server_queue_s=None))
    assert half.phases["unexplained"] == pytest.approx(1.0 + 1.0)
    assert "queue" not in half.phases
    assert sum(half.phases.values()) == pytest.approx(half.wait_s)


def test_too_slow_to_read_along_is_a_matter_of_writing() -> None:
    """In time, though: the seconds of the wait went where they went."""
    slow = turn(served(decode_tok_s=2.0), target=Target("ttft", 5.0, 5.0, 0.95))
    assert (slow.met, slow.too_slow, slow.cause) == (False, True, "decode")
    row = slow.as_row()
    assert [row[f"{phase}_s"] for phase in ("queue", "prefill", "network", "decode")] == [
        1.0, 0.5, 0.25, 0.0
    ]  # fmt: skip
    (told,) = what_broke([slow], Load(), BOUND)
    assert told["evidence"].endswith("were written too slowly to read along, bound by bandwidth")
    late = turn(served(decode_tok_s=2.0), target=Target("ttft", 1.0, 5.0, 0.95))
    assert (late.too_slow, late.cause) == (False, "queue")


def missed(phase: Phase, persona: str = "chat", in_flight: int | None = None) -> Turn:
    told: dict[Phase, float] = {"prefill": 0.0}
    return Turn(persona, 9.0, 1, 2.0, False, False, told | {phase: 9.0}, in_flight=in_flight)


@pytest.mark.parametrize(
    ("unmet", "load", "radio", "limit"),
    [
        (missed("queue"), Load(1.0, 0.9), (), "slots"),
        (missed("queue"), Load(1.0, 0.0, one_pool=True), (), "KV"),
        (missed("queue"), Load(1.0, 0.0), (), "compute"),
        (missed("queue"), Load(), (), "slots"),
        (missed("queue", in_flight=4), Load(1.0, 0.9, slots=4), (), "compute"),
        (missed("queue", in_flight=5), Load(1.0, 0.0, slots=4), (), "slots"),
        (missed("queue", in_flight=4), Load(1.0, 0.9, one_pool=True, slots=4), (), "KV"),
        (missed("unexplained", in_flight=4), Load(slots=2), (), "slots"),
        (missed("unexplained", in_flight=2), Load(slots=2), (), "unexplained"),
        (missed("unexplained", in_flight=4), Load(), (), "unexplained"),
        (Turn("chat", 9.0, 1, 2.0, False, False, {"unexplained": 9.0}), Load(), (), "first token"),
        (missed("prefill"), Load(), (), "compute"),
        (missed("reasoning"), Load(), (), "bandwidth"),
        (missed("decode"), Load(), (), "bandwidth"),
        (missed("network"), Load(), (), "network"),
        (missed("network"), Load(), ("chat",), "radio"),
        (missed("network"), Load(), ("other",), "network"),
        (turn(failed("abandoned")), Load(), (), "patience"),
        (turn(failed("context_exceeded")), Load(), (), "context"),
        (turn(failed("server_busy")), Load(), (), "slots"),
        (turn(failed("reset")), Load(), (), "server"),
        (turn(failed("server_error")), Load(), (), "server"),
        (turn(failed("server_error")), Load(killed=1), (), "KV"),
    ],
)
def test_a_cause_is_a_limit(unmet: Turn, load: Load, radio: tuple[str, ...], limit: str) -> None:
    (row,) = what_broke([unmet], load, BOUND, radio)
    assert (row["limit"], row["share"]) == (limit, 1.0)
    assert row["evidence"].startswith("1 of 1 unmet turns ")


def test_causes_come_by_their_weight() -> None:
    rows = what_broke([missed("queue"), *[missed("decode")] * 3], Load(1, 1), BOUND)
    assert [(row["limit"], row["share"]) for row in rows] == [("bandwidth", 0.75), ("slots", 0.25)]
    assert "hidden reasoning" in what_broke([missed("reasoning")], Load(), {})[0]["evidence"]


def by_limit(records: list[RequestRecord], load: Load = Load()) -> dict[str, dict[str, Any]]:
    return {row["limit"]: row for row in limits_of(records, load, None)}


def test_a_quiet_run_has_no_limits() -> None:
    assert by_limit([record(reusable_tokens=40)]) == {}


def test_tokens_read_again_tell_of_the_cache() -> None:
    rows = by_limit([record(prompt_tokens=100, cached_tokens=40, reusable_tokens=85)])
    assert rows["KV"]["share"] == pytest.approx(45 / 60)
    assert "45 of 60 prompt tokens that were read had been sent before" in rows["KV"]["evidence"]
    assert "40% of all came from the cache" in rows["KV"]["evidence"]


def test_preempted_and_killed_answers_tell_of_the_cache_too() -> None:
    told = limits_of([record()] * 4, Load(preempted=2, killed=1), None)
    assert [(row["limit"], row["share"]) for row in told] == [("KV", 0.5), ("KV", 0.25)]


def test_the_way_is_told_of_where_it_counts() -> None:
    assert by_limit([record(network_s=0.3)])["network"]["share"] == pytest.approx(0.6)
    assert by_limit([record(network_s=0.01)]) == {}


def waiting(in_flight: int, **fields: Any) -> RequestRecord:
    """TTFT 3 s: 0.5 reading, 2 ms on the way, and what `fields` tell of the rest."""
    return record(
        **{"ttft_s": 3.0, "server_prefill_s": 0.5, "network_s": 0.002,
           "concurrent_at_start": in_flight, **fields}
    )  # fmt: skip


def test_waiting_for_a_slot_is_told_of_slots_and_never_of_the_network() -> None:
    """Four people at two slots over loopback, with and without a journal that tells the queue."""
    rows = by_limit([waiting(n) for n in (1, 2, 3, 4)], Load(slots=2))
    assert rows.keys() == {"slots", "unexplained"}
    assert rows["slots"]["share"] == 0.5
    assert rows["slots"]["evidence"] == (
        "2 of 4 requests came with more in flight than its 2 slots, "
        "2.498 s to their first token nothing else explains"
    )
    assert rows["unexplained"]["share"] == pytest.approx(2 * 2.498 / 12)
    assert rows["unexplained"]["evidence"].startswith(
        "1.249 s of 3.000 s to the first token (on average) neither on the way nor "
    )
    told = [waiting(n, server_queue_s=2.498 if n > 2 else 0.0) for n in (3, 4, 4, 4)]
    rows = by_limit(told, Load(1.0, 0.9, slots=2))
    assert rows.keys() == {"slots"}
    assert rows["slots"]["evidence"].startswith("every slot taken for 90% of the time, 4 of 4 ")
    assert rows["slots"]["evidence"].endswith(", 2.498 s in the queue on average")


def test_what_clocks_differ_by_is_no_queue() -> None:
    """A lone user's prompt of 20 tokens: 2 ms between two clocks are a seventh of TTFT."""
    lone = {"ttft_s": 0.016, "server_prefill_s": 0.01, "concurrent_at_start": 1}
    for told in ({"server_queue_s": 0.002}, {"server_queue_s": None}):
        rows = by_limit([record(network_s=0.0, **lone, **told)], Load(slots=4))
        assert rows == {}


def test_what_is_refused_waits_for_no_slot() -> None:
    refused = failed("context_exceeded", concurrent_at_start=9)
    assert by_limit([refused] * 3, Load(slots=2)).keys() == {"context"}
    given_up = failed("abandoned", concurrent_at_start=9)
    assert by_limit([given_up] * 3, Load(slots=2)).keys() == {"patience", "slots"}


def test_who_has_a_slot_waits_for_the_pass_before() -> None:
    """Four people at four slots: every slot is taken, and nobody waits for one."""
    load = Load(1.0, 0.8, slots=4)
    rows = by_limit([waiting(n, server_queue_s=2.4) for n in (1, 2, 3, 4)], load)
    assert rows.keys() == {"queue"}
    assert rows["queue"]["evidence"] == (
        "2.400 s of 3.000 s to the first token (on average) for the pass before, with slots free"
    )
    unknown = by_limit([waiting(4, server_queue_s=2.4)])
    assert unknown["queue"]["evidence"].endswith(" to the first token (on average) in the queue")
    paged = Load(1.0, 0.0, one_pool=True, slots=256)
    (row,) = limits_of([waiting(4, server_queue_s=2.4)], paged, None)
    assert "room in the cache" in row["evidence"]


def test_what_the_harness_spoilt_tells_of_no_limit() -> None:
    spoilt = [
        record(network_s=0.4, valid=False), waiting(9, valid=False),
        failed("abandoned", valid=False), record(truncated=True, valid=False),
        record(prompt_tokens=100, cached_tokens=0, reusable_tokens=90, valid=False),
    ]  # fmt: skip
    assert by_limit([*spoilt, record()], Load(slots=2)) == {}
    (row,) = limits_of([*spoilt, record(), failed("abandoned")], Load(), None)
    assert row["evidence"] == "1 of 2 requests were given up on"


def test_limits_that_a_model_tells_are_marked() -> None:
    rows = limits_of([record(network_s=0.3)], Load(), {"bandwidth": 0.8})
    assert {row["limit"]: row["modelled"] for row in rows} == {"bandwidth": True, "network": False}


def test_a_shared_radio_is_told_of_by_name_and_by_the_way_over_it() -> None:
    load = Load(radio_busy_shares={"wifi6": 0.6, "ble": 0.01})
    (row,) = limits_of([record()], load, None)
    assert (row["limit"], row["share"]) == ("radio", 0.6)
    assert row["evidence"].startswith("wifi6 was busy for 60% of the time")
    near, far = record(network_s=0.3), record(network_s=0.4, persona="far")
    told = {row["limit"]: row["share"] for row in limits_of([near, far], Load(), None, {"far"})}
    assert told == pytest.approx({"network": 0.6, "radio": 0.8})


def test_cut_and_refused_requests_are_told_of() -> None:
    records = [record(), record(truncated=True), failed("abandoned"), failed("server_busy")]
    rows = by_limit(records)
    assert {limit: row["share"] for limit, row in rows.items()} == {
        "context": 0.25, "patience": 0.25, "slots": 0.25
    }  # fmt: skip


# --- what is lost -------------------------------------------------------------------------------


def group(met: int, turns: int) -> GroupVerdict:
    return GroupVerdict("chat", "tight", turns, met / turns if turns else None, None)


@pytest.mark.parametrize(
    ("met", "turns", "lost"),
    [
        (0, 0, False), (0, 1, False), (0, 2, True), (17, 18, False), (16, 18, True),
        (19, 20, False), (18, 20, True), (95, 100, False), (94, 100, True),
    ],
)  # fmt: skip
def test_a_thin_group_is_lost_where_no_further_turn_could_save_it(
    met: int, turns: int, lost: bool
) -> None:
    assert is_lost(group(met, turns), E2E) is lost
    assert is_lost(group(met, turns), None) is False


def test_misses_are_told_in_standard_errors() -> None:
    assert misses(group(95, 100), E2E) == pytest.approx(0.0)
    assert misses(group(90, 100), E2E) == pytest.approx(0.05 / (0.95 * 0.05 / 100) ** 0.5)
    assert misses(group(9000, 10000), E2E) > misses(group(9, 10), E2E) > 0
    assert misses(group(0, 0), E2E) == misses(group(1, 2), None) == 0.0


def test_what_was_refused_was_never_read() -> None:
    """A prompt without a first token tells nothing of what was read."""
    refused = failed("context_exceeded", cached_tokens=0, reusable_tokens=90)
    assert by_limit([refused] * 3).keys() == {"context"}


def test_a_templates_tokens_are_not_sent_again() -> None:
    fields = {"prompt_tokens": 100, "reusable_tokens": 60, "template_tokens": 60}
    assert by_limit([record(cached_tokens=0, **fields)]) == {}
    shared = fields | {"reusable_tokens": 90}
    rows = by_limit([record(cached_tokens=20, **shared)])
    assert rows["KV"]["evidence"].startswith("30 of 80 "), "its text; the cache held no more"
    rows = by_limit([record(cached_tokens=70, **shared)])
    assert rows["KV"]["evidence"].startswith("20 of 30 ")


def test_the_shares_of_bounds_are_found_again_in_rows() -> None:
    shares = {"bandwidth": 0.7123, "compute": 0.25}
    rows = limits_of([record(network_s=0.3)], Load(1.0, 0.9), shares)
    assert len(rows) == 4
    assert time_by_bound_in(rows) == shares


def test_the_last_tokens_of_a_cached_prompt_are_no_limit() -> None:
    """A server reads the last token or a few of them again whatever its cache holds."""
    assert by_limit([record(prompt_tokens=500, cached_tokens=496, reusable_tokens=500)] * 9) == {}


def test_the_bound_of_a_wait_is_the_models_word() -> None:
    (row,) = what_broke([turn(served())], Load(), BOUND)
    assert (row["limit"], row["modelled"]) == ("bandwidth", True)
    (row,) = what_broke([turn(served())], Load(), {})
    assert (row["limit"], row["modelled"]) == ("decode", False)
    late = served(server_queue_s=3.0, ttft_s=3.75, ttfv_s=3.75, e2e_s=6.0)
    (row,) = what_broke([turn(late)], Load(slots=1, all_slots_share=1.0), BOUND)
    assert (row["limit"], row["modelled"]) == ("slots", False)


def test_an_answer_that_a_full_cache_ends_is_no_prompt_that_is_too_long() -> None:
    """llama.cpp has the same error for both; a prompt is refused before its first token."""
    ended = failed("context_exceeded", ttft_s=0.5, completion_tokens=40)
    refused = failed("context_exceeded", user=1)
    rows = limits_of([ended, refused, record(user=2)], Load(), None)
    told = {row["limit"]: row["evidence"] for row in rows}
    assert told["KV"] == "1 of 3 requests were ended in their answers by a cache that ran out"
    assert told["context"] == "1 of 3 requests did not fit into their context"
    unmet = turns_of([ended, refused], {})
    told = {row["limit"]: row["evidence"] for row in what_broke(unmet, Load(), BOUND)}
    assert told == {
        "KV": "1 of 2 unmet turns were ended in their answers by a cache that ran out",
        "context": "1 of 2 unmet turns did not fit into their context",
    }


def test_no_failed_request_is_compared_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand that a full cache ended took six minutes so."""

    def compared(*_: object) -> bool:
        raise AssertionError("records were compared")

    monkeypatch.setattr(RequestRecord, "__eq__", compared)
    ended = [failed("context_exceeded", ttft_s=0.5, user=user) for user in range(3)]
    (row,) = limits_of(ended, Load(), None)
    assert (row["limit"], row["share"]) == ("KV", 1.0)


def test_who_surely_misses_breaks_before_who_narrowly_does() -> None:
    """23 of 26 turns in time are 1.5 standard errors short; none of 15 are 17."""
    chat = [turn_of("chat", n, met=n < 23) for n in range(26)]
    voice = [turn_of("voice", n, met=False) for n in range(15)]
    targets = {"chat": E2E, "voice": E2E}
    _, groups = judge([*chat, *voice], targets, Load())
    broke = first_to_break(groups, [*chat, *voice], targets, Load(), BOUND)
    assert broke is not None
    assert (broke["persona"], broke["also_failing"]) == ("voice", ["chat"])


def turn_of(persona: str, number: int, met: bool) -> Turn:
    wait_s = 0.5 if met else 2.0
    return Turn(persona, wait_s, 1, wait_s, met, False, {"decode": wait_s}, user=number)
