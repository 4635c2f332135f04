"""The passes to come, as far as they have been priced.

Until somebody comes, goes or finishes, what each pass carries is known. The plan prices such
passes ahead, decode-only ones many at a time, up to the next turn: the pass at whose end somebody
gets a first or last token. When the batch changes before that, the rest of the plan is thrown away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box.decoders import Decoders
from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Chunk, Pricer

LEAP_PASSES = 1024
"""At most this many passes are priced at once, for an arrival may make them worthless."""
VECTOR_PASSES = 8
"""From this many on, NumPy is quicker than a loop."""

Read = tuple[Task, int]
"""Whose prompt, and how many tokens of it one pass reads."""


@dataclass(slots=True, eq=False)
class Block:
    """Passes that were priced together."""

    ends: list[float] | NDArray[np.float64]
    """End times, in seconds."""
    end: float
    """The last of them."""
    turn: bool
    """Whether something happens at `end`."""
    reads: list[Read]
    """What its pass reads; a block that reads has one pass."""
    taken: int = 0
    """Passes that are over."""

    def first_at_or_after(self, at: float) -> int:
        return bisect_left(self.ends, at, self.taken)

    def count_until(self, at: float) -> int:
        return bisect_right(self.ends, at, self.taken)


class Plan:
    """Blocks of passes from the present on."""

    __slots__ = (
        "_at",
        "_batch_tokens",
        "_decoders",
        "_head_tokens",
        "_leap",
        "_number",
        "_pricer",
        "_reading",
        "blocks",
    )

    def __init__(
        self,
        pricer: Pricer,
        decoders: Decoders,
        reading: list[Task],
        batch_tokens: int,
        leap: bool,
    ) -> None:
        """`reading`: whose prompts are being read, in order of admission; it stays the caller's.

        Without `leap` each pass with decoding sequences is a turn.
        """
        self._pricer = pricer
        self._decoders = decoders
        self._reading = reading
        self._batch_tokens = batch_tokens
        self._leap = leap
        self.blocks: deque[Block] = deque()
        self._number = 1
        self._at = 0.0
        self._head_tokens = 0  # what the blocks will read of the first prompt

    def restart(self, number: int, at: float) -> None:
        """Plan anew: the next pass is `number` and starts at `at`."""
        self.blocks.clear()
        self._decoders.rewind(number)
        self._number = number
        self._at = at
        self._head_tokens = 0

    def drop_taken(self) -> None:
        """The first block's passes are all over."""
        block = self.blocks.popleft()
        if block.reads:
            self._head_tokens -= block.reads[0][1]

    def turn_at(self) -> float:
        """When the next turn comes. Somebody must be in the batch."""
        blocks = self.blocks
        while not (blocks and blocks[-1].turn):
            self.grow()
        return blocks[-1].end

    def boundary_at(self, at: float) -> float:
        """The first end of a pass at or after `at`, which is not after the next turn."""
        for block in self.blocks:
            if block.end >= at:
                return float(block.ends[block.first_at_or_after(at)])
        raise AssertionError("after the turn")

    def grow(self) -> Block:
        """Add a block. Somebody must be in the batch.

        Raises ValueError where the pricer's time is negative or not a number.
        """
        budget = self._batch_tokens - len(self._decoders.tasks)
        block = self._read(budget) if self._reading and budget > 0 else self._decode()
        if not block.end >= self._at:
            raise ValueError(f"the pricer put the end of a pass at {block.end} s, before its start")
        self.blocks.append(block)
        self._number += len(block.ends)
        self._at = block.end
        return block

    def _read(self, budget: int) -> Block:
        """One pass in which prompts share what the decoding sequences leave of the budget."""
        reads: list[Read] = []
        chunks: list[Chunk] = []
        turn = False
        ahead = self._head_tokens
        for task in self._reading:
            assert task.slot is not None
            held = task.slot.valid_tokens + ahead
            ahead = 0  # up to the next turn no other than the first prompt is read
            left = task.prompt_tokens - held
            tokens = left if left < budget else budget
            reads.append((task, tokens))
            chunks.append(Chunk(tokens, held))
            turn = turn or tokens == left
            budget -= tokens
            if not budget:
                break
        self._head_tokens += reads[0][1]
        decoders = self._decoders
        number = self._number
        if decoders.tasks:
            decoders.steady_until(number)
            turn = turn or not self._leap or decoders.next_finish() == number
        end = self._at + self._pricer.pass_s(decoders.batch(number, tuple(chunks)))
        return Block([end], end, turn, reads)

    def _decode(self) -> Block:
        """As many decode-only passes as can be priced together."""
        decoders = self._decoders
        number = self._number
        count = decoders.steady_until(number) - number + 1
        if not self._leap:
            count = 1
        elif count > LEAP_PASSES:
            count = LEAP_PASSES
        if count >= VECTOR_PASSES:
            times = self._pricer.passes_s(decoders.batch(number), count).cumsum()
            times += self._at
            end = float(times[-1])
            turn = decoders.next_finish() == number + count - 1
            return Block(times, end, turn, [])
        ends: list[float] = []
        end = self._at
        for ahead in range(count):
            end += self._pricer.pass_s(decoders.batch(number + ahead))
            ends.append(end)
        turn = not self._leap or decoders.next_finish() == number + count - 1
        return Block(ends, end, turn, [])
