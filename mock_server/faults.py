"""Faults that real servers have, by name: `NAME[:ARGUMENT[:ARGUMENT]]`.

A fault is a small class: its docstring says what the mock does, `reading` what a client should make
of it, its fields are the arguments with their defaults. Stream faults work on the events of one
answer (`event`) and then on their bytes (`piece`); each stream has instances of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal

HEADER = "X-Mock-Fault"
"""Request header that adds faults to one request: names with arguments, separated by commas."""

LEAD = b"data: "
"""What stands before an event's JSON."""

Then = Literal["", "end", "drop", "reset", "hang"]


@dataclass(slots=True)
class Item:
    """Something to be sent: an event (`data`, JSON or `[DONE]`) or bytes as they are (`raw`)."""

    data: Any = None
    raw: bytes = b""
    tokens: int = 0
    """How many tokens it brings."""
    wait_s: float = 0.0
    """Wall seconds to wait before it."""
    then: Then = ""
    """After it: end the body well, close, reset, or say nothing more."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What a fault may know of the stream it works on."""

    time_scale: float = 1.0
    seed: str = ""
    error: Callable[[str], Any] = lambda message: {"error": {"message": message, "code": 500}}
    """The dialect's error object."""
    done_after_error: bool = True
    """Whether the dialect ends a failed stream with its end mark."""


@dataclass
class Fault:
    """One fault of one request."""

    name: ClassVar[str]
    reading: ClassVar[str]
    at_start_only: ClassVar[bool] = False
    """It is no matter of one request, so only `--fault` has it."""
    start: ClassVar[bytes] = b""
    """What stands before an event's JSON instead of the dialect's `data: `."""
    end: ClassVar[bytes] = b""
    """What stands after an event instead of its empty line."""

    setting: Setting = field(default=Setting(), init=False, repr=False)

    def opened(self) -> list[Item]:
        """What is sent right after the headers."""
        return []

    def event(self, item: Item) -> list[Item]:
        """What is sent instead of an event."""
        return [item]

    def ended(self) -> list[Item]:
        """Events that were held back until the last one."""
        return []

    def closed(self) -> list[Item]:
        """What is sent at the end of the body, after every event."""
        return []

    def piece(self, item: Item) -> list[Item]:
        """What is sent instead of a piece of bytes."""
        return [item]

    def headers(self, headers: dict[str, str]) -> dict[str, str]:
        return headers

    def chance(self) -> random.Random:
        """Random draws that are the same for the same request of the same server seed."""
        return random.Random(f"{self.setting.seed}/{self.name}")


CATALOG: dict[str, type[Fault]] = {}
"""Every fault by its name."""


def known(kind: type[Fault]) -> type[Fault]:
    """Enters a fault into the catalogue."""
    CATALOG[kind.name] = kind
    return kind


def arguments_of(kind: type[Fault]) -> list[tuple[str, Any]]:
    """Name and default of each argument."""
    return [(f.name, f.default) for f in fields(kind) if f.init and f.default is not MISSING]


# --- what an event says -----------------------------------------------------------------------


def choice_of(item: Item) -> dict[str, Any]:
    """The event's first choice; an empty one where it has none."""
    choices = item.data.get("choices") if isinstance(item.data, dict) else None
    return choices[0] if isinstance(choices, list) and choices else {}


def text_place(item: Item) -> tuple[dict[str, Any], str] | None:
    """The table and key that hold the text of a token, in any dialect."""
    if not isinstance(item.data, dict):
        return None
    choice = choice_of(item)
    delta, message = choice.get("delta"), item.data.get("message")
    for table in (delta, choice, message, item.data):
        if not isinstance(table, dict):
            continue
        for key in ("content", "reasoning_content", "reasoning", "thinking", "text", "response"):
            if isinstance(table.get(key), str) and table[key]:
                return table, key
    return None


def brings_token(item: Item) -> bool:
    delta = choice_of(item).get("delta")
    called = isinstance(delta, dict) and bool(delta.get("tool_calls"))
    return called or text_place(item) is not None


def is_finish(item: Item) -> bool:
    return bool(choice_of(item).get("finish_reason"))
