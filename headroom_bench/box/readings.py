"""What can be read off a box while it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SlotState = Literal["free", "prefill", "decode"]


@dataclass(slots=True)
class Usage:
    """Sums since the box was made, over the passes that are over."""

    busy_s: float = 0.0
    """Time with a pass in flight."""
    all_taken_s: float = 0.0
    """Time during which every slot was taken."""
    passes: int = 0
    decode_tokens: int = 0
    """One for each decoding sequence in each pass; an answer's first token is not among them."""
    prefill_tokens: int = 0
    """Prompt tokens that were read."""
    cached_tokens: int = 0
    """Prompt tokens that were found in the slot."""
    admitted: int = 0
    queue_s: float = 0.0
    """From submission to admission, summed over the admitted."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot, now. Counts are tokens."""

    index: int
    state: SlotState
    request_id: str | None
    task: int | None
    """Submissions before this request: llama.cpp's task number."""
    prompt_tokens: int
    cached_tokens: int
    processed_tokens: int
    """Prompt tokens read so far for this request, without the cached ones."""
    generated: int
    held_tokens: int
    """Tokens in the slot's memory: the request's, or when free what is left of the last one."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The box, now."""

    at: float
    slots: tuple[SlotView, ...]
    free: int
    queued: int
