"""What a server writes of its doings. Each dialect has a log of its own; this one says nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from mock_server.jobs import Job

Peer = tuple[str, int]
"""A client's address and port."""


class Lines(Protocol):
    """Where log text goes: a file, stderr, or a fault in between."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class Log:
    """Writes lines whole and when they happen, so that a reader can follow. A stream that breaks
    is given up. `clock` is seconds of the server's life.

    A dialect's log overrides the events that its server tells of.
    """

    every_s: float | None = None
    """Life seconds between two calls of `tick`."""

    def __init__(self, stream: Lines, clock: Callable[[], float]) -> None:
        self._stream: Lines | None = stream
        self._clock = clock
        self._lines: list[str] = []
        self._holding = False

    def hold(self) -> None:
        """Keep lines until `let_go`: what one pass says is written at once, for a write a line
        would make the pass late."""
        self._holding = True

    def let_go(self) -> None:
        self._holding = False
        self._flush()

    def write(self, line: str) -> None:
        self._lines.append(line + "\n")
        if not self._holding:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._stream is None or not lines:
            return
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk: serving goes on
            self._stream = None

    # --- the server ---------------------------------------------------------------------------

    def starting(self) -> None:
        """The process is there."""

    def ready(self, url: str) -> None:
        """The model is loaded."""

    def note(self, text: str) -> None:
        """Something that only a mock has to say."""
        self.write(f"mock: {text}")

    def stopping(self) -> None: ...

    def tick(self, running: int, waiting: int, /) -> None:
        """Called each `every_s`, with the requests in and before the box."""

    def queued(self, waiting: int, /) -> None:
        """So many requests wait now."""

    def passed(self, decoding: int, tokens: int, /) -> None:
        """A pass gave `decoding` sequences `tokens` tokens together."""

    def answered(self, peer: Peer, method: str, path: str, status: int, took_s: float, /) -> None:
        """An HTTP exchange is over. `took_s` is life time."""

    # --- one request --------------------------------------------------------------------------

    def seated(self, job: Job, /) -> None:
        """`job` was given a slot."""

    def reading(self, job: Job, spent_s: float, /) -> None:
        """A long prompt's progress: `job.processed` tokens were read in `spent_s`."""

    def sampled(self, job: Job, tok_s: float, tok_s_recent: float, /) -> None:
        """A long answer's progress."""

    def done(self, job: Job, graphs_reused: int, /) -> None:
        """The answer is complete."""

    def released(self, job: Job, /) -> None:
        """The slot is free again, with `job.held_tokens` left in it."""

    def cancelled(self, job: Job) -> None:
        """The asker hung up."""

    def failed(self, task: int, message: str) -> None:
        """A request got no answer."""
