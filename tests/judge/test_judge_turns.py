"""Turns: what a person waited for, all rounds of it."""

from __future__ import annotations

from typing import Any

import pytest
from record_makers import failed, record

from headroom_bench.crowd.persona import Target
from headroom_bench.judge.turns import Turn, turns_of

TARGET = Target("ttfv", 2.0, None, 0.95)


def one(*rounds: Any, target: Target | None = TARGET) -> Turn:
    (turn,) = turns_of(rounds, {"chat": target})
    return turn


@pytest.mark.parametrize(("metric", "wait_s"), [("ttft", 0.5), ("ttfv", 0.6), ("e2e", 2.0)])
def test_the_wait_is_the_targets_metric(metric: Any, wait_s: float) -> None:
    assert one(record(), target=Target(metric, 2.0, None, 0.95)).wait_s == wait_s


def test_earlier_rounds_are_waited_for_to_their_end() -> None:
    turn = one(record(step=2), record(step=0), record(step=1, e2e_s=0.25))
    assert turn.wait_s == pytest.approx(2.0 + 0.25 + 0.6)
    assert turn.rounds == 3
    assert turn.met is False


def test_extras_are_no_part_of_a_turn() -> None:
    turn = one(record(), record(extra="title", e2e_s=50.0, ok=False))
    assert (turn.wait_s, turn.rounds, turn.failed) == (0.6, 1, False)


def test_users_conversations_and_turns_are_kept_apart() -> None:
    records = [record(0), record(1), record(0, conversation=1), record(0, turn=1),
               record(0, persona="other")]  # fmt: skip
    assert len(turns_of(records, {"chat": TARGET, "other": None})) == 5


@pytest.mark.parametrize("kind", ["reset", "abandoned", "context_exceeded", "refused"])
def test_failures_are_unmet(kind: str) -> None:
    turn = one(failed(kind))
    assert (turn.failed, turn.met, turn.wait_s, turn.used) == (True, False, None, None)


def test_a_failed_round_fails_the_turn_however_good_the_others() -> None:
    turn = one(record(step=0, turn_rounds=3), failed(step=1, turn_rounds=3))
    assert (turn.failed, turn.met, turn.rounds) == (True, False, 2)


def test_an_answer_that_broke_off_is_unmet_however_soon_it_began() -> None:
    turn = one(failed("reset", ttft_s=0.5, ttfv_s=0.6, e2e_s=1.0))
    assert (turn.failed, turn.met, turn.wait_s, turn.used) == (True, False, None, None)


def test_an_answer_that_showed_nothing_is_unmet() -> None:
    turn = one(record(ttfv_s=None))
    assert (turn.failed, turn.met, turn.used) == (False, False, None)


@pytest.mark.parametrize(
    ("ttfv_s", "rate", "used"),
    [
        (1.0, 20.0, 0.5),  # the wait decides
        (1.0, 8.0, 1.25),  # the rate decides
        (1.0, None, 0.5),  # an answer of one token has no rate
        (2.0, 10.0, 1.0),  # just met
    ],
)
def test_the_used_share_is_the_larger_of_wait_and_rate(
    ttfv_s: float, rate: float | None, used: float
) -> None:
    target = Target("ttfv", 2.0, 10.0, 0.95)
    turn = one(record(ttfv_s=ttfv_s, decode_tok_s=rate), target=target)
    assert turn.used == pytest.approx(used)
    assert turn.met == (used <= 1)


def test_without_a_target_there_is_a_wait_and_no_judgement() -> None:
    turn = one(record(), target=None)
    assert (turn.wait_s, turn.used, turn.met) == (2.0, None, None)


@pytest.mark.parametrize(
    "cut",
    [
        [record(step=1)],  # its first round lay in the warm-up
        [record(step=0), record(step=2)],
        [record(step=0, turn_rounds=2)],  # the world stopped before its second round
        [record(step=0), record(step=1, valid=False)],
        [failed("interrupted", valid=False)],
    ],
)
def test_turns_that_were_cut_or_spoilt_are_left_out(cut: list[Any]) -> None:
    assert turns_of(cut, {"chat": TARGET}) == []


def test_a_turn_with_all_its_rounds_counts() -> None:
    assert one(record(step=0, turn_rounds=2), record(step=1, turn_rounds=2)).rounds == 2


@pytest.mark.parametrize("metric", ["ttfv", "e2e"])
def test_a_device_s_own_time_is_no_phase_of_the_wait(metric: Any) -> None:
    """Heard 0.3 s before and 0.15 s after the wire had it, while the answer was still written."""
    device_s = 0.45 if metric == "ttfv" else 0.0
    target = Target(metric, 2.0, None, 0.95, device_s)
    turn = one(record(step=0, e2e_s=1.0, ttft_s=0.5), record(step=1, ttfv_s=1.45), target=target)
    assert turn.wait_s == pytest.approx(2.45 if metric == "ttfv" else 3.0)
    assert sum(turn.phases.values()) == pytest.approx(turn.wait_s - device_s)
