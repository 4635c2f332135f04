"""Whether a size passes, and how much in doubt that is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import pytest

from headroom_bench.judge.redline import LIKELY, SURE
from headroom_bench.judge.rulings import (
    ENOUGH_TURNS,
    chance_to_lose,
    ruling_on,
    seconds_to_judge,
)
from headroom_bench.judge.verdict import GroupVerdict


@dataclass(frozen=True)
class Wanted:
    metric: Literal["ttft", "ttfv", "e2e"] = "ttfv"
    limit_s: float = 2.0
    min_tok_s: float | None = None
    share: float = 0.95


def group(turns: int, unmet: int, used_p95: float = 0.9, name: str = "g") -> GroupVerdict:
    met = (turns - unmet) / turns if turns else None
    return GroupVerdict(name, "right-sized", turns, met, used_p95)


def exact_chance(turns: int, unmet: int) -> float:
    """The other tail of the beta-binomial, by its definition."""
    more, a, b = ENOUGH_TURNS - turns, unmet + 0.5, turns - unmet + 0.5
    allowed = math.floor(0.05 * ENOUGH_TURNS + 1e-9)

    def term(k: int) -> float:
        ways = math.lgamma(more + 1) - math.lgamma(k + 1) - math.lgamma(more - k + 1)
        drawn = math.lgamma(k + a) + math.lgamma(more - k + b) - math.lgamma(more + a + b)
        prior = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
        return math.exp(ways + drawn + prior)

    return sum(term(k) for k in range(max(0, allowed + 1 - unmet), more + 1))


@pytest.mark.parametrize(
    ("turns", "unmet"),
    [(20, 0), (20, 1), (20, 2), (40, 2), (60, 1), (60, 3), (60, 9), (90, 4), (110, 5)],
)
def test_the_chance_is_that_of_the_turns_to_come(turns: int, unmet: int) -> None:
    told = chance_to_lose(group(turns, unmet), Wanted())
    assert told == pytest.approx(exact_chance(turns, unmet), abs=1e-9)


def test_with_enough_turns_nothing_is_in_doubt() -> None:
    assert chance_to_lose(group(ENOUGH_TURNS, 6), Wanted()) == 0.0
    assert chance_to_lose(group(ENOUGH_TURNS, 7), Wanted()) == 1.0
    assert ruling_on({"g": group(ENOUGH_TURNS, 7)}, {"g": Wanted()}).doubt == 0.0


def test_doubt_falls_as_turns_come_and_rises_near_the_target() -> None:
    def doubt(turns: int, unmet: int) -> float:
        return ruling_on({"g": group(turns, unmet)}, {"g": Wanted()}).doubt

    assert doubt(20, 0) > doubt(60, 0) > doubt(100, 0)
    assert doubt(60, 3) > LIKELY > SURE > doubt(100, 0)
    assert doubt(60, 4) > doubt(60, 6) > doubt(60, 12)
    assert doubt(20, 15) < SURE, "a size far beyond the edge needs no second look"


def test_one_lost_group_without_doubt_is_enough() -> None:
    targets = {"a": Wanted(), "b": Wanted()}
    sure, close = group(60, 30, name="a"), group(60, 3, name="b")
    said = ruling_on({"a": sure, "b": close}, targets)
    assert (said.passes, said.judged) == (False, True)
    assert said.doubt < SURE
    assert ruling_on({"a": group(60, 0, name="a"), "b": close}, targets).doubt > LIKELY


def test_of_several_lost_groups_the_surest_counts() -> None:
    targets = {"a": Wanted(), "b": Wanted()}
    sure, close = group(60, 30, name="a"), group(60, 5, name="b")
    assert ruling_on({"a": close, "b": close}, targets).doubt > SURE
    assert ruling_on({"a": sure, "b": close}, targets).doubt < SURE
    thin = group(5, 5, name="b")
    assert ruling_on({"a": sure, "b": thin}, targets).judged
    assert not ruling_on({"b": thin}, {"b": Wanted()}).judged


def test_doubts_about_several_groups_add_up() -> None:
    one = ruling_on({"a": group(80, 2)}, {"a": Wanted()}).doubt
    both = ruling_on(
        {"a": group(80, 2), "b": group(80, 2)}, {"a": Wanted(), "b": Wanted()}
    ).doubt  # fmt: skip
    assert 0 < one < 0.5
    assert both == pytest.approx(2 * one)


def test_few_turns_well_inside_leave_no_doubt_but_are_no_verdict() -> None:
    said = ruling_on({"g": group(6, 0, used_p95=0.4)}, {"g": Wanted()})
    assert (said.passes, said.doubt, said.judged) == (True, 0.0, False)
    assert ruling_on({"g": group(6, 0, used_p95=0.9)}, {"g": Wanted()}).doubt > SURE


def test_who_has_no_target_is_not_waited_for() -> None:
    said = ruling_on({"g": group(60, 0), "free": group(0, 0, name="free")},
                     {"g": Wanted(), "free": None})  # fmt: skip
    assert said.judged


def test_seconds_to_judge() -> None:
    """A group with a quarter of its turns needs three times as long again, and a little more."""
    targets = {"g": Wanted()}
    assert seconds_to_judge({"g": group(5, 0)}, targets, 1000.0) == pytest.approx(3750.0)
    assert seconds_to_judge({"g": group(0, 0)}, targets, 1000.0) == 1000.0
    assert seconds_to_judge({"g": group(20, 0)}, targets, 1000.0) == 0.0


def test_a_pass_waits_for_the_rarest_group_and_a_failure_for_the_one_that_shows_it_first() -> None:
    targets = {"often": Wanted(), "rare": Wanted()}

    def needed_s(*unmet: int) -> float:
        groups = {
            "often": group(10, unmet[0], name="often"),
            "rare": group(5, unmet[1], name="rare"),
        }
        return seconds_to_judge(groups, targets, 1000.0)

    assert needed_s(0, 0) == pytest.approx(3750.0)
    assert needed_s(10, 5) == pytest.approx(1250.0)
    assert needed_s(0, 5) == pytest.approx(3750.0)
