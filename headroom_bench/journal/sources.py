"""Where journal lines come from. A source yields lines; so far it is a file that is followed.

Only lines that have their line end come out: a clipped number looks like a whole one.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from headroom_bench.errors import UserError
from headroom_bench.paths import typed_path

LONGEST_LINE_BYTES = 2**16
"""Of a longer one only so much is kept until its end comes: no line that tells of times is."""
_CHUNK = 1 << 16
_GUARD_BYTES = 256
_KIND = re.compile(r"([a-z][a-z-]+):(.*)", re.DOTALL)


def parse_source(text: str) -> Path:
    """The file that `text` names: `PATH` or `file:PATH`, with `~` expanded.

    Raises `UserError` for the kinds of source that are not supported, and for an empty path.
    """
    match = _KIND.fullmatch(text)
    if match and match[1] != "file":
        raise UserError(
            f"journal source {text!r} is not supported yet: "
            "give the path of the server's log file (PATH or file:PATH)"
        )
    path = match[2] if match else text
    if not path.strip():
        raise UserError(f"journal source {text!r} names no file")
    return typed_path(path)


def follow_file(
    path: str | Path, *, from_end: bool, stop: threading.Event, poll_s: float = 0.1
) -> Iterator[str]:
    """The file's whole lines as they are written, until `stop` is set and all of them are out.

    Blocks while nothing is written, looking again every `poll_s` seconds. A file that is
    truncated, or replaced by another of the same name, is read on from its beginning; the old
    one's last lines come first. While the name does not exist, the old file is followed on.

    Opens the file, and finds its end for `from_end`, at once: raises `UserError` when it is
    missing or unreadable, and later when a file that replaced it is.
    """
    file = _open(Path(path))
    if from_end:
        file.seek(0, os.SEEK_END)
    return _follow(Path(path), file, _Tape(file), stop, poll_s)


def _open(path: Path) -> BinaryIO:
    if path.exists() and not path.is_file():  # a pipe would keep us until somebody writes into it
        raise UserError(f"cannot read the journal {path}: it is no file; write it to one")
    try:
        return path.open("rb", buffering=0)
    except OSError as error:
        raise UserError(f"cannot read the journal {path}: {error.strerror}") from error


def _follow(
    path: Path, file: BinaryIO, tape: _Tape, stop: threading.Event, poll_s: float
) -> Iterator[str]:
    try:
        while True:
            # Asked before reading, so that the last round sees what was written before the stop.
            stopping = stop.is_set()
            yield from tape.lines()
            if _is_replaced(path, file):
                yield from tape.lines()  # written between the last read and the rename
                file.close()
                file = _open(path)
                tape = _Tape(file)
            elif stopping:
                return
            else:
                stop.wait(poll_s)
    finally:
        file.close()


def _is_replaced(path: Path, file: BinaryIO) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False  # between a rename and the new file


class _Tape:
    """Reads an unbuffered file on from where it stands, cut into whole lines."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._partial = b""
        position = file.tell()
        file.seek(max(position - _GUARD_BYTES, 0))
        self._guard = file.read(position - file.tell())
        """The bytes before the position: if they change, the file was written anew."""

    def lines(self) -> Iterator[str]:
        """The whole lines up to the present end of the file."""
        while chunk := self._next_chunk():
            *whole, rest = (self._partial + chunk).split(b"\n")
            self._partial = rest[:LONGEST_LINE_BYTES]
            for line in whole:
                yield line.removesuffix(b"\r").decode("utf-8", errors="replace")

    def _next_chunk(self) -> bytes:
        if not self._is_same():
            self._file.seek(0)
            self._partial = self._guard = b""
        chunk = self._file.read(_CHUNK)
        self._guard = (self._guard + chunk)[-_GUARD_BYTES:]
        return chunk

    def _is_same(self) -> bool:
        # The size alone would miss a file that was truncated and has already grown past us.
        position = self._file.tell()
        self._file.seek(position - len(self._guard))
        return self._file.read(len(self._guard)) == self._guard and self._size() >= position

    def _size(self) -> int:
        return os.fstat(self._file.fileno()).st_size
