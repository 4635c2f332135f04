"""The redline: the largest crowd that still passes.

Headroom's search: double the crowd until it fails, then bisect. Chance is part of every crowd, so
both ends of the bracket are probed again with other seeds, and all trials of a size are judged
together. Where an end does not hold, the search goes on from there with every size probed until its
ruling is firm, which takes few trials far from the edge, until both ends rest on several seeds and
stay where they are.
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
    firm: bool
    """Further trials would hardly change it."""
    judged: bool = True
    """It rests on as many turns as a verdict needs."""


FINE = 0.02
"""The bracket is as narrow as one person, or as this share of the crowd where that is more."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the search begins and ends, and how often it looks twice."""

    least: int
    most: int
    repeats: int
    """Trials (seeds) that each end of the bracket rests on."""
    most_repeats: int
    """Trials of an end at most, while they do not make its ruling firm."""
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

    def firmly(size: int, times: int = 1) -> bool:
        said = tried(size, times)
        while not said.firm or not said.judged:
            most = limits.most_repeats
            if not said.judged:
                most = max(most, limits.most_to_judge)
            if len(trials[size]) >= most:
                break
            said = tried(size, len(trials[size]) + 1)
        return said.passes

    def holds(end: int | None, passes: bool) -> bool:
        return end is None or firmly(end, limits.repeats) == passes

    low, high = _bracket(lambda size: tried(size, 1).passes, limits.least, limits)
    while not (holds(low, True) and holds(high, False)):
        # Trials were too kind or too harsh. Each time one size at least has more of them than
        # before, so this ends.
        low, high = _bracket(firmly, low or limits.least, limits)
    return Bracket(low, high, trials)


def _bracket(
    passes: Callable[[int], bool], start: int, limits: Limits
) -> tuple[int | None, int | None]:
    """Largest passing and smallest failing size, by steps that double away from `start`, then by
    bisection."""
    low, high = (start, None) if passes(start) else (None, start)
    step = start if start == limits.least else 1
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
    assert low is not None
    assert high is not None
    while high - low > max(1, int(FINE * low)):
        middle = (low + high) // 2
        low, high = (middle, high) if passes(middle) else (low, middle)
    return low, high
