"""Faults of how a stream breaks, stalls, or does not end."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import ClassVar

from mock_server.faults import LEAD, Fault, Item, Then, known


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
        return [Item(raw=LEAD + told[: len(told) // 2], then="end")]


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
