"""The redline: the largest crowd that still passes.

Headroom's search: double the crowd until it fails, then bisect. Chance is part of every crowd, so a
size is probed with further seeds until its ruling is firm, which takes one far from the edge and
several near it; all trials of a size are judged together. Both ends of the bracket rest on several
seeds; where one does not hold then, the search goes on from there, until both stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the trials of one size say."""

    passes: bool
    doubt: float
    """The chance that further trials change it."""
    judged: bool = True
    """It rests on as many turns as a verdict needs."""


FINE = 0.04
"""The bracket is as narrow as one person, or as this share of the crowd where that is more."""
SURE = 0.05
"""Doubt below which an end of the bracket stands."""
LIKELY = 0.25
"""Doubt below which the search goes on from a size: a wrong turn costs some steps back."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the search begins and ends, and how often it looks twice."""

    least: int
    most: int
    repeats: int
    """Trials (seeds) that each end of the bracket rests on."""
    most_repeats: int
    """Trials of a size at most, while its ruling is in doubt."""
    most_to_judge: int = 0
    """Trials of an end at most, where more than `most_repeats`, while it is not judged."""


@dataclass(frozen=True, slots=True)
class Bracket(Generic[T]):
    passes: int | None
    """Largest size that passes; None where even the least fails."""
    fails: int | None
    """Smallest size that fails; None where even the most passes."""
    trials: dict[int, list[T]]
    """Every probe, by size, in order of their repeats."""


def find_redline(
    probe: Callable[[int, Sequence[T]], T],
    ruling: Callable[[Sequence[T]], Ruling],
    limits: Limits,
) -> Bracket[T]:
    """Searches `probe(size, made)`, `made` being the trials of that size before it; `ruling` judges
    a size's trials.

    Raises ValueError for limits that hold no size.
    """
    if not 1 <= limits.least <= limits.most:
        raise ValueError(f"no size from {limits.least} to {limits.most}")
    trials: dict[int, list[T]] = {}

    def tried(size: int, times: int) -> Ruling:
        made = trials.setdefault(size, [])
        while len(made) < times:
            made.append(probe(size, tuple(made)))
        return ruling(made)

    def looked(size: int, doubt: float, times: int = 1) -> bool:
        said = tried(size, times)
        while said.doubt >= doubt and len(trials[size]) < limits.most_repeats:
            said = tried(size, len(trials[size]) + 1)
        return said.passes

    def at_first(size: int) -> bool:
        # A pass in doubt is no matter yet, for the next size tells more. A failure ends the steps.
        return tried(size, 1).passes or looked(size, SURE)

    def likely(size: int) -> bool:
        return looked(size, LIKELY, seeds)

    def holds(end: int | None, passes: bool) -> bool:
        if end is None:
            return True
        said = tried(end, limits.repeats)
        while said.passes == passes and (said.doubt >= SURE or not said.judged):
            most = limits.most_repeats if said.judged else limits.most_to_judge
            if len(trials[end]) >= max(most, limits.most_repeats):
                break
            said = tried(end, len(trials[end]) + 1)
        return said.passes == passes

    seeds = 1
    low, high = _narrowed(likely, *_found(at_first, limits.least, limits.least, limits))
    while not (holds(low, True) and holds(high, False)):
        # The first seeds were too kind or too harsh, and so they were at the sizes beside it, which
        # are looked at with as many now. Each time one size at least has more of them than before,
        # so this ends.
        start = low or limits.least
        seeds = max(len(trials[end]) for end in (low, high) if end is not None)
        step = max(1, int(2 * FINE * start))
        low, high = _narrowed(likely, *_found(likely, start, step, limits))
    return Bracket(low, high, trials)


def _found(
    passes: Callable[[int], bool], start: int, step: int, limits: Limits
) -> tuple[int | None, int | None]:
    """A passing and a failing size, by steps away from `start` that double."""
    low, high = (start, None) if passes(start) else (None, start)
    while high is None and low is not None:
        if low == limits.most:
            return low, None
        size = min(low + step, limits.most)
        low, high = (size, None) if passes(size) else (low, size)
        step *= 2
    while low is None and high is not None:
        if high == limits.least:
            return None, high
        size = max(high - step, limits.least)
        low, high = (size, high) if passes(size) else (None, size)
        step *= 2
    return low, high


def _narrowed(
    passes: Callable[[int], bool], low: int | None, high: int | None
) -> tuple[int | None, int | None]:
    """The largest passing and the smallest failing size between two, by bisection."""
    if low is None or high is None:
        return low, high
    while high - low > max(1, int(FINE * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low, high
