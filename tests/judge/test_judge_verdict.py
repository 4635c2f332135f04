"""The verdict, by the model's own rules."""

from __future__ import annotations

from typing import Any

import pytest
from record_makers import failed, record

from headroom_bench.crowd.persona import Target
from headroom_bench.judge.limits import limits_of
from headroom_bench.judge.turns import Turn
from headroom_bench.judge.verdict import Load, judge, judge_group, turn_figures

TARGET = Target("ttfv", 2.0, None, 0.95)
IDLE, EASY, HARD = Load(0.1, 0.0), Load(0.5, 0.0), Load(0.9, 0.9)


def turns(*used: float | None, persona: str = "chat") -> list[Turn]:
    """A turn for each used share; None failed."""
    return [
        Turn(persona, None, 1, None, False, True) if share is None
        else Turn(persona, 2.0 * share, 1, share, share <= 1, False)
        for share in used
    ]  # fmt: skip


def word(used: list[float | None], load: Load = EASY, target: Target | None = TARGET) -> str:
    return judge_group("chat", turns(*used), target, load).word


WELL = [0.3] * 100
CASES: dict[str, tuple[list[float | None], Load, str]] = {
    "well inside, half busy": (WELL, EASY, "right-sized"),
    "well inside, hardly busy": (WELL, IDLE, "overkill"),
    "busy unknown": (WELL, Load(), "right-sized"),
    "busy alone decides nothing": (WELL, Load(0.99, 0.0), "right-sized"),
    "all slots alone decide nothing": (WELL, Load(0.5, 0.99), "right-sized"),
    "slots taken, busy unknown": (WELL, Load(None, 0.99), "right-sized"),
    "busy, slots unknown": (WELL, Load(0.99, None), "right-sized"),
    "slots taken on a busy box": (WELL, HARD, "tight"),
    "just not busy enough": (WELL, Load(0.85, 0.9), "right-sized"),
    "slots just not taken enough": (WELL, Load(0.9, 0.5), "right-sized"),
    "slots just taken enough": (WELL, Load(0.9, 0.51), "tight"),
    "just busy enough to be right": (WELL, Load(0.25, 0.0), "right-sized"),
    "slowest 5 % near the limit": ([0.3] * 94 + [0.8] * 6, EASY, "tight"),
    "slowest 5 % near the limit, idle": ([0.3] * 94 + [0.9] * 6, IDLE, "tight"),
    "slowest 5 % just inside": ([0.3] * 94 + [0.79] * 6, EASY, "right-sized"),
    "the slowest of thirty, who are two": ([0.3] * 29 + [0.99], EASY, "right-sized"),
    "the slowest two of thirty": ([0.3] * 28 + [0.99] * 2, EASY, "tight"),
    "a few slow ones": ([0.3] * 96 + [0.99] * 4, EASY, "right-sized"),
    "a few failures": ([0.3] * 97 + [None] * 3, EASY, "right-sized"),
    "95 % met, and the slowest 5 % not at all": ([0.3] * 95 + [1.5] * 5, EASY, "tight"),
    "below 95 % met": ([0.3] * 94 + [1.5] * 6, EASY, "failing"),
    "below 95 % by failures": ([0.3] * 94 + [None] * 6, IDLE, "failing"),
    "all failed": ([None] * 20, EASY, "failing"),
    "the slowest 5 % of twenty failed": ([0.3] * 19 + [None], EASY, "tight"),
    "19 turns": ([0.3] * 19, EASY, "not enough data"),
    "19 failures": ([None] * 19, EASY, "not enough data"),
    "nothing": ([], EASY, "not enough data"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case: str) -> None:
    used, load, expected = CASES[case]
    assert word(used, load) == expected


def test_a_persona_may_ask_for_another_share() -> None:
    used: list[float | None] = [0.3] * 90 + [1.5] * 10
    assert word(used, target=Target("ttfv", 2.0, None, 0.9)) == "tight"
    assert word(used, target=Target("ttfv", 2.0, None, 0.91)) == "failing"


def test_no_target_is_not_judged() -> None:
    group = judge_group("chat", turns(*[0.3] * 50), None, IDLE)
    assert (group.word, group.turns, group.met_share) == ("no target", 50, None)


def test_figures_beside_the_word() -> None:
    group = judge_group("chat", turns(*[0.5] * 19, 1.5, *[0.25] * 20), TARGET, EASY)
    assert group.as_row() == {
        "verdict": "right-sized",
        "turns": 40,
        "target_met_share": 39 / 40,
        "used_p95": 0.5,
    }


def test_the_used_share_is_unknown_where_the_slowest_got_no_answer() -> None:
    group = judge_group("chat", turns(*[0.3] * 30, *[None] * 9), TARGET, EASY)
    assert group.used_p95 is None
    assert judge_group("chat", turns(*[0.3] * 39, None), TARGET, EASY).used_p95 == 0.3


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ({"a": [0.3] * 20, "b": [0.3] * 20}, "right-sized"),
        ({"a": [0.3] * 20, "b": [0.9] * 20}, "tight"),
        ({"a": [0.3] * 20, "b": [1.5] * 20}, "failing"),
        ({"a": [1.5] * 20, "b": [0.3] * 5}, "failing"),
        ({"a": [0.9] * 20, "b": [0.3] * 5}, "not enough data"),
        ({"a": [0.9] * 20, "b": []}, "not enough data"),
        ({}, "no target"),
    ],
)
def test_the_runs_verdict_is_its_worst_groups(
    groups: dict[str, list[float | None]], expected: str
) -> None:
    known = [turn for name, used in groups.items() for turn in turns(*used, persona=name)]
    assert judge(known, dict.fromkeys(groups, TARGET), EASY)[0] == expected


