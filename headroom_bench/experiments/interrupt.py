"""Ctrl-C: once ends the run and keeps what was measured, twice ends the program at once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from types import FrameType

from headroom_bench.errors import EXIT_INTERRUPTED

_SIGNALS = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class Interrupt:
    """Catches SIGINT, SIGTERM and a closed terminal's SIGHUP from `install` to `restore`.

    What must be ended is told through `on_first`; a signal that came before is told at once.
    """

    def __init__(self) -> None:
        self.happened = False
        self._on_first: Callable[[], None] | None = None
        self.on_second: Callable[[], None] | None = None
        """Called in the signal handler before the program ends: stops what we started."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._former: dict[signal.Signals, object] = {}

    def install(self) -> None:
        for number in _SIGNALS:
            self._former[number] = signal.signal(number, self._caught)

    def restore(self) -> None:
        for number, handler in self._former.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave us
        self._former.clear()

    def on_first(self, end: Callable[[], None]) -> None:
        """What ends the present phase; called in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._on_first = end
        if self.happened:
            end()

    def _caught(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.happened:
            if self.on_second is not None:
                self.on_second()
            os._exit(EXIT_INTERRUPTED)
        self.happened = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        if self._on_first is not None:
            self._on_first()
