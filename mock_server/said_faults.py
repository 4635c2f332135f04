"""Faults of what a stream's events say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from mock_server.faults import (
    Fault,
    Item,
    brings_token,
    choice_of,
    is_finish,
    known,
    text_place,
)


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
    reading = "tokens from usage, not from events with text"
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
