"""What goes into the box and what comes out of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from headroom_bench.segments import Segment

EventKind = Literal[
    "admitted", "cached", "first_token", "tokens", "finished", "rejected", "cut", "preempted"
]

TOO_LONG = "exceed_context_size"
"""Reason of a rejection: the prompt does not fit into a slot's context."""


@dataclass(frozen=True, slots=True)
class BoxRequest:
    """One prompt and the length of the answer that it will get."""

    id: str
    """Unique among the requests that the box still remembers."""
    segments: tuple[Segment, ...]
    max_tokens: int
    """Tokens of the answer, unless the context fills up first. 0 acts as 1."""
    answer_id: str
    """`content_id` under which later prompts will quote the answer."""


class Event(NamedTuple):
    """Something that happened to a request, at the end of a pass or while the box was idle.

    A named tuple, because the simulator makes several for each request.
    """

    kind: EventKind
    id: str
    at: float
    """Seconds, on the clock of the caller."""
    n: int
    """Tokens: of the prompt (admitted, rejected), found in the slot (cached), new ones of the
    answer (first_token, tokens: 1), of the whole answer (finished)."""
    reason: str = ""
    """rejected: `TOO_LONG`. finished: the outcome, "done" or "length"."""
