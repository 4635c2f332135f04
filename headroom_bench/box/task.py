"""A request's life inside the box."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headroom_bench.box.events import BoxRequest

if TYPE_CHECKING:
    from headroom_bench.box.slots import Slot

Outcome = Literal["done", "length", "cancelled", "rejected"]
"""length: the slot's context was full before the answer was complete."""


@dataclass(frozen=True, slots=True)
class Served:
    """How one request went. Times in seconds on the caller's clock, None where never reached."""

    id: str
    outcome: Outcome
    truncated: bool
    """The context was full before the answer was complete."""
    slot: int | None
    submitted_at: float
    admitted_at: float | None
    prefill_at: float | None
    """Start of the first pass that read a piece of the prompt."""
    first_token_at: float | None
    finished_at: float
    """End of the last token's pass; for the cancelled and rejected, when that took effect."""
    prompt_tokens: int
    cached_tokens: int
    generated: int

    @property
    def queue_s(self) -> float | None:
        """Seconds from submission to a slot."""
        return None if self.admitted_at is None else self.admitted_at - self.submitted_at


@dataclass(slots=True, eq=False)
class Task:
    """The box's own, changing note about a request. Pass numbers count from 1 since the start."""

    request: BoxRequest
    number: int
    """Submissions before this one."""
    prompt_tokens: int
    submitted_at: float
    slot: Slot | None = None
    order: int = -1
    """Admissions before this one."""
    admitted_at: float | None = None
    prefill_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    cached_tokens: int = 0
    first_pass: int = 0
    """The pass that gave the first token, 0 before."""
    last_pass: int = 0
    """The pass that gives the last token."""
    shift: int = 0
    """While it decodes: its context before pass `p` is `p + shift`."""
    growing: bool = False
    """While it decodes: its context is still below the model's window."""
    generated: int = 0
    """Tokens of the answer, set when the request is over."""
    truncated: bool = False
    outcome: Outcome | None = None
    times: array[float] | None = None
    """The answer's token times, set when the request is over."""
    forgotten: bool = False
    """Nothing is to be kept when it is over."""

    def served(self) -> Served:
        assert self.outcome is not None
        assert self.finished_at is not None
        return Served(
            id=self.request.id,
            outcome=self.outcome,
            truncated=self.truncated,
            slot=None if self.slot is None else self.slot.index,
            submitted_at=self.submitted_at,
            admitted_at=self.admitted_at,
            prefill_at=self.prefill_at,
            first_token_at=self.first_token_at,
            finished_at=self.finished_at,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            generated=self.generated,
        )
