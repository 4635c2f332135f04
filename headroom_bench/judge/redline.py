"""The redline: the largest crowd that still passes.

Headroom's search: double the crowd until it fails, then bisect. Chance is part of every crowd, so a
size is probed with further seeds while its ruling is in doubt, which takes one far from the edge
and several near it; all trials of a size are judged together. Both ends of the bracket rest on
several seeds. Where one does not hold then, the search goes outward over the sizes that it knows,
each with as many seeds where it needs them, and narrows again, until both ends stay where they are.

Near the edge each further seed tells little. A search that has spent its effort narrows no further,
and its answer is the bracket that it has.
"""

from __future__ import annotations

import math
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
WIDEST = 0.5
"""So wide a bracket is narrowed whatever it costs."""
SURE = 0.05
"""Doubt below which an end of the bracket stands."""
LIKELY = 0.25
"""Doubt below which the search goes on from a size: a wrong turn costs some steps back."""
FOR_SEEDS = 0.7
"""What further seeds may take of a search's effort. The rest is left to narrow with."""


@dataclass(frozen=True, slots=True)
class Effort:
    """What a search may cost before it narrows no further, in the unit of its probes' cost."""

    least: float = math.inf
    small: int = 0
    """Beyond so many people it may cost more:"""
    probes: float = math.inf
    """so many times what its largest probe cost."""

    def of(self, size: int, cost: float) -> float:
        """Of a search whose largest `size` so far cost so much to probe once."""
        return self.least if size <= self.small else max(self.least, self.probes * cost)

    def times(self, factor: float) -> Effort:
        return Effort(self.least * factor, self.small, self.probes * factor)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where the search begins and ends, and how often it looks twice."""

    least: int
    most: int
    repeats: int
    """Trials (seeds) that each end of the bracket rests on, whatever they cost."""
    most_repeats: int
    """Trials of a size at most, while its ruling is in doubt."""
    most_to_judge: int = 0
    """Trials of an end at most, where more than `most_repeats`, while it is not judged."""
    effort: Effort = Effort()


@dataclass(frozen=True, slots=True)
class Bracket(Generic[T]):
    passes: int | None
    """Largest size that passes; None where even the least fails."""
    fails: int | None
    """Smallest size that fails; None where even the most passes."""
    trials: dict[int, list[T]]
    """Every probe, by size, in order of their repeats."""

    @property
    def narrow(self) -> bool:
        """Whether it was narrowed as far as it is ever."""
        return self.passes is None or self.fails is None or _narrow(self.passes, self.fails)


Ends = tuple[int | None, int | None]
"""A passing and a failing size."""


def find_redline(
    probe: Callable[[int, Sequence[T]], T],
    ruling: Callable[[Sequence[T]], Ruling],
    limits: Limits,
    cost: Callable[[T], float] = lambda _: 1.0,
) -> Bracket[T]:
    """Searches `probe(size, made)`, `made` being the trials of that size before it; `ruling` judges
    a size's trials, and `cost` is what one of them took of `limits.effort`.

    Raises ValueError for limits that hold no size.
    """
    if not 1 <= limits.least <= limits.most:
        raise ValueError(f"no size from {limits.least} to {limits.most}")
    return _Search(probe, ruling, limits, cost).found()


def _narrow(low: int, high: int) -> bool:
    return high - low <= max(1, int(FINE * low))


class _Search(Generic[T]):
    """The trials so far, and where they lead."""

    def __init__(
        self,
        probe: Callable[[int, Sequence[T]], T],
        ruling: Callable[[Sequence[T]], Ruling],
        limits: Limits,
        cost: Callable[[T], float],
    ) -> None:
        self._probe, self._ruling, self._limits, self._cost = probe, ruling, limits, cost
        self._trials: dict[int, list[T]] = {}
        self._spent = 0.0

    def found(self) -> Bracket[T]:
        least = self._limits.least
        passes = self._tried(least, 1).passes or self._passes(least)
        low, high = self._upward(least) if passes else (None, least)
        if low is not None and not self._passes(low):
            low, high = self._downward(low)
        low, high = self._narrowed(low, high)
        while (turned := self._turned(low, high)) is not None:
            # Its first seeds were too kind or too harsh, and so they were at the sizes beside it,
            # which are looked at with as many now. Each time one size at least has more of them
            # than before, so this ends.
            seeds = len(self._trials[turned])
            go = self._downward if turned == low else self._upward
            low, high = self._narrowed(*go(turned, seeds), seeds)
        return Bracket(low, high, self._trials)

    # --- one size -------------------------------------------------------------------------------

    def _tried(self, size: int, times: int) -> Ruling:
        made = self._trials.setdefault(size, [])
        while len(made) < times:
            made.append(self._probe(size, tuple(made)))
            self._spent += self._cost(made[-1])
        return self._ruling(made)

    def _passes(self, size: int, seeds: int = 1) -> bool:
        """Whether a size passes: surely, or likely by so many seeds, or by what can be afforded."""
        said, most = self._tried(size, 1), max(seeds, self._limits.most_repeats)
        while (made := len(self._trials[size])) < most:
            if said.doubt < (SURE if made < seeds else LIKELY):
                break
            if made >= min(seeds, self._limits.repeats) and not self._affords_seed(size):
                break
            said = self._tried(size, made + 1)
        return said.passes

    # --- the way --------------------------------------------------------------------------------

    def _upward(self, low: int, seeds: int = 1) -> Ends:
        """From a size that passes: over those that failed so far, then by doubling."""
        while low < self._limits.most:
            failed = [
                s for s in self._trials if s > low and not self._ruling(self._trials[s]).passes
            ]
            size = min(failed, default=min(2 * low, self._limits.most))
            # A pass in doubt is no matter yet, for the next size tells more.
            if not (self._tried(size, 1).passes or self._passes(size, seeds)):
                return low, size
            low = size
        return low, None

    def _downward(self, high: int, seeds: int = 1) -> Ends:
        """From a size that fails: over those that passed so far."""
        while high > self._limits.least:
            passed = [s for s in self._trials if s < high and self._ruling(self._trials[s]).passes]
            size = max(passed, default=self._limits.least)
            if self._passes(size, seeds):
                return size, high
            high = size
        return None, high

    def _narrowed(self, low: int | None, high: int | None, seeds: int = 1) -> Ends:
        """By bisection, while both ends can be afforded afterwards."""
        while low is not None and high is not None and not _narrow(low, high):
            middle = (low + high) // 2
            dear = not self._affords(self._lacking(low) + self._lacking(middle))
            if dear and high - low <= WIDEST * low:
                break
            low, high = (middle, high) if self._passes(middle, seeds) else (low, middle)
        return low, high

    def _turned(self, low: int | None, high: int | None) -> int | None:
        """The end that does not hold once it rests on its seeds; None where both do."""
        while True:
            open_ends = []
            for end, passes in ((low, True), (high, False)):
                if end is not None:
                    said = self._tried(end, self._limits.repeats)
                    if said.passes != passes:
                        return end
                    if self._wants_more(end, said):
                        open_ends.append(end)
            if not open_ends:
                return None
            end = min(open_ends, key=lambda size: (len(self._trials[size]), size))
            self._tried(end, len(self._trials[end]) + 1)

    def _wants_more(self, end: int, said: Ruling) -> bool:
        made, limits = len(self._trials[end]), self._limits
        if not said.judged:
            return made < max(limits.most_repeats, limits.most_to_judge)
        return said.doubt >= SURE and made < limits.most_repeats and self._affords(self._worth(end))

    # --- what it costs --------------------------------------------------------------------------

    def _affords_seed(self, size: int) -> bool:
        return self._affords(self._worth(size), FOR_SEEDS)

    def _affords(self, cost: float, share: float = 1.0) -> bool:
        largest = max(self._trials)
        most = self._limits.effort.of(largest, self._cost(self._trials[largest][0]))
        return self._spent + cost <= share * most

    def _worth(self, size: int) -> float:
        """What one more trial of a size should cost: what its last did, or its share of what the
        largest one did."""
        if self._trials.get(size):
            return self._cost(self._trials[size][-1])
        largest = max(self._trials)
        return self._cost(self._trials[largest][0]) * size / largest

    def _lacking(self, size: int) -> float:
        """What the seeds cost that a size lacks to be an end."""
        made = len(self._trials.get(size, ()))
        return max(0, self._limits.repeats - made) * self._worth(size)
