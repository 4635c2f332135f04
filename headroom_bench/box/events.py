"""What goes into the box and what comes out of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

from headroom_bench.segments import Segment

made = tuple.__new__
"""`made(Event, (...))` makes a named tuple in half the time that `Event(...)` takes, which is a
function of Python. It must have every field, those with defaults too."""

EventKind = Literal[
    "admitted", "cached", "first_token", "tokens", "finished", "rejected", "cut", "preempted"
]

TOO_LONG = "exceed_context_size"
"""Reason of a rejection: the prompt does not fit into a sequence's context."""
QUEUE_FULL = "queue_full"
"""Reason of a rejection: as many requests as may wait are waiting."""
POOL_EXHAUSTED = "pool_exhausted"
"""Reason of a rejection: the memory that all sequences share ran out, which ends them all."""


class BoxRequest(NamedTuple):
    """One prompt and the length of the answer that it will get.

    A named tuple, for it is made in half the time of a frozen dataclass.
    """

    id: str
    """Unique among the requests that the box still remembers."""
    segments: tuple[Segment, ...]
    max_tokens: int
    """Tokens of the answer, unless the context fills up first. 0 acts as 1."""
    answer_id: str
    """`content_id` under which later prompts will quote the answer."""
    kind: str = "prose"
    """Kind of text of the answer, for the acceptance of drafted tokens: prose, tool_call, …"""
    greedy: bool = False
    """Temperature 0: equal prompts then give equal answers, and route in lockstep."""
    alone: bool = False
    """The server runs it with no other beside it (MLX: a seed, a draft model)."""


class Event(NamedTuple):
    """Something that happened to a request, at the end of a pass or while the box was idle.

    A named tuple, because the simulator makes several for each request.
    """

    kind: EventKind
    id: str
    at: float
    """Seconds, on the clock of the caller."""
    n: int
    """Tokens: of the prompt (admitted, rejected), found in memory (cached), dropped from the
    prompt (cut), new ones of the answer (first_token, tokens), of the answer so far (preempted), of
    the whole answer (finished). A request that was preempted is admitted again."""
    reason: str = ""
    """rejected: `TOO_LONG`, `QUEUE_FULL` or `POOL_EXHAUSTED`, the last perhaps after tokens came.
    finished: the outcome, "done" or "length"."""
