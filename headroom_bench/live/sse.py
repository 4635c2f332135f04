"""Server-sent events out of stamped pieces of a body, by the WHATWG rules.

Lines end with LF, CR LF or CR; an event may be split over or merged in pieces; `:` comments are
skipped; several `data` lines make one event. An event's stamp is that of the piece that ended it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_BOM = b"\xef\xbb\xbf"
_QUIET = 200
"""Pieces and lines without an event after which the reader may give way: some 0.1 ms of work."""
_QUIET_BYTES = 2**11
"""So much of a piece counts as one more: what was packed comes in large ones."""


class StreamEvent(NamedTuple):
    stamp_ns: int
    name: str
    """The `event` field, or `error` for the nonstandard `error:` line of older llama.cpp."""
    data: bytes


class _Lines:
    """Cuts pieces into lines without their ends, whatever these are and wherever pieces end."""

    __slots__ = ("_after_cr", "_begun", "_rest")

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # joined once: an endless line comes in many pieces
        self._after_cr = False
        self._begun = False

    @property
    def at_start(self) -> bool:
        """Whether the next byte begins a line."""
        return not self._rest and not self._after_cr

    def feed(self, original: bytes) -> list[bytes]:
        """The lines that this piece completes."""
        piece = original
        if self._after_cr and piece.startswith(b"\n"):  # a CR LF cut in two
            piece = piece[1:]
        self._after_cr = original.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            if piece:
                self._rest.append(piece)
            return []
        self._rest.append(piece)
        *lines, rest = b"".join(self._rest).split(b"\n")
        self._rest = [rest] if rest else []
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(_BOM)
        return lines

    def finish(self) -> list[bytes]:
        """An unfinished last line."""
        whole = b"".join(self._rest)
        rest = whole if self._begun else whole.removeprefix(_BOM)
        return [rest] if rest else []


Take = Callable[[tuple[int, bytes], Iterator[tuple[int, bytes]]], tuple[int, bytes] | None]


def _take_none(first: tuple[int, bytes], _: Iterator[tuple[int, bytes]]) -> tuple[int, bytes]:
    return first


def stream_events(
    pieces: Iterable[tuple[int, bytes]], take: Take = _take_none
) -> Iterator[StreamEvent | None]:
    """The events of a body, given as pieces with the stamps of their arrival; None now and then
    where much comes without an event, so that the reader can give way to others.

    `take` is given each piece with which an event may begin, and those after it. It reads as many
    of them as are whole events that it knows, and gives back the first that is not; None where it
    has read enough for now, or all. An event that the body's end cut off before its blank line
    counts too: what matters is what the server said, and a cut JSON text is told apart when it is
    parsed.
    """
    lines, event = _Lines(), _Pending()
    stamp_ns = quiet = 0
    between = True
    pieces = iter(pieces)
    for piece_read in pieces:
        stamped = take(piece_read, pieces) if between else piece_read
        quiet += 1
        if stamped is None or quiet > _QUIET:
            quiet = 0
            yield None
        if stamped is None:
            continue
        stamp_ns, piece = stamped
        quiet += len(piece) // _QUIET_BYTES
        for line in lines.feed(piece):
            quiet += 1
            if ready := event.add(line):
                quiet = 0
                yield StreamEvent(stamp_ns, *ready)
            elif quiet > _QUIET:
                quiet = 0
                yield None
        between = lines.at_start and event.empty
    for line in [*lines.finish(), b""]:
        if ready := event.add(line):
            yield StreamEvent(stamp_ns, *ready)


class _Pending:
    """The event whose lines are coming in."""

    __slots__ = ("data", "name")

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.name = ""

    @property
    def empty(self) -> bool:
        return not self.data and not self.name

    def add(self, line: bytes) -> tuple[str, bytes] | None:
        """Takes a line; a blank one ends the event, and its name and data are given back."""
        if not line:
            ready = (self.name, b"\n".join(self.data)) if self.data else None
            self.data, self.name = [], ""
            return ready
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self.data.append(value)
        elif field == b"event":
            self.name = value.decode("utf-8", "replace")
        elif field == b"error":
            self.name = "error"
            self.data.append(value)
        return None
