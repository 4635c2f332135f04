"""The one reader of the wall clock in a measured run."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

monotonic_ns = time.perf_counter_ns
"""Stamps of the measured path: monotonic nanoseconds."""


class RunClock:
    """Turns monotonic stamps into the run's clock: seconds of life time since the run began.

    `scale` is how many times faster than life the run is: sleeps are divided by it, everything
    reported is multiplied by it.
    """

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._zero_ns = monotonic_ns()
        self.began_unix_s = time.time()

    def start(self, at_s: float = 0.0) -> None:
        """Makes this moment `at_s` on the run's clock: its zero, or where a run is taken up."""
        self._zero_ns = monotonic_ns() - round(at_s / self.scale * 1e9)
        self.began_unix_s = time.time() - at_s / self.scale

    def at(self, stamp_ns: int) -> float:
        """A stamp on the run's clock, in seconds of life time."""
        return (stamp_ns - self._zero_ns) * 1e-9 * self.scale

    def all_at(self, stamps_ns: Sequence[int]) -> NDArray[np.float64]:
        """Many stamps on the run's clock."""
        after_ns = np.array(stamps_ns, dtype=np.int64) - self._zero_ns
        return after_ns.astype(np.float64) * 1e-9 * self.scale

    def now(self) -> float:
        return self.at(monotonic_ns())

    def wall_s(self, life_s: float) -> float:
        """How long a stretch of life time takes on the wall."""
        return life_s / self.scale
