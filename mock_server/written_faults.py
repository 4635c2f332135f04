"""Faults of how a stream's events are written."""

from __future__ import annotations

import copy
import zlib
from dataclasses import dataclass, field

from mock_server.faults import LEAD, Fault, Item, known, text_place


@known
@dataclass
class Tight(Fault):
    """`data:` without the blank after it."""

    name = "tight"
    reading = "parsed normally"
    start = b"data:"


@known
@dataclass
class CrLf(Fault):
    """Lines end with CR LF."""

    name = "crlf"
    reading = "parsed normally"
    end = b"\r\n\r\n"


@known
@dataclass
class Cr(Fault):
    """Lines end with CR alone."""

    name = "cr"
    reading = "parsed normally"
    end = b"\r\r"


@known
@dataclass
class EventLines(Fault):
    """An `event: message` line stands before each `data:` line."""

    name = "event-lines"
    reading = "parsed normally"
    start = b"event: message\ndata: "


@known
@dataclass
class DataLines(Fault):
    """Each event's JSON is spread over two `data:` lines."""

    name = "data-lines"
    reading = "the lines are one event, joined by a line end"

    def piece(self, item: Item) -> list[Item]:
        if item.raw.startswith(LEAD + b"{"):
            cut = item.raw.index(b",") + 1
            item.raw = item.raw[:cut] + b"\n" + LEAD + item.raw[cut:]
        return [item]


@known
@dataclass
class Comments(Fault):
    """Comment lines come after 0 and MS milliseconds, before the first event."""

    name = "comments"
    reading = "ignored: neither a first byte of the answer nor a token"
    ms: float = 30.0

    def opened(self) -> list[Item]:
        wait_s = self.ms / 1e3 / self.setting.time_scale
        return [Item(raw=b":\n\n"), Item(raw=b": keep-alive\n\n", wait_s=wait_s)]


@known
@dataclass
class EmptyData(Fault):
    """An event with an empty `data:` follows each event."""

    name = "empty-data"
    reading = "ignored"

    def event(self, item: Item) -> list[Item]:
        return [item, Item(raw=b"data:\n\n")]


@known
@dataclass
class Bom(Fault):
    """The body starts with a byte order mark."""

    name = "bom"
    reading = "skipped"
    begun: bool = field(default=False, init=False)

    def piece(self, item: Item) -> list[Item]:
        if not self.begun:
            self.begun = True
            item.raw = b"\xef\xbb\xbf" + item.raw
        return [item]


@known
@dataclass
class DoubleDone(Fault):
    """`[DONE]` comes twice."""

    name = "double-done"
    reading = "one success; the second mark is ignored"

    def event(self, item: Item) -> list[Item]:
        return [item, copy.copy(item)] if item.data == "[DONE]" else [item]


@known
@dataclass
class NoDone(Fault):
    """`[DONE]` does not come."""

    name = "no-done"
    reading = "a success: the finish reason says so"

    def event(self, item: Item) -> list[Item]:
        return [] if item.data == "[DONE]" else [item]


@known
@dataclass
class SplitUtf8(Fault):
    """Text has two-byte letters; each event is cut inside one, its rest sent MS later."""

    name = "split-utf8"
    reading = "text intact; the event's time is that of its last piece"
    ms: float = 10.0

    def event(self, item: Item) -> list[Item]:
        place = text_place(item)
        if place:
            place[0][place[1]] += "é"
        return [item]

    def piece(self, item: Item) -> list[Item]:
        at = item.raw.find("é".encode())
        if at < 0:
            return [item]
        first = Item(raw=item.raw[: at + 1], wait_s=item.wait_s)
        item.raw, item.wait_s = item.raw[at + 1 :], self.ms / 1e3 / self.setting.time_scale
        return [first, item]


@known
@dataclass
class OneByte(Fault):
    """Every byte is a write and an HTTP chunk of its own."""

    name = "one-byte"
    reading = "parsed normally; an event's time is that of its last byte"

    def piece(self, item: Item) -> list[Item]:
        *first, last = (item.raw[at : at + 1] for at in range(len(item.raw)))
        parts = [Item(raw=part) for part in first]
        return [*parts, Item(raw=last, tokens=item.tokens, then=item.then)]


@known
@dataclass
class OneWrite(Fault):
    """Silence, then every event in one write."""

    name = "one-write"
    reading = "decode rate unknown (marked as buffered), neither infinite nor 0 ms a token"
    held: bytes = field(default=b"", init=False)
    tokens: int = field(default=0, init=False)

    def piece(self, item: Item) -> list[Item]:
        self.held += item.raw
        self.tokens += item.tokens
        return []

    def closed(self) -> list[Item]:
        return [Item(raw=self.held, tokens=self.tokens)]


@known
@dataclass
class Gzip(Fault):
    """The body is gzipped, asked for or not."""

    name = "gzip"
    reading = "read, or refused as nonsense by name; never an empty success"

    def __post_init__(self) -> None:
        self.packer = zlib.compressobj(wbits=31)

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers | {"Content-Encoding": "gzip"}

    def piece(self, item: Item) -> list[Item]:
        item.raw = self.packer.compress(item.raw) + self.packer.flush(zlib.Z_SYNC_FLUSH)
        return [item]

    def closed(self) -> list[Item]:
        return [Item(raw=self.packer.flush(zlib.Z_FINISH))]
