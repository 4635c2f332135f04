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
    """Time during which as many sequences ran as may run at once."""
    passes: int = 0
    decode_tokens: int = 0
    """Tokens of answers; an answer's first token, and the first after a preemption, are not among
    them, for they come of reading."""
    prefill_tokens: int = 0
    """Prompt tokens that were read, again after a preemption too."""
    cached_tokens: int = 0
    """Prompt tokens that were found in memory, at every admission."""
    moved_tokens: int = 0
    """Tokens copied from or to host memory."""
    admitted: int = 0
    """Admissions, of the preempted again."""
    drafted: int = 0
    accepted: int = 0
    """Of the drafted tokens."""
    preempted: int = 0
    killed: int = 0
    """Requests that ended because the pool ran out."""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot, or one place in a batch without slots, now. Counts are tokens."""

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
    """By index. Without slots: the running requests only."""
    free: int
    """How many more could run, as far as their number goes."""
    queued: int
    memory_share: float | None = None
    """How much of the shared pool running requests use; None without one."""
