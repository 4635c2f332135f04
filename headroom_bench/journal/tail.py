"""A journal followed in the background while a run goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from headroom_bench.errors import UserError
from headroom_bench.journal.llamacpp import Entry, LlamaCppParser
from headroom_bench.journal.sources import follow_file
from headroom_bench.records import JournalRecord, JournalSample

STOP_S = 5.0
"""Longest wait for the thread at the end."""


class JournalTail:
    """Follows a llama.cpp log file in a daemon thread from `start()` to `stop()`.

    `t_wall` of what it gives is the Unix time at which the line was read: late by up to `poll_s`.
    """

    def __init__(
        self,
        path: str | Path,
        source_name: str,
        *,
        from_end: bool = True,
        poll_s: float = 0.1,
    ) -> None:
        self._path = path
        self._from_end = from_end
        self._poll_s = poll_s
        self._parser = LlamaCppParser(source_name)
        self._records: list[JournalRecord] = []
        self._samples: list[JournalSample] = []
        self._done = 0
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._failure = _Failure()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Opens the file, marks its end, and follows from there on (or from its beginning).

        Raises `UserError` when the file is missing or unreadable.
        """
        if self._thread is not None:
            raise RuntimeError("this journal is already followed")
        lines = follow_file(
            self._path, from_end=self._from_end, stop=self._stop, poll_s=self._poll_s
        )
        self._thread = threading.Thread(
            target=self._run, args=(lines,), name="journal-tail", daemon=True
        )
        self._thread.start()

    def stop(
        self, *, expected: int | None = None, settle_s: float = 2.0
    ) -> tuple[list[JournalRecord], list[JournalSample]]:
        """Waits for the server's log to catch up, ends the thread, gives all that was collected.

        It waits until `expected` records with outcome 'done' have come, at most `settle_s`
        seconds (all of them without `expected`). Tasks still open come out as 'partial'. Where
        `failure` tells that something went wrong, it is what came before.
        """
        if self._thread is None:
            raise RuntimeError("this journal was not started")
        with self._changed:
            self._changed.wait_for(lambda: self._is_settled(expected), timeout=settle_s)
        self._stop.set()
        self._thread.join(STOP_S)  # a file system that does not answer keeps it; it is a daemon
        return list(self._records), list(self._samples)

    @property
    def failure(self) -> BaseException | None:
        """What ended the following before `stop`: `UserError` from the file."""
        return self._failure.error

    def _is_settled(self, expected: int | None) -> bool:
        enough = expected is not None and self._done >= expected
        return enough or self._failure.error is not None

    def _run(self, lines: Iterator[str]) -> None:
        with self._failure:
            for line in lines:
                self._keep(self._parser.feed(line, time.time()))
        if self.failure is None or isinstance(self.failure, UserError):  # not the parser's own
            self._keep(self._parser.close())
        with self._changed:
            self._changed.notify_all()

    def _keep(self, entries: list[Entry]) -> None:
        if not entries:
            return
        records = [entry for entry in entries if isinstance(entry, JournalRecord)]
        with self._changed:
            self._records += records
            self._samples += [entry for entry in entries if isinstance(entry, JournalSample)]
            self._done += sum(record.outcome == "done" for record in records)
            self._changed.notify_all()


class _Failure:
    """Keeps what went wrong in a thread until it can be told in another."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self.error = error
        return True
