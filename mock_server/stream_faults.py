"""Faults of a stream: what its events say, how they are written, and how it breaks."""

from __future__ import annotations

import copy
import json
import zlib
from dataclasses import dataclass, field
from typing import ClassVar

from mock_server.faults import (
    Fault,
    Item,
    Then,
    brings_token,
    choice_of,
    is_finish,
    known,
    text_place,
)

_LEAD = b"data: "


# --- what events say --------------------------------------------------------------------------


@known
@dataclass
class RoleFirst(Fault):
    """A role event with empty content comes at once, long before the first token."""

    name = "role-first"
    reading = "the first token counts, not the role; the first byte's time is kept apart"

    def opened(self) -> list[Item]:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        return [Item({"object": "chat.completion.chunk", "choices": [choice]})]


class _Renamed(Fault):
    """Moves the first tokens' text to another key."""

    key: ClassVar[str]
    left = 0

    def event(self, item: Item) -> list[Item]:
        delta, place = choice_of(item).get("delta"), text_place(item)
        if isinstance(delta, dict) and place and place[0] is delta and self.left:
            self.left -= 1
            delta[self.key] = delta.pop(place[1])
        return [item]


@known
@dataclass
class ReasoningContent(_Renamed):
    """The first TOKENS tokens come as `reasoning_content`."""

    name = "reasoning-content"
    reading = "they count as tokens and for the first one; visible text starts after them"
    key = "reasoning_content"
    tokens: int = 10

    def __post_init__(self) -> None:
        self.left = self.tokens


@known
@dataclass
class Reasoning(_Renamed):
    """The first TOKENS tokens come as `reasoning`."""

    name = "reasoning"
    reading = "as reasoning-content"
    key = "reasoning"
    tokens: int = 10

    def __post_init__(self) -> None:
        self.left = self.tokens


@known
@dataclass
class ReasoningOnly(_Renamed):
    """Every token comes as `reasoning_content`, none as content."""

    name = "reasoning-only"
    reading = "a success with a first token and no visible text; its time is unknown, not 0"
    key = "reasoning_content"
    left = 1 << 30


@known
@dataclass
class ToolOnly(Fault):
    """Every token comes as a piece of a tool call's arguments; the first brings id and name too."""

    name = "tool-only"
    reading = "the first piece is the first token; tokens are as many as usage says"
    begun: bool = field(default=False, init=False)

    def event(self, item: Item) -> list[Item]:
        delta, place = choice_of(item).get("delta"), text_place(item)
        if isinstance(delta, dict) and place and place[0] is delta:
            function: dict[str, str] = {"arguments": delta.pop(place[1])}
            call: dict[str, object] = {"index": 0, "function": function}
            if not self.begun:
                call |= {"id": "call_0", "type": "function", "function": {"name": "f"} | function}
            self.begun = True
            delta["tool_calls"] = [call]
        return [item]


@known
@dataclass
class Merge(Fault):
    """Each event holds TOKENS tokens, sent when the last of them is there."""

    name = "merge"
    reading = "tokens from usage; time per token and gap between events are two figures"
    tokens: int = 5
    held: list[Item] = field(default_factory=list, init=False)

    def event(self, item: Item) -> list[Item]:
        if not brings_token(item):
            return [*self._flushed(), item]
        if is_finish(item):  # vLLM's last token
            self.held.append(item)
            return self._flushed()
        self.held.append(item)
        full = sum(held.tokens for held in self.held) >= self.tokens
        return self._flushed() if full else []

    def ended(self) -> list[Item]:
        return self._flushed()

    def _flushed(self) -> list[Item]:
        held, self.held = self.held, []
        if not held:
            return []
        last = held[-1]
        place = text_place(last)
        if place is None:  # pieces of a tool call do not merge
            return held
        table, key = place
        others = [text_place(other) for other in held]
        same = [found for found in others if found is not None and found[1] == key]
        if len(same) != len(held):
            return held
        table[key] = "".join(str(found[0][found[1]]) for found in same)
        last.tokens = sum(other.tokens for other in held)
        return [last]


@known
@dataclass
class OneEvent(Merge):
    """Silence, then one event with the whole text."""

    name = "one-event"
    reading = "decode rate unknown (marked as buffered), neither infinite nor 0 ms a token"
    tokens: int = field(default=1 << 30, init=False)


@known
@dataclass
class LineSeparators(Fault):
    """U+2028 and U+0085 stand in the text as they are, not escaped."""

    name = "line-separators"
    reading = "text as sent: they do not end a line of an event stream"

    def event(self, item: Item) -> list[Item]:
        place = text_place(item)
        if place:
            place[0][place[1]] += "\u2028\u0085"
        return [item]


@known
@dataclass
class EmptyTokens(Fault):
    """Every third token has an empty text."""

    name = "empty-tokens"
    reading = "tokens from usage; an event without text is no first token"
    count: int = field(default=0, init=False)

    def event(self, item: Item) -> list[Item]:
        place = text_place(item)
        if place:
            self.count += 1
            if self.count % 3 == 0:
                place[0][place[1]] = ""
        return [item]


