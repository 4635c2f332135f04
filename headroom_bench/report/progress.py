"""What goes on while a run is on, on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.text import Text

from headroom_bench.units import in_words

_QUIET_EVERY_S = 10.0


@dataclass(slots=True)
class Tally:
    """Counts of a run so far."""

    requests: int = 0
    errors: int = 0
    completion_tokens: int = 0
    in_flight: int = 0


class Progress:
    """One line that changes in place on a terminal; elsewhere a plain line now and then.

    `update` is cheap and called from the run's own loop.
    """

    def __init__(self, console: Console, goal: str, now_s: Callable[[], float]) -> None:
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
        failed = f", {tally.errors} failed" if tally.errors else ""
        return (
            f"{in_words(self._now_s())} of {self._goal}: {tally.requests} requests ended{failed}, "
            f"{tally.in_flight} in flight, {tally.completion_tokens:,} tokens generated"
        )
