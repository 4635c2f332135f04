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

    __slots__ = ("_end", "_prefix", "_shape", "_start", "channel", "last", "tables")

    def __init__(self) -> None:
        self._prefix = b""
        self._start = 0
        self._end = b""
        """The latest end of an event that was found to be like the pattern's."""
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
                    if start > len(key):
                        self._take_pattern(data, start, len(written) - 2, name, channel)
                        self.tables = tuple(t for t in TABLES if isinstance(parsed.get(t), dict))
                return

    def _take_pattern(
        self, data: bytes, start: int, length: int, name: str, channel: Spoken
    ) -> None:
        prefix, end = data[:start], data[start + length :]
        known = channel == self.channel and prefix == self._prefix[len(b"data: ") :]
        if not known and not _stands_there(prefix, end, name):
            return
        self.channel = channel
        self._prefix = b"data: " + prefix
        self._start = len(self._prefix)
        self._end = end + b"\n\n"
        self._shape = self._end.translate(None, _NUMBERS)

    def take_run(
        self, first: Stamped, more: Iterator[Stamped], stamps_ns: list[int], texts: list[str]
    ) -> Stamped | None:
        """Reads pieces of a body as long as each is one event like the pattern, `first` being the
        first: adds their stamps and texts. Gives back the piece that is none, or has no text; None
        at the end, and after `LONGEST_RUN`. Numbers in an event's end are passed over."""
        prefix, start = self._prefix, self._start
        if not prefix:
            return first
        for stamped in islice(chain((first,), more), LONGEST_RUN):
            stamp_ns, piece = stamped
            if not piece.startswith(prefix):
                return stamped
            end = piece.find(b'"', start)
            text = piece[start:end]
            if end <= start or text.find(b"\\") >= 0:
                return stamped
            rest = piece[end:]
            if rest != self._end:
                if rest.translate(None, _NUMBERS) != self._shape:
                    return stamped
                self._end = rest
            shown = text.decode("utf-8", "replace")
            if not shown.isprintable():  # line ends and their kin: the parser knows
                return stamped
            self.last = piece
            stamps_ns.append(stamp_ns)
            texts.append(shown)
        return None

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
