"""The verdict on a run, measured or predicted: failing, tight, right-sized or overkill.

Rules of the Headroom document: a box passes when in every group at least 95 % of turns meet their
target. It is tight when the slowest 5 % already use 80 % of what is allowed, or when every slot is
taken on a box that is more than 85 % busy. It is overkill when it is less than 25 % busy and
answers come well inside their targets. Busy alone decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headroom_bench.judge.turns import TargetLike, Turn
from headroom_bench.results.statistics import spread

Word = Literal["failing", "tight", "right-sized", "overkill", "not enough data", "no target"]

LEAST_TURNS = 20
"""Below this a share of 95 % cannot be told from 100 %."""
TIGHT_USED = 0.8
TIGHT_BUSY = 0.85
TIGHT_TAKEN = 0.5
"""Every slot counts as taken when all were, for more than half of the time."""
OVERKILL_BUSY = 0.25

_WORST_FIRST: tuple[Word, ...] = (
    "failing",
    "not enough data",
    "tight",
    "right-sized",
    "overkill",
)


@dataclass(frozen=True, slots=True)
class Load:
    """How hard the box worked; None where it is not known, and then its rules are not applied."""

    busy_share: float | None = None
    """Share of time with a pass in flight."""
    all_slots_share: float | None = None
    """Share of time with every slot taken."""
    preempted: int = 0
    """Answers that were stopped for want of memory, to be begun anew."""
    killed: int = 0
    """Answers that a cache which ran out ended."""
    one_pool: bool = False
    """Sequences share one pool of cache, so that who queues may wait for room in it."""
    radio_busy_shares: Mapping[str, float] = field(default_factory=dict)
    """By shared link: share of the time that it is on the air, above 1 where it falls behind."""
    slots: int | None = None
    """Requests that the server works on at a time."""


@dataclass(frozen=True, slots=True)
class GroupVerdict:
    persona: str
    word: Word
    turns: int
    met_share: float | None
    used_p95: float | None
    """What each of the slowest 5 % of turns used of its allowance at least."""

    def as_row(self) -> dict[str, Any]:
        return {
            "verdict": self.word,
            "turns": self.turns,
            "target_met_share": self.met_share,
            "used_p95": self.used_p95,
        }


def judge_group(
    persona: str, turns: Iterable[Turn], target: TargetLike | None, load: Load
) -> GroupVerdict:
    """The verdict on one persona's turns."""
    own = [turn for turn in turns if turn.persona == persona]
    if target is None:
        return GroupVerdict(persona, "no target", len(own), None, None)
    met = sum(1 for turn in own if turn.met) / len(own) if own else None
    used_p95 = _slowest(own)
    if met is None or len(own) < LEAST_TURNS:
        word: Word = "not enough data"
    elif met < target.share:
        word = "failing"
    else:
        word = _passing(used_p95, load)
    return GroupVerdict(persona, word, len(own), met, used_p95)


def _slowest(turns: list[Turn]) -> float | None:
    """What each of the slowest 5 % used at least; None where that was no answer at all.

    By rank, not interpolated: five unmet turns of a hundred are the slowest 5 %, and they were not
    well inside anything.
    """
    used = sorted(math.inf if turn.used is None else turn.used for turn in turns)
    if not used:
        return None
    least = used[-math.ceil(len(used) / 20)]
    return None if least == math.inf else least


def _passing(used_p95: float | None, load: Load) -> Word:
    busy, taken = load.busy_share, load.all_slots_share
    if used_p95 is None or used_p95 >= TIGHT_USED:
        return "tight"
    if busy is not None and busy > TIGHT_BUSY and taken is not None and taken > TIGHT_TAKEN:
        return "tight"
    if busy is not None and busy < OVERKILL_BUSY:
        return "overkill"
    return "right-sized"


def judge(
    turns: Iterable[Turn], targets: Mapping[str, TargetLike | None], load: Load
) -> tuple[Word, dict[str, GroupVerdict]]:
    """The verdict on a whole run (its worst group's) and on every persona."""
    known = list(turns)
    groups = {name: judge_group(name, known, target, load) for name, target in targets.items()}
    words = {group.word for group in groups.values()}
    for word in _WORST_FIRST:
        if word in words:
            return word, groups
    return "no target", groups


def misses(group: GroupVerdict, target: TargetLike | None) -> float:
    """How far a group is below its target, in standard errors of a share of so many turns.

    Negative where it is above. 0 without turns or without a target.
    """
    if target is None or group.met_share is None:
        return 0.0
    spread_of_one = max(target.share * (1 - target.share), 1 / LEAST_TURNS**2)
    return (target.share - group.met_share) / math.sqrt(spread_of_one / group.turns)


def is_lost(group: GroupVerdict, target: TargetLike | None) -> bool:
    """Whether a group fails, or would even if all turns that it lacks for a verdict were met."""
    if target is None or group.met_share is None:
        return False
    return turns_unmet(group) > turns_allowed(group.turns, target)


def turns_unmet(group: GroupVerdict) -> int:
    """How many of a group's turns missed their target."""
    return 0 if group.met_share is None else round((1 - group.met_share) * group.turns)


def turns_allowed(turns: int, target: TargetLike) -> float:
    """How many turns of so many, or of a verdict's least, may miss."""
    return (1 - target.share) * max(turns, LEAST_TURNS) + 1e-9


def turn_figures(turns: Iterable[Turn], persona: str) -> dict[str, Any]:
    """`turn_s` and `rounds_per_turn` of a persona."""
    own = [turn for turn in turns if turn.persona == persona]
    rounds = sum(turn.rounds for turn in own)
    return {
        "turn_s": spread(turn.wait_s for turn in own),
        "rounds_per_turn": rounds / len(own) if own else None,
    }