@known
@dataclass
class DoneInText(Fault):
    """The first token's text is `data: [DONE]`."""

    name = "done-in-text"
    reading = "it is text: the stream goes on"
    said: bool = field(default=False, init=False)

    def event(self, item: Item) -> list[Item]:
        place = text_place(item)
        if place and not self.said:
            self.said = True
            place[0][place[1]] = "data: [DONE]"
        return [item]


@known
@dataclass
class DeltaNull(Fault):
    """The finish event has `delta: null`."""

    name = "delta-null"
    reading = "the finish counts, nothing breaks"

    def event(self, item: Item) -> list[Item]:
        if is_finish(item) and not brings_token(item):
            choice_of(item)["delta"] = None
        return [item]


@known
@dataclass
class NoFinish(Fault):
    """No event has a finish reason; `[DONE]` comes all the same."""

    name = "no-finish"
    reading = "failed as truncated"

    def event(self, item: Item) -> list[Item]:
        if is_finish(item):
            choice_of(item)["finish_reason"] = None
        if isinstance(item.data, dict) and "done_reason" in item.data:
            item.data["done"] = False
            del item.data["done_reason"]
        return [item]


# --- usage ------------------------------------------------------------------------------------


@known
@dataclass
class NoUsage(Fault):
    """Neither usage nor timings come."""

    name = "no-usage"
    reading = "tokens are counted by events and marked as estimated"

    def event(self, item: Item) -> list[Item]:
        if not isinstance(item.data, dict):
            return [item]
        told = item.data.pop("usage", None)
        item.data.pop("timings", None)
        for key in ("prompt_eval_count", "eval_count"):
            item.data.pop(key, None)
        return [] if told is not None and item.data.get("choices") == [] else [item]


@known
@dataclass
class UsageInFinish(Fault):
    """Usage (and llama.cpp's timings) stand in the last choice's event, not in one of their own."""

    name = "usage-in-finish"
    reading = "used"
    held: Item | None = field(default=None, init=False)

    def event(self, item: Item) -> list[Item]:
        if is_finish(item):
            self.held = item
            return []
        if self.held is None:
            return [item]
        finish, self.held = self.held, None
        if isinstance(item.data, dict) and item.data.get("choices") == []:
            told = {key: item.data[key] for key in ("usage", "timings") if key in item.data}
            finish.data |= told
            return [finish]
        return [finish, item]

    def ended(self) -> list[Item]:
        return [self.held] if self.held else []


class _Usage(Fault):
    """Changes usage wherever it stands."""

    keeps_timings: ClassVar[bool] = False

    def event(self, item: Item) -> list[Item]:
        if isinstance(item.data, dict) and not self.keeps_timings:
            item.data.pop("timings", None)
        if isinstance(item.data, dict) and isinstance(item.data.get("usage"), dict):
            self.change(item.data)
        return [item]

    def change(self, data: dict[str, object]) -> None:
        raise NotImplementedError


@known
@dataclass
class UsageNullChoices(_Usage):
    """The usage event has `choices: null`."""

    name = "usage-null-choices"
    reading = "used"
    keeps_timings = True

    def change(self, data: dict[str, object]) -> None:
        if data.get("choices") == []:
            data["choices"] = None


@known
@dataclass
class UsageZero(_Usage):
    """Usage is there, all zeros; timings are not."""

    name = "usage-zero"
    reading = "treated as missing: counted by events and marked as estimated"

    def change(self, data: dict[str, object]) -> None:
        data["usage"] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


@known
@dataclass
class UsageHalf(_Usage):
    """Usage says half as many prompt tokens as were sent."""

    name = "usage-half"
    reading = "taken as told, with a warning that the prompt was cut"
    keeps_timings = True

    def change(self, data: dict[str, object]) -> None:
        told = data["usage"]
        assert isinstance(told, dict)
        told["prompt_tokens"] = int(told.get("prompt_tokens") or 0) // 2


@known
@dataclass
class UsageWords(_Usage):
    """Counts in usage are words (tabbyAPI's rates can be `Indeterminate`); no timings come."""

    name = "usage-words"
    reading = "treated as missing: counted by events and marked as estimated"

    def change(self, data: dict[str, object]) -> None:
        data["usage"] = {"prompt_tokens": "Indeterminate", "completion_tokens": "Indeterminate"}


# --- how events are written -------------------------------------------------------------------


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
        if item.raw.startswith(_LEAD + b"{"):
            cut = item.raw.index(b",") + 1
            item.raw = item.raw[:cut] + b"\n" + _LEAD + item.raw[cut:]
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


# --- how it breaks ----------------------------------------------------------------------------


