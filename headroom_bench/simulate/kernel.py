"""Virtual time for plain coroutines: a heap of moments, and `send` when one has come.

A coroutine here awaits only `Wait` objects. Each tells the kernel what it waits for and is resumed
with a value (or a thrown `Stopped`) at the moment it came true.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from headroom_bench.crowd.world import Stopped

T = TypeVar("T")


class Wait(Generic[T]):
    """Something a coroutine waits for. `begin` is called once, with the process that waits."""

    __slots__ = ("begin",)

    def __init__(self, begin: Callable[[Process], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Wait[T], Any, T]:
        value: T = yield self
        return value


class Process:
    """A running coroutine."""

    __slots__ = ("_coroutine", "_on_end", "stopped")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        on_end: Callable[[Process], None] | None = None,
    ) -> None:
        self._coroutine = coroutine
        self._on_end = on_end
        self.stopped = False
        """It ended because the world stopped."""

    def resume(self, value: Any = None, error: Stopped | None = None) -> None:
        """Runs it to its next wait; an error is thrown into it."""
        try:
            wait = self._coroutine.throw(error) if error else self._coroutine.send(value)
        except StopIteration:
            self._end()
        except Stopped:
            self.stopped = True
            self._end()
        else:
            wait.begin(self)

    def stop(self) -> None:
        """Throws `Stopped` into it."""
        self.resume(error=Stopped())

    def _end(self) -> None:
        if self._on_end is not None:
            self._on_end(self)


class Kernel:
    """The clock and the agenda. Equal moments are served in the order in which they were set."""

    def __init__(self) -> None:
        self.now = 0.0
        self.next_at: float | None = None
        """The next moment; None when nothing is to come."""
        self._agenda: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = itertools.count()

    def at(self, moment: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Calls `action(argument)` at a moment, seconds; a past one is served next."""
        agenda = self._agenda
        heapq.heappush(agenda, (moment, next(self._order), action, argument))
        self.next_at = agenda[0][0]

    def serve_next(self) -> None:
        """Moves the clock to the next moment and does what is due there."""
        agenda = self._agenda
        moment, _, action, argument = heapq.heappop(agenda)
        self.next_at = agenda[0][0] if agenda else None
        if moment > self.now:
            self.now = moment
        action(argument)
