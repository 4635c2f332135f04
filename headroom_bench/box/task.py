"""A request's life inside the box."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from headroom_bench.box.events import BoxRequest, made
from headroom_bench.segments import Segment

if TYPE_CHECKING:
    from headroom_bench.box.prefix_tree import Node, Piece
    from headroom_bench.box.slots import Slot

Outcome = Literal["done", "length", "cancelled", "rejected", "killed"]
"""length: the context was full before the answer was complete. killed: the pool ran out."""


class Served(NamedTuple):
    """How one request went. Times in seconds on the caller's clock, None where never reached.

    A named tuple, for it is made in a quarter of the time of a frozen dataclass.
    """

    id: str
    outcome: Outcome
    truncated: bool
    """The context was full before the answer was complete."""
    slot: int | None
    """Its slot, or its place in the batch where there are none."""
    submitted_at: float
    admitted_at: float | None
    prefill_at: float | None
    """Start of the first pass that read a piece of the prompt."""
    first_token_at: float | None
    finished_at: float
    """End of the last token's pass; for the cancelled and rejected, when that took effect."""
    prompt_tokens: int
    """Without those that were cut."""
    cached_tokens: int
    """Found in memory when it was first admitted."""
    generated: int
    cut_tokens: int = 0
    """Prompt tokens that the server dropped to make it fit."""
    drafted: int = 0
    accepted: int = 0
    """Of the drafted tokens."""
    preemptions: int = 0

    @property
    def queue_s(self) -> float | None:
        """Seconds from submission to a slot."""
        return None if self.admitted_at is None else self.admitted_at - self.submitted_at


@dataclass(slots=True, eq=False)
class Task:
    """The box's own, changing note about a request. Beats count passes that decode, from 1 on."""

    request: BoxRequest
    number: int
    """Submissions before this one."""
    segments: tuple[Segment, ...]
    """The prompt as it is read, perhaps cut."""
    prompt_tokens: int
    submitted_at: float
    wanted: int = 1
    """Tokens of the answer, as far as the context holds them."""
    truncated: bool = False
    """The context holds fewer than were asked for."""
    cut_tokens: int = 0
    order: int = -1
    """Admissions before this one."""
    seat: int | None = None
    admitted_at: float | None = None
    prefill_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    cached_tokens: int | None = None
    target: int = 0
    """Tokens to be in memory before the next token can be sampled."""
    start: int = 0
    """Tokens found in memory at this admission."""
    held: int = 0
    """While it is read: tokens in memory."""
    moved: int = 0
    """Tokens copied from or to host memory for its admission."""
    since: int = -1
    """While it decodes: the beat before its first one; below 0 else."""
    last_beat: int = 0
    """The beat that gives the last token."""
    shift: int = 0
    """While it decodes: its context before beat `b` is `b + shift`."""
    growing: bool = False
    """While it decodes: its context is still below the model's window."""
    times: array[float] = field(default_factory=lambda: array("d"))
    """Times of the tokens but those of the present stretch of decoding."""
    drafted: int = 0
    accepted: int = 0
    drafts: int = 0
    """Passes in which it drafted."""
    seed: int = 0
    preemptions: int = 0
    outcome: Outcome | None = None
    forgotten: bool = False
    """Nothing is to be kept when it is over."""
    slot: Slot | None = None
    path: list[Piece] | None = None
    """Paged: the prompt in the pieces by which the tree holds it."""
    node: Node | None = None
    base: Node | None = None
    """Paged: the deepest node of its path that the tree had as a whole."""
    depth: int = 0
    """Paged: how many of those the tree had as a whole."""
    pages: int = 0
    """Paged: pages of the shared tree at its start that it does not hold itself."""
    reserved: int = 0
    """Paged: pages of its own kept for what is still to come."""

    def served(self) -> Served:
        assert self.outcome is not None
        assert self.finished_at is not None
        return made(
            Served,
            (
                self.request.id,
                self.outcome,
                self.outcome == "length",
                self.seat,
                self.submitted_at,
                self.admitted_at,
                self.prefill_at,
                self.first_token_at,
                self.finished_at,
                self.prompt_tokens,
                self.cached_tokens or 0,
                len(self.times),
                self.cut_tokens,
                self.drafted,
                self.accepted,
                self.preemptions,
            ),
        )
