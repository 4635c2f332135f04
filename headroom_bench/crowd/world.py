"""The seam between people and worlds: all that a persona can see or do."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from headroom_bench.segments import Segment


class Stopped(Exception):  # noqa: N818  (an end, not an error)
    """The world is closing. Thrown once into a persona; it must not await anything after it."""


@dataclass(frozen=True, slots=True)
class Device:
    """What must have arrived before the person sees or hears anything."""

    shows_reasoning: bool = True
    buffer_tokens: int = 1
    """Visible tokens needed before the device shows or says anything (speech: about 16)."""
    whole: bool = False
    """Shows only complete answers (e-ink)."""
    before_s: float = 0.0
    """Spent before the request is sent (speech recognition); counts towards the target."""
    after_s: float = 0.0
    """Spent after the tokens arrived (drawing, speech synthesis); counts towards the target."""


@dataclass(frozen=True, slots=True)
class Request:
    """One thing a person asks of a server."""

    request_id: str
    """`{persona}-{user}/c{conversation}/t{turn}/r{round}[.title]`, equal in every world."""
    conversation_id: str
    persona: str
    user: int
    turn: int
    round: int
    segments: tuple[Segment, ...]
    """The whole prompt; the newest segment absorbs the chat template's tokens."""
    max_tokens: int
    """Tokens to generate, hidden reasoning included."""
    reasoning_tokens: int = 0
    """How many of `max_tokens` are hidden reasoning, where the model reasons."""
    rounds: int = 1
    """Rounds of this turn by the persona's script; fewer are asked when one fails."""
    force_length: bool = False
    """Ask the server to ignore its end-of-sequence token, where the dialect can."""
    patience_s: float | None = None
    """Silence longer than this makes the person give up."""
    device: Device = Device()


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, as far as the person can tell. A failure is an answer too."""

    ok: bool
    end_s: float
    """When it was complete, on the world's clock."""
    first_visible_s: float | None = None
    """When the device first showed something, on the world's clock."""
    prompt_tokens: int | None = None
    """As the server counted them; None where it does not say."""
    visible_tokens: int | None = None
    """Tokens of the answer that will be sent again as history."""
    error_kind: str | None = None
    again_s: float | None = None
    """When the server may be asked again, as it said, on the world's clock."""


class World(Protocol):
    """Where personas live. Nothing else reaches them: no event loop, no socket, no clock."""

    @property
    def stopping(self) -> bool: ...

    def now(self) -> float:
        """Seconds since the run began, in life time."""
        ...

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Let life time pass. Raises `Stopped` when the world closes meanwhile."""
        ...

    def ask(self, request: Request) -> Awaitable[Answer]:
        """Send a request and wait for its end. Raises `Stopped` when nothing more may be asked."""
        ...

    def together(self, *coroutines: Coroutine[Any, Any, Any]) -> Awaitable[None]:
        """Run coroutines side by side until all have ended."""
        ...
