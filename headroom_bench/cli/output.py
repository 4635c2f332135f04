"""What we write to stdout and stderr, where nobody may read it, or it may not fit.

A reader that has seen enough (`| head`), a full disk, a terminal of ASCII only: none of them is a
reason to end a measurement, or to call it a fault of ours.
"""

from __future__ import annotations

import errno
import io
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


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