class _Break(Fault):
    """Something goes wrong after some tokens; what would come then does not."""

    left = 0
    broken = False

    def event(self, item: Item) -> list[Item]:
        if self.broken:
            return []
        if item.tokens and self.left >= item.tokens:
            self.left -= item.tokens
            return [item]
        if not item.tokens and (self.left or not self.at_once):
            return [item]
        self.broken = True
        return self.breaking(item)

    def closed(self) -> list[Item]:
        """An answer that was too short for it breaks at its end."""
        return [] if self.broken else [Item(then="end")]

    at_once: ClassVar[bool] = False
    """It breaks right after the last token that is let through, not at the one after it."""

    def breaking(self, item: Item, /) -> list[Item]:
        """What is sent instead of `item`."""
        raise NotImplementedError


@known
@dataclass
class ErrorInStream(_Break):
    """After TOKENS tokens comes the dialect's error object in the stream, HTTP 200 or not."""

    name = "error-in-stream"
    reading = "failed, with the message; times and tokens so far are kept"
    tokens: int = 4

    def __post_init__(self) -> None:
        self.left = self.tokens

    def breaking(self, _: Item, /) -> list[Item]:
        error = Item(self.setting.error("the mock's engine broke down, as asked"))
        if not self.setting.done_after_error:
            error.then = "end"
            return [error]
        return [error, Item("[DONE]", then="end")]


@known
@dataclass
class ErrorField(_Break):
    """After TOKENS tokens comes an `error:` field (older llama.cpp), then `[DONE]`."""

    name = "error-field"
    reading = "failed, with the message"
    tokens: int = 0

    def __post_init__(self) -> None:
        self.left = self.tokens

    def breaking(self, _: Item, /) -> list[Item]:
        message = "the request exceeds the available context size, try increasing it"
        told = json.dumps({"code": 400, "message": message, "type": "invalid_request_error"})
        return [Item(raw=b"error: %b\n\n" % told.encode()), Item("[DONE]", then="end")]


class _After(_Break):
    then: ClassVar[Then]
    tokens: int

    def __post_init__(self) -> None:
        self.left = self.tokens

    def breaking(self, _: Item, /) -> list[Item]:
        return [Item(then=self.then)]


@known
@dataclass
class Cut(_After):
    """After TOKENS tokens the body ends as HTTP wants it, without finish or `[DONE]`."""

    name = "cut"
    reading = "failed as truncated; times and tokens so far are kept"
    then = "end"
    tokens: int = 4


@known
@dataclass
class Drop(_After):
    """After TOKENS tokens the connection closes without the body's last chunk."""

    name = "drop"
    reading = "failed as truncated; times and tokens so far are kept"
    then = "drop"
    tokens: int = 4


@known
@dataclass
class Reset(_After):
    """After TOKENS tokens the connection is reset."""

    name = "reset"
    reading = "failed as reset; times and tokens so far are kept"
    then = "reset"
    tokens: int = 4


@known
@dataclass
class HalfEvent(_Break):
    """After TOKENS tokens an event is cut in its middle, and the body ends as HTTP wants it."""

    name = "half-event"
    reading = "failed as truncated; the half event is no token"
    tokens: int = 4
    at_once = True

    def __post_init__(self) -> None:
        self.left = self.tokens

    def breaking(self, item: Item, /) -> list[Item]:
        told = json.dumps(item.data or {"choices": []}).encode()
        return [Item(raw=_LEAD + told[: len(told) // 2], then="end")]


@known
@dataclass
class RandomReset(_Break):
    """A SHARE of the requests is reset, each after a random number of tokens below 10."""

    name = "random-reset"
    reading = "those failed as reset, the others untouched"
    share: float = 0.1
    drawn: bool = field(default=False, init=False)

    def event(self, item: Item) -> list[Item]:
        if not self.drawn:
            self.drawn = True
            chance = self.chance()
            struck = chance.random() < self.share
            self.left = chance.randrange(10) if struck else 1 << 30
        return super().event(item)

    def breaking(self, _: Item, /) -> list[Item]:
        return [Item(then="reset")]


@known
@dataclass
class Stall(Fault):
    """After TOKENS tokens nothing comes for SECONDS; then what was held back comes at once."""

    name = "stall"
    reading = "a success with one long gap; a client that gives up says so and keeps what came"
    seconds: float = 5.0
    tokens: int = 4
    left: int = field(default=0, init=False)
    stalled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.left = self.tokens

    def event(self, item: Item) -> list[Item]:
        if item.tokens and not self.stalled:
            if self.left <= 0:
                self.stalled = True
                item.wait_s += self.seconds / self.setting.time_scale
            self.left -= item.tokens
        return [item]


@known
@dataclass
class NeverCloses(Fault):
    """Everything comes, `[DONE]` too, but the body stays open."""

    name = "never-closes"
    reading = "a success that ends at `[DONE]`; the connection is not used again"

    def closed(self) -> list[Item]:
        return [Item(then="hang")]
