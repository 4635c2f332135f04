"""One request on its way through the mock, and where its outcome goes."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, Protocol

from headroom_bench.segments import Segment
from mock_server.answers import Answer, Piece

Outcome = Literal["", "done", "cancelled", "failed"]


class Reply(Protocol):
    """Where a request's outcome goes. Called at the end of the pass that brought it."""

    def admitted(self, job: Job, /) -> None: ...

    def read(self, job: Job, processed: int, /) -> None:
        """`processed` of the prompt's tokens are in the slot; only for who `wants_progress`."""
        ...

    def tokens(self, job: Job, new: int, /) -> None:
        """The newest `new` of the answer's `job.generated` tokens came just now."""
        ...

    def finished(self, job: Job, /) -> None: ...

    def failed(self, job: Job, message: str, /) -> None:
        """It never got a slot, or lost it."""
        ...


@dataclass(slots=True, eq=False)
class Job:
    """One request. Times ending in `_at` are box seconds, in `_ns` monotonic nanoseconds."""

    id: str
    segments: tuple[Segment, ...]
    prompt_tokens: int
    answer: Answer
    answer_id: str
    """The answer's content, as the next turn brings it back."""
    wanted_tokens: int
    """What was asked for; the context may hold less."""
    reply: Reply
    wants_progress: bool = False
    greedy: bool = False
    """Temperature 0."""
    alone: bool = False
    """The server runs it with no other beside it."""
    settings: dict[str, object] = field(default_factory=dict)
    """How it was asked for, as `/slots` tells it."""
    route: str = ""
    told_id: str = ""
    """The client's own name for it: the `X-Request-Id` header."""
    faults: tuple[str, ...] = ()
    cut_tokens: int = 0
    """Prompt tokens that the server threw away before reading."""
    arrived_ns: int = 0
    arrived_at: float = 0.0
    task: int = -1
    slot: int = -1
    admitted_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    slot_held: int = 0
    """Tokens of an older request that the slot held."""
    slot_used_us: int = -1
    """When the slot was last freed, in microseconds of the server's life."""
    cached: int = 0
    generated: int = 0
    processed: int = 0
    sampled_at: float = 0.0
    sampled_tokens: int = 0
    preemptions: int = 0
    drafted: int = 0
    accepted: int = 0
    truncated: bool = False
    gone: bool = False
    """The asker hung up."""
    outcome: Outcome = ""
    """Set when the box is done with it."""
    delivered: bool = False
    """Nothing more will be sent."""
    due_ns: array[int] = field(default_factory=lambda: array("q"))
    """When each token's pass was to end."""
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    """When each token's bytes were handed to the socket."""
    batch: array[int] = field(default_factory=lambda: array("i"))
    """How many sequences got a token in each token's pass."""

    @property
    def complete(self) -> bool:
        """The last token has come."""
        return self.generated >= self.answer.tokens

    @property
    def held_tokens(self) -> int:
        """Tokens in the slot's memory: the last one generated was never read."""
        return self.prompt_tokens + max(0, self.generated - 1)

    @property
    def read_tokens(self) -> int:
        """Prompt tokens that were evaluated."""
        return self.prompt_tokens - self.cached if self.generated else 0

    @property
    def prompt_s(self) -> float:
        return self.first_token_at - self.admitted_at if self.generated else 0.0

    @property
    def decode_s(self) -> float:
        return self.last_token_at - self.first_token_at

    @property
    def queue_s(self) -> float:
        return max(0.0, self.admitted_at - self.arrived_at)

    def accepted_by_pass(self) -> list[int]:
        """How many drafted tokens each pass gave, those after the first token's. Tokens of one pass
        share its end, and one of them was not drafted."""
        passes = Counter(self.due_ns)
        return [tokens - 1 for _, tokens in sorted(passes.items())[1:]]

    def newest(self, new: int) -> tuple[Piece, ...]:
        """What the newest `new` tokens show."""
        return self.answer.pieces[self.generated - new : self.generated]
