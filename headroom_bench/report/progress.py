"""What goes on while a run is on, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headroom_bench.units import counted, in_words

_QUIET_EVERY_S = 10.0


@dataclass(slots=True)
class Tally:
    """Counts of a run so far."""

    requests: int = 0
    errors: int = 0
    completion_tokens: int = 0
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class Goal:
    """Where a run ends: after so many life seconds, so many requests, or whichever is first."""

    duration_s: float | None
    requests: int | None


class Progress:
    """One line that changes in place on a terminal; elsewhere a plain line now and then.

    `update` is cheap and called from the run's own loop.
    """

    def __init__(self, console: Console, goal: Goal, now_s: Callable[[], float]) -> None:
        self._console = console
        self._goal = goal
        self._now_s = now_s
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._last_plain = time.monotonic()

    def __enter__(self) -> Progress:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def update(self, tally: Tally) -> None:
        if self._console.is_terminal:
            self._live.update(Text(self._line(tally)), refresh=True)
        elif time.monotonic() - self._last_plain >= _QUIET_EVERY_S:
            self._last_plain = time.monotonic()
            self._console.print(self._line(tally), highlight=False)

    def _line(self, tally: Tally) -> str:
        goal = self._goal
        clock = in_words(self._now_s())
        if goal.duration_s is not None:
            clock += f" of {in_words(goal.duration_s)}"
        ended = counted(tally.requests, "request")
        if goal.requests is not None:
            ended = f"{tally.requests:,} of {counted(goal.requests, 'request')}"
        failed = f", {tally.errors:,} failed" if tally.errors else ""
        return (
            f"{clock}: {ended} ended{failed}, {tally.in_flight:,} in flight, "
            f"{counted(tally.completion_tokens, 'token')} generated"
        )
