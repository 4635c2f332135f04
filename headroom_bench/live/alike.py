"""Events that differ from an earlier one in their text and in numbers only, read without parsing.

Nearly every piece of a stream is one whole event of this kind: the same JSON before the text, the
same after it but for counters and times. Parsing each would be most of what a stream costs us.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any, Literal

Spoken = Literal["content", "reasoning"]

_CHANNELS: dict[str, Spoken] = {
    "content": "content",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
}
_NUMBERS = b"0123456789."
_PROBE = "\N{SYMBOL FOR SUBSTITUTE}"
"""Put in a text's place, to see where it comes out when the event is parsed."""
LONGEST_RUN = 100
"""Events read at one go, before others get their turn: less than 0.1 ms of work."""
Stamped = tuple[int, bytes]
"""When a piece of a body arrived, and the piece."""
TABLES = ("usage", "timings")
"""What events may carry beside their text, the latest of which counts."""


class Alike:
    """The pattern of one stream: learned from an event that was parsed, then matched."""

    __slots__ = ("_around", "_end", "_prefix", "_shape", "channel", "last", "tables")

    def __init__(self) -> None:
        self._prefix = b""
        self._end = b""
        """The latest end of an event that was found to be like the pattern's."""
        self._around = 0
        """Bytes of these two."""
        self._shape = b""
        """That end without its numbers."""
        self.channel: Spoken = "content"
        self.tables: tuple[str, ...] = ()
        """Which of `TABLES` such events carry."""
        self.last = b""
        """The latest event (its JSON and framing) that was read this way, until it is dropped."""

    def learn(self, data: bytes, parsed: dict[str, Any]) -> None:
        """Takes an event (its JSON, and what that says) as the pattern, whose only news was one
        text; where it is written in an unusual way, the old pattern stays."""
        choice = parsed["choices"][0]
        delta = choice["delta"]
        if b"\n" in data or parsed.get("error") is not None or "text" in choice:
            return
        if choice.get("token_ids") or choice.get("logprobs"):  # each is counted
            return
        if choice.get("finish_reason") is not None:  # the latest counts
            return
        for name, channel in _CHANNELS.items():
            text = delta.get(name)
            if isinstance(text, str) and text:
                written = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
                for key in (b'"%b":' % name.encode(), b'"%b": ' % name.encode()):
                    start = data.find(key + written) + len(key) + 1
                    if start > len(key) and self._take_pattern(
                        data, start, len(written) - 2, name, channel
                    ):
                        self.tables = tuple(t for t in TABLES if isinstance(parsed.get(t), dict))
                return

    def _take_pattern(
        self, data: bytes, start: int, length: int, name: str, channel: Spoken
    ) -> bool:
        prefix, end = b"data: " + data[:start], data[start + length :] + b"\n\n"
        shape = end.translate(None, _NUMBERS)
        known = (channel, prefix, shape) == (self.channel, self._prefix, self._shape)
        if not known and not _stands_there(data[:start], data[start + length :], name):
            return False
        self.channel, self._prefix, self._shape = channel, prefix, shape
        self._take_end(end)
        return True

    def take_run(
        self, first: Stamped, more: Iterator[Stamped], stamps_ns: list[int], texts: list[str]
    ) -> Stamped | None:
        """Reads pieces of a body as long as each is one event like the pattern, `first` being the
        first: adds their stamps and texts. Gives back the piece that is none, or has no text; None
        at the end, and after `LONGEST_RUN`. Numbers in an event's end are passed over."""
        prefix = self._prefix
        if not prefix:
            return first
        for stamped in islice(chain((first,), more), LONGEST_RUN):
            stamp_ns, piece = stamped
            text = piece.removeprefix(prefix).removesuffix(self._end)
            if len(text) != len(piece) - self._around:
                text = self._text_before_another_end(piece)
            shown = text.decode("utf-8", "replace")
            # An escape, another field, line ends and their kin: the parser knows.
            if not shown or "\\" in shown or '"' in shown or not shown.isprintable():
                return stamped
            self.last = piece
            stamps_ns.append(stamp_ns)
            texts.append(shown)
        return None

    def _text_before_another_end(self, piece: bytes) -> bytes:
        """The text, if the rest differs from the latest in numbers alone; it is the latest now."""
        if not piece.startswith(self._prefix):
            return b""
        start = len(self._prefix)
        text_end = piece.find(b'"', start)
        end = piece[text_end:]
        if end.translate(None, _NUMBERS) != self._shape:
            return b""
        self._take_end(end)
        return piece[start:text_end]

    def _take_end(self, end: bytes) -> None:
        self._end = end
        self._around = len(self._prefix) + len(end)

    @property
    def last_json(self) -> bytes:
        """The latest event that was read this way, without its framing."""
        return self.last[len(b"data: ") : -len(b"\n\n")]


def _stands_there(prefix: bytes, end: bytes, name: str) -> bool:
    """Whether what is written between these two is the delta's text, its last field, and nothing
    else's: not that of another object that looks the same."""
    probe = _PROBE.encode()
    if not end.startswith(b'"}') or probe in prefix or probe in end:
        return False
    try:
        read = json.loads(prefix + probe + end)["choices"][0]["delta"][name]
    except (ValueError, LookupError, TypeError):
        return False
    return bool(read == _PROBE)
