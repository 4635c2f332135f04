"""Server-sent events out of stamped pieces of a body, by the WHATWG rules.

Lines end with LF, CR LF or CR; an event may be split over or merged in pieces; `:` comments are
skipped; several `data` lines make one event. An event's stamp is that of the piece that ended it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    stamp_ns: int
    name: str
    """The `event` field, or `error` for the nonstandard `error:` line of older llama.cpp."""
    data: bytes


def stamped_lines(pieces: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Lines without their ends, each with the stamp of the piece that completed it.

    An unfinished last line is yielded too, with the last stamp.
    """
    rest, after_cr, stamp_ns, begun = b"", False, 0, False
    for stamp_ns, original in pieces:
        piece = original
        if after_cr and piece.startswith(b"\n"):  # a CR LF cut in two
            piece = piece[1:]
        after_cr = original.endswith(b"\r")
        if b"\r" in piece:
            piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if b"\n" not in piece:
            rest += piece
            continue
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield stamp_ns, line if begun else line.removeprefix(_BOM)
            begun = True
    if rest:
        yield stamp_ns, rest if begun else rest.removeprefix(_BOM)


def stream_events(pieces: Iterable[tuple[int, bytes]]) -> Iterator[StreamEvent]:
    """The events of a body. An event that the body's end cut off before its blank line counts:
    what matters is what the server said, and a cut JSON text is told apart when it is parsed."""
    data: list[bytes] = []
    name = ""
    stamp_ns = 0
    for stamp_ns, line in stamped_lines(pieces):
        if not line:
            if data:
                yield StreamEvent(stamp_ns, name, b"\n".join(data))
            data, name = [], ""
            continue
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"error":
            name = "error"
            data.append(value)
    if data:
        yield StreamEvent(stamp_ns, name, b"\n".join(data))
