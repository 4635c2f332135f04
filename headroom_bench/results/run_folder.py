"""The folder of one run, written so that a kill at any moment leaves it readable."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import queue
import re
import threading
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import IO, Any, NamedTuple

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

import numpy as np
from numpy.typing import NDArray

from headroom_bench.errors import UserError
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord
from headroom_bench.redaction import redacted
from headroom_bench.results import token_times
from headroom_bench.results.rows import Row, encoded, line_of

SCHEMA_VERSION = 1
_AT_ONCE_BYTES = 2**18
"""Given to the operating system together, of files that are written at once."""
CLOSE_S = 30.0
"""Longest wait for a disk at the end."""


class RunFolder:
    """`results/<time>-<target>-<crowd>/`: creates it, and writes what is not on the hot path."""

    def __init__(self, path: Path, within: str = "") -> None:
        """`within`: the run id of the run that this is a repeat of."""
        self.path = path
        self.run_id = f"{within}/{path.name}" if within else path.name
        self.whole = path.parent if within else path
        """What is resumed: the series that this is a repeat of, or this itself."""
        self._lock: int | None = None

    def lock(self) -> None:
        """Holds the folder until `unlock`, or until this process ends, however it does.

        Raises:
            UserError: another process holds it.
        """
        if fcntl is None:
            return
        lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UserError(f"{self.path} is still being written by another process") from None
        except OSError:  # a network's file system may know no locks
            os.close(lock)
        else:
            self._lock = lock

    def unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @classmethod
    def create(cls, parent: Path, target: str, crowd: str, now: datetime) -> RunFolder:
        """A new folder below `parent`.

        Raises:
            UserError: the folder cannot be made.
        """
        stem = f"{now:%Y%m%d-%H%M%S}-{_slug(target)}-{_slug(crowd)}"
        for number in range(1, 1000):
            path = parent / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir(parents=True)
            except FileExistsError:
                continue
            except OSError as why:
                raise UserError(f"results folder {path} cannot be made: {why.strerror}") from None
            return cls(path)
        raise UserError(f"results folder {parent / stem} exists a thousand times over")

    @classmethod
    def try_below(cls, parent: Path) -> None:
        """Raises `UserError` where no folder can be made below `parent`; leaves none."""
        cls.create(parent, "trial", "trial", datetime.now()).path.rmdir()

    @classmethod
    def made(cls, path: Path, within: str = "") -> RunFolder:
        """The folder at `path` itself, made where it is not there. Raises `UserError`."""
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as why:
            raise UserError(f"results folder {path} cannot be made: {why.strerror}") from None
        return cls(path, within)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        self.write_json("manifest.json", {"schema_version": SCHEMA_VERSION, **manifest})

    def write_json(self, name: str, document: Mapping[str, Any]) -> None:
        """Replaces a file as a whole: a reader sees the old or the new one, never half."""
        path = self.path / name
        half = path.with_suffix(path.suffix + ".new")
        shown = redacted(document)
        text = json.dumps(shown, indent=1, ensure_ascii=False, allow_nan=False)
        try:
            half.write_bytes(encoded(text + "\n"))
            half.replace(path)
        except OSError as why:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)
            raise UserError(f"{path} cannot be written: {why.strerror}") from None

    def write_rows(self, name: str, rows: Iterable[Row]) -> None:
        """Replaces a JSON Lines file as a whole: a reader sees the old or the new one."""
        half, path = self.path / f"{name}.new", self.path / name
        try:
            self._write_rows(half, rows, "wb")
            half.replace(path)
        except OSError as why:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)
            raise UserError(f"{path} cannot be written: {why.strerror}") from None

    def append_rows(self, name: str, rows: Iterable[Row]) -> None:
        """Adds to a JSON Lines file."""
        path = self.path / name
        try:
            self._write_rows(path, rows, "ab")
        except OSError as why:
            raise UserError(f"{path} cannot be written: {why.strerror}") from None

    def write_token_times(self, times: Iterable[tuple[str, NDArray[np.float64]]]) -> None:
        """Writes `tokens.bin` at once: request ids and their event times, seconds."""
        path = self.path / "tokens.bin"
        try:
            with path.open("wb", _AT_ONCE_BYTES) as out:
                out.write(token_times.MAGIC)
                out.writelines(token_times.encode(name, values) for name, values in times)
        except OSError as why:
            raise UserError(f"{path} cannot be written: {why.strerror}") from None

    def _write_rows(self, path: Path, rows: Iterable[Row], mode: str) -> None:
        with path.open(mode, _AT_ONCE_BYTES) as out:
            out.writelines(map(line_of, rows))


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", text).strip("-.")[:60] or "unnamed"


class _Entry(NamedTuple):
    line: bytes
    times: bytes
    done: Future[None]
    queued_at_s: float


class RecordWriter:
    """Appends request records and event times through a thread, so that no disk wait is measured.

    Every record is handed to the operating system as soon as the thread gets to it: a kill -9 of
    this process loses only what was still queued.

    Raises:
        UserError: the files cannot be opened or written to.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder.path
        self._requests = _append(folder.path / "requests.jsonl")
        self._tokens = _append(folder.path / "tokens.bin")
        if self._tokens.tell() == 0:
            try:
                self._tokens.write(token_times.MAGIC)
                self._tokens.flush()
            except OSError as why:
                self._close_files()
                raise self._unwritable(why) from None
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self.worst_lag_s = 0.0
        """Longest that a record waited until it was with the operating system."""
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="record-writer", daemon=True)
        self._thread.start()

    def append(self, record: RequestRecord, event_times_s: Moments) -> Future[None]:
        """Queues a record; the future is done when it is with the operating system."""
        line = line_of(record)
        done: Future[None] = Future()
        times = token_times.encode(record.request_id, event_times_s)
        self._queue.put(_Entry(line, times, done, time.monotonic()))
        return done

    @property
    def failed(self) -> bool:
        """Whether something could not be written; nothing is written after that."""
        return self._failure is not None

    def _run(self) -> None:
        while (entry := self._queue.get()) is not None:
            try:
                self._write(entry)
            except OSError as why:
                self._failure = self._failure or why
                entry.done.set_exception(self._unwritable(why))
            else:
                entry.done.set_result(None)
            self.worst_lag_s = max(self.worst_lag_s, time.monotonic() - entry.queued_at_s)

    def _write(self, entry: _Entry) -> None:
        if self._failure is not None:  # after half a line another one would make both unreadable
            raise self._failure
        if not self._folder.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._requests.write(entry.line)
        self._requests.flush()
        self._tokens.write(entry.times)
        self._tokens.flush()

    def close(self) -> None:
        """Waits until everything is written, at most `CLOSE_S`.

        Raises:
            UserError: something could not be written (disk full, say).
        """
        self._queue.put(None)
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            raise UserError(f"results cannot be written: no answer from the disk in {CLOSE_S:g} s")
        unclosed = self._close_files()
        failure = self._failure or unclosed
        if failure is not None:
            raise self._unwritable(failure)

    def _close_files(self) -> OSError | None:
        """Closes both; tells what kept the last bytes from being written."""
        failure = None
        for handle in (self._requests, self._tokens):
            try:
                handle.close()
            except OSError as why:
                failure = failure or why
        return failure

    def _unwritable(self, why: OSError) -> UserError:
        if not self._folder.exists():  # removed or moved: what was written is lost, or not there
            return UserError(f"{self._folder} is gone: nothing more can be written there")
        told = f"{self._folder}: results cannot be written: {why.strerror}"
        return UserError(f"{told}; what stands there is kept, --resume goes on with it")


def _append(path: Path) -> IO[bytes]:
    try:
        return path.open("ab")
    except OSError as why:
        raise UserError(f"{path} cannot be written: {why.strerror}") from None
