"""What we write to stdout and stderr, where nobody may read it, or it may not fit.

A reader that has seen enough (`| head`), a full disk, a terminal of ASCII only or without a width,
no stdout at all: none of them is a reason to end a measurement, or to call it a fault of ours.
"""

from __future__ import annotations

import errno
import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_LEAST_WIDTH = 8
"""Columns. In fewer, no word of ours can be read."""


def open_closed_streams() -> None:
    """Puts the null device where a standard stream was closed before we began (`>&-`): the next
    file or socket opened would else be number 0, 1 or 2, and be taken for one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        if null != number:  # a file of the interpreter's own has it
            os.close(null)
            continue
        mode = "w" if number else "r"
        setattr(sys, name, os.fdopen(null, mode, encoding="utf-8", closefd=False))


def forget_useless_width() -> None:
    """Lets the terminal be asked, or a usual width hold, where the environment's holds no text."""
    width = os.environ.get("COLUMNS", "")
    if width.isdecimal() and int(width) < _LEAST_WIDTH:
        del os.environ["COLUMNS"]


class _Forgiving(io.FileIO):
    """A descriptor whose failures are remembered, not raised."""

    failure: OSError | None = None

    def write(self, data: ReadableBuffer) -> int:
        if self.failure is None:
            try:
                return super().write(data) or 0  # nothing yet: the buffer asks again
            except OSError as why:
                self.failure = why
        return memoryview(data).nbytes


class Output:
    """Our stdout and stderr; `install` puts them in place of the interpreter's."""

    def __init__(self) -> None:
        self._raw: dict[str, _Forgiving] = {}

    def install(self) -> None:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if not isinstance(stream, io.TextIOWrapper):
                continue  # closed, or someone else's
            if sys.platform == "win32":  # its consoles are no plain descriptors
                stream.reconfigure(errors="replace")
                continue
            stream.flush()
            raw = self._raw[name] = _Forgiving(stream.fileno(), "w", closefd=False)
            ours = io.TextIOWrapper(
                io.BufferedWriter(raw),
                encoding=stream.encoding,
                errors="replace",
                line_buffering=name == "stderr" or raw.isatty(),
            )
            setattr(sys, name, ours)

    def problem(self) -> str | None:
        """Why our answer did not get through; None where it did, or where its reader left."""
        for name in self._raw:
            getattr(sys, name).flush()
        why = self._raw["stdout"].failure if "stdout" in self._raw else None
        if why is None or why.errno == errno.EPIPE:
            return None
        return f"stdout cannot be written: {why.strerror}"
