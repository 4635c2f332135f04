"""What lost groups wanted, and where their time went."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from headroom_bench.judge.losses import DEVICE, losses
from headroom_bench.judge.turns import Turn
from headroom_bench.judge.verdict import Load, judge


@dataclass(frozen=True)
class Wanted:
    metric: Literal["ttft", "ttfv", "e2e"] = "ttfv"
    limit_s: float = 2.0
    min_tok_s: float | None = 5.0
    share: float = 0.95


def turns(persona: str, waits: list[float | None]) -> list[Turn]:
    return [
        Turn(
            persona, wait_s, 1, None if wait_s is None else wait_s / 2,
            wait_s is not None and wait_s <= 2, wait_s is None,
            {} if wait_s is None else {"prefill": wait_s / 2, "decode": wait_s / 4},
            "abandoned" if wait_s is None else None,
        )
        for wait_s in waits
    ]  # fmt: skip


def rows(own: list[Turn]) -> list[dict[str, object]]:
    targets = {turn.persona: Wanted() for turn in own}
    return losses(judge(own, targets, Load())[1], own, targets)


def test_only_lost_groups_are_told_the_worst_first() -> None:
    own = (
        turns("good", [1.0] * 30)
        + turns("poor", [1.0] * 15 + [3.0] * 15)
        + turns("worst", [3.0] * 30)
    )
    told = rows(own)
    assert [row["persona"] for row in told] == ["worst", "poor"]
    assert [row["target_met_share"] for row in told] == [0.0, 0.5]
    assert told[0]["target"] == {
        "metric": "ttfv", "limit_s": 2.0, "min_tok_s": 5.0, "share": 0.95
    }  # fmt: skip


def test_the_parts_make_up_the_wait() -> None:
    (row,) = rows(turns("poor", [2.0, 4.0] * 15 + [None] * 5))
    assert row["wait_s"] == pytest.approx(3.0), "who was not answered waited for nothing"
    spent = row["spent_s"]
    assert isinstance(spent, dict)
    assert spent == pytest.approx({"prefill": 1.5, "decode": 0.75, DEVICE: 0.75})
    assert sum(spent.values()) == pytest.approx(row["wait_s"])


def test_nobody_answered() -> None:
    (row,) = rows(turns("poor", [None] * 30))
    assert row["wait_s"] is None
    assert row["spent_s"] == {}
    assert row["failed_share"] == {"abandoned": 1.0}
