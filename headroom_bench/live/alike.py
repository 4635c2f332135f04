"""Events that differ from an earlier one in their text only, read without parsing the rest.

Nearly every piece of a stream is one whole event of this kind: the same JSON before the text, an
end that says nothing new after it. Parsing each would be most of what a stream costs us.
"""

from __future__ import annotations

import json
from typing import Any, Literal

Spoken = Literal["content", "reasoning"]

_CHANNELS: dict[str, Spoken] = {
    "content": "content",
    "reasoning_content": "reasoning",
    "reasoning": "reasoning",
}


class Alike:
    """The pattern of one stream: learned from an event that was parsed, then matched."""

    __slots__ = ("_end", "_prefix", "_start", "channel", "last")

    def __init__(self) -> None:
        self._prefix = b""
        self._start = 0
        self._end = b""
        """The latest end of an event that was found to say nothing new."""
        self.channel: Spoken = "content"
        self.last = b""
        """The latest event (its JSON) that was read this way."""

    def learn(self, data: bytes, delta: dict[str, Any]) -> None:
        """Takes an event (its JSON, and the delta in it) as the pattern, whose only news was one
        text; where the JSON is written in an unusual way, the old pattern stays."""
        for name, channel in _CHANNELS.items():
            text = delta.get(name)
            if isinstance(text, str) and text:
                written = json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")
                for key in (b'"%b":' % name.encode(), b'"%b": ' % name.encode()):
                    start = data.find(key + written) + len(key) + 1
                    if start > len(key):
                        self._take_pattern(data, start, len(written) - 2, channel)
                return

    def _take_pattern(self, data: bytes, start: int, length: int, channel: Spoken) -> None:
        self.channel = channel
        self._prefix = b"data: " + data[:start]
        self._start = len(self._prefix)
        self._end = data[start + length :] + b"\n\n"

    def text_of(self, piece: bytes) -> str | None:
        """The text of a piece of a body that is one event like the pattern; None for anything
        else, and for an empty text. Running counts in the event's end are passed over."""
        prefix = self._prefix
        if not prefix or not piece.startswith(prefix):
            return None
        start = self._start
        end = piece.find(b'"', start)
        text = piece[start:end]
        if end <= start or b"\\" in text:
            return None
        rest = piece[end:]
        if rest != self._end:
            if not _says_nothing_new(rest):
                return None
            self._end = rest
        self.last = piece
        return text.decode("utf-8", "replace")

    @property
    def last_json(self) -> bytes:
        """The latest event that was read this way, without its framing."""
        return self.last[6:-2]


def _says_nothing_new(rest: bytes) -> bool:
    """Whether what follows a text closes the delta and the event, and holds no reason to finish,
    no error, and no second event."""
    return (
        rest.startswith(b'"}')
        and rest.find(b"\n") == len(rest) - 2
        and rest.endswith(b"}\n\n")
        and b"\r" not in rest
        and b'"finish_reason":"' not in rest
        and b'"finish_reason": "' not in rest
        and b'"error"' not in rest
    )
