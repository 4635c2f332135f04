"""The end times of past passes, kept once for all the sequences that shared them.

A sequence that decodes gets one token a pass, so its token times are a run of pass end times:
nothing is written per token, and a run is copied only when a request ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable

TRIM_PASSES = 4096
"""Forget old passes in lots of at least this many, so that the shift costs little for each."""


class Timeline:
    """End times in seconds of the passes from number `_first` on."""

    __slots__ = ("_ends", "_first", "append")

    def __init__(self) -> None:
        self._first = 1
        self._ends = array("d")
        self.append: Callable[[array[float]], None] = self._ends.extend
        """Takes the next passes' end times."""

    def __len__(self) -> int:
        return len(self._ends)

    def run(self, first_pass: int, count: int) -> array[float]:
        """End times of `count` passes from number `first_pass` on. They must still be kept."""
        start = first_pass - self._first
        return self._ends[start : start + count]

    def forget_before(self, first_pass: int) -> None:
        """Nobody will ask for passes before `first_pass` again."""
        count = first_pass - self._first
        if count >= TRIM_PASSES:
            del self._ends[:count]
            self._first = first_pass
