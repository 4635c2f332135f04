"""A shared radio as a fluid queue: all clients' frames wait in one line.

Between two changes its load is constant: frames a second, airtime of each. What is kept is one
line a change, so the cost grows with requests and not with frames. A frame waits for the backlog
(airtime offered beyond what there is), for its share of the frames that one pass of the server
sends together, and for what came by chance: M/D/1, rho D / (2 (1 - rho)).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
_NONE = np.zeros(())
_FORGOTTEN_AT_ONCE = 256
"""Stretches are forgotten in lots of at least so many."""


class Radio:
    """One medium's past. Times in seconds, ascending from call to call."""

    __slots__ = (
        "_at", "_backlog", "_backlogs", "_idle", "_means", "_slopes", "_starts", "offered_s",
    )  # fmt: skip

    def __init__(self) -> None:
        self.offered_s = 0.0
        """Airtime of all that it was given to carry."""
        self._at = 0.0
        self._backlog = 0.0  # seconds of airtime that wait at `_at`
        self._idle = True  # nothing came or waited in the last stretch
        # One stretch for each change: when it began, backlog then and how fast it grows, mean wait
        # beyond the backlog.
        self._starts = array("d", [0.0])
        self._backlogs = array("d", [0.0])
        self._slopes = array("d", [-1.0])
        self._means = array("d", [0.0])

    def carry(self, until: float, frames: float, airtime_s: float, together: float = 1.0) -> None:
        """Since the last call `frames` frames were offered, evenly spread up to `until`, each of
        `airtime_s`, `together` of them at a time. Nothing happens where no time has passed."""
        length = until - self._at
        if length <= 0:
            return
        idle = not frames and not self._backlog
        if idle and self._idle:  # the last stretch goes on
            self._at = until
            return
        self._idle = idle
        offered_s = frames * airtime_s
        load = offered_s / length
        mean = (together - 1.0) / 2 * airtime_s if frames and together > 1 else 0.0
        if frames and load < 1:
            # Towards a load of 1 the formula grows without limit; within a stretch no more can wait
            # than has come.
            mean += min(load * airtime_s / (2 * (1 - load)), offered_s / 2)
        self._starts.append(self._at)
        self._backlogs.append(self._backlog)
        self._slopes.append(load - 1.0)
        self._means.append(mean)
        left = self._backlog + offered_s - length
        self._backlog = left if left > 0 else 0.0
        self.offered_s += offered_s
        self._at = until

    def burst(self, airtime_s: float) -> float:
        """Frames of so much airtime come at once, now. Returns what they wait before them."""
        waits = self._backlog
        self._backlog += airtime_s
        self.offered_s += airtime_s
        return waits

    def waits(self, at: Times) -> Times:
        """How long frames that came at `at` waited. Shape (n,); moments up to the last `carry`."""
        if not len(at):
            return at
        starts = self._starts
        first = max(bisect_right(starts, float(at[0])) - 1, 0)
        second = first + 1
        if second == len(starts) or at[-1] < starts[second]:  # all within one stretch
            since = at - starts[first]
            backlog = self._backlogs[first] + self._slopes[first] * since
            return np.maximum(backlog, _NONE) + self._means[first]
        stretch = _view(starts, second).searchsorted(at, "right")
        waits: Times = at - _view(starts, first)[stretch]
        waits *= _view(self._slopes, first)[stretch]
        waits += _view(self._backlogs, first)[stretch]
        np.maximum(waits, _NONE, out=waits)
        waits += _view(self._means, first)[stretch]
        return waits

    def forget_before(self, at: float) -> None:
        """Nobody will ask about moments before `at`."""
        if len(self._starts) <= _FORGOTTEN_AT_ONCE:
            return
        first = bisect_right(self._starts, at) - 1
        if first > _FORGOTTEN_AT_ONCE:
            for kept in (self._starts, self._backlogs, self._slopes, self._means):
                del kept[:first]


def _view(values: array[float], first: int) -> Times:
    """The values from `first` on, not copied. It must be gone before the array may grow."""
    return np.frombuffer(values, np.float64, -1, values.itemsize * first)
