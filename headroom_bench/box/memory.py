"""What the box asks of a memory design, and the room that sequences share in those with a pool."""

from __future__ import annotations

from typing import Protocol

from headroom_bench.box.decoders import Decoders
from headroom_bench.box.drafters import Drafters
from headroom_bench.box.task import Task

Decoding = Decoders | Drafters


class Memory(Protocol):
    """Where sequences are kept. What running ones push out is settled before anything is looked up
    or given back, so that leaping and stepping leave the same behind."""

    def seat(self, task: Task) -> bool:
        """Give `task` a place, if there is one. Sets its `seat`, `start` (tokens that are there
        already; at least one is left to read) and `moved`."""
        ...

    def read(self, task: Task, tokens: int) -> None:
        """`tokens` more of its prompt are in memory."""
        ...

    def known(self, task: Task) -> None:
        """All of its prompt is; it is read no more, and will be added to those who decode."""
        ...

    def release(self, task: Task, generated: int, written: int, *, keep: bool) -> None:
        """`task` runs no more, and is out of the batch. It has `generated` tokens of answer, and
        `written` tokens of prompt and answer in memory, of no more use without `keep`."""
        ...

    def settle(self) -> None:
        """Let go of what the running sequences have taken the place of."""
        ...

    def fit(self, beat: int, reads: int, decodes: bool, most: int) -> int:
        """How many of `most` passes have room, of which the first reads `reads` tokens. With
        `decodes` they are the beats from `beat` on."""
        ...

    def idle(self) -> list[tuple[int, int]]:
        """Free places that still hold something: index and tokens."""
        ...

    def used_share(self) -> float | None:
        """How much of what can be shared is in use by running sequences; None without a pool."""
        ...


class TokenPool:
    """Room counted in tokens: what is read, what decodes, and what lies idle."""

    __slots__ = ("_decoders", "idle", "limit", "reading")

    def __init__(self, limit: int | None, decoders: Decoding) -> None:
        self.limit = limit
        self.reading = 0
        self.idle = 0
        self._decoders = decoders

    def used(self) -> int:
        """By running sequences."""
        return self.reading + self._decoders.kv_now()

    def excess(self) -> int:
        """Tokens too many, the idle ones counted."""
        return 0 if self.limit is None else self.used() + self.idle - self.limit

    def fit(self, beat: int, reads: int, decodes: bool, most: int) -> int:
        """As `Memory.fit`: idle tokens are in nobody's way."""
        if self.limit is None:
            return most
        left = self.limit - self.used() - reads
        ahead = beat - self._decoders.beat - 1  # beats planned and not yet over
        grow = self._decoders.pass_tokens() if decodes else 0
        if not grow:
            return most if left >= 0 else 0
        return min(max(left // grow - ahead, 0), most)

    def used_share(self) -> float | None:
        return None if self.limit is None else self.used() / self.limit