def test_groups_without_a_target_do_not_spoil_the_verdict() -> None:
    known = [*turns(*[0.3] * 20, persona="a"), *turns(*[0.3] * 3, persona="b")]
    found, groups = judge(known, {"a": TARGET, "b": None}, EASY)
    assert found == "right-sized"
    assert groups["b"].word == "no target"
    assert judge(known, {"b": None}, EASY)[0] == "no target"


def test_turn_figures() -> None:
    known = [Turn("chat", 1.0, 2, 0.5, True, False), *turns(None), *turns(0.9, persona="b")]
    figures = turn_figures(known, "chat")
    assert figures["rounds_per_turn"] == 1.5
    assert figures["turn_s"]["n"] == 1
    assert turn_figures([], "chat")["rounds_per_turn"] is None


# --- limits -------------------------------------------------------------------------------------


def limits(records: list[Any], load: Load, bounds: dict[str, float] | None = None) -> list[str]:
    return [row["limit"] for row in limits_of(records, load, bounds)]


def test_limits_come_most_telling_first_with_evidence() -> None:
    records = [record(server_queue_s=0.5), failed("abandoned"), failed("context_exceeded"),
               failed("context_exceeded")]  # fmt: skip
    rows = limits_of(records, Load(0.9, 0.6), {"bandwidth": 0.7, "compute": 0.3})
    assert [row["limit"] for row in rows] == [
        "bandwidth", "slots", "context", "compute", "patience",
    ]  # fmt: skip
    told = {row["limit"]: row["evidence"] for row in rows}
    assert told["slots"] == "every slot taken for 60% of the time, 0.500 s in the queue on average"
    assert told["context"] == "2 of 4 requests did not fit into their context"
    assert all(0 <= row["share"] <= 1 for row in rows)


def test_limits_that_are_not_known_or_not_near_are_left_out() -> None:
    assert limits([], Load()) == []
    assert limits([record()], Load(0.9, 0.04)) == []
    assert limits([record()], Load(0.9, 0.05)) == ["slots"]
