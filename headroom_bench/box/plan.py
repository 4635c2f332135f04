"""The passes to come, as far as they have been priced.

Until somebody comes, goes or finishes, what each pass carries is known. The plan prices such
passes ahead, decode-only ones many at a time, up to the next turn: the end of a pass that reads, or
at which somebody finishes. When the batch changes before that, the rest of the plan is thrown away;
blocks start small and double, so what is thrown away is never much more than what was used.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from typing import NamedTuple

import numpy as np

from headroom_bench.box.design import BoxDesign
from headroom_bench.box.events import made
from headroom_bench.box.memory import Decoding, Memory
from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Chunk, Pricer

FIRST_LEAP = 128
"""Passes priced at once after a change; each further block has twice as many."""
MOST_LEAP = 8192
VECTOR_PASSES = 8
"""From this many on, NumPy is quicker than a loop."""

Read = tuple[Task, int]
"""Whose prompt, and how many tokens of it one pass reads."""


class Block(NamedTuple):
    """Passes that were priced together."""

    ends: array[float]
    """End times, in seconds. None where memory has run out: no pass, but room to be made."""
    end: float
    """The last of them; where memory has run out, when."""
    turn: bool
    """Whether something happens at `end`."""
    decodes: bool
    """Whether those who decode get tokens."""
    reads: list[Read]
    """What its pass reads; a block that reads has one pass."""


class Plan:
    """Blocks of passes from the present on."""

    __slots__ = (
        "_at",
        "_beat",
        "_decoders",
        "_design",
        "_leap",
        "_memory",
        "_pricer",
        "_reading",
        "_size",
        "_turns",
        "blocks",
        "taken",
    )

    def __init__(
        self,
        pricer: Pricer,
        design: BoxDesign,
        decoders: Decoding,
        memory: Memory,
        reading: list[Task],
        leap: bool,
    ) -> None:
        """`reading`: whose prompts are being read, in order of admission; it stays the caller's.

        Without `leap` each pass is a turn.
        """
        self._pricer = pricer
        self._design = design
        self._decoders = decoders
        self._memory = memory
        self._reading = reading
        self._leap = leap and decoders.steady
        self.blocks: deque[Block] = deque()
        self.taken = 0
        """Passes of the first block that are over."""
        self._beat = 1
        self._at = 0.0  # up to when it is planned
        self._turns = False  # whether a turn is there
        self._size = FIRST_LEAP

    def restart(self, at: float) -> None:
        """Plan anew: the next pass starts at `at`."""
        decoders = self._decoders
        self.blocks.clear()
        self.taken = 0
        if decoders.ahead:
            decoders.rewind()
        self._beat = decoders.beat + 1
        self._at, self._turns = at, False
        self._size = FIRST_LEAP

    def turn_at(self, by: float) -> float:
        """When the next turn comes, or some later moment than `by` before which none comes.

        Somebody must be in the batch.
        """
        blocks = self.blocks
        while not (self._turns or (blocks and self._at > by)):
            self.grow()
        return self._at

    def boundary_at(self, at: float) -> float:
        """The first end of a pass after the present at or after `at`, which is not after the next
        turn."""
        taken = self.taken
        for block in self.blocks:
            if block.end >= at:
                return block.ends[bisect_left(block.ends, at, taken)] if block.ends else block.end
            taken = 0
        raise AssertionError("after the turn")

    def grow(self) -> Block:
        """Add a block. Somebody must be in the batch.

        Raises ValueError where the pricer's time is negative or not a number.
        """
        block = (self._read() if self._reading else None) or self._decode()
        ends, end, turn, decodes, _ = block
        if not end >= self._at:
            raise ValueError(f"the pricer put the end of a pass at {end} s, before its start")
        self.blocks.append(block)
        if decodes:
            self._beat += len(ends)
        self._at, self._turns = end, turn
        return block

    def _read(self) -> Block | None:
        """One pass in which prompts have what the decoding sequences leave of the budget, or all
        of it where the two do not mix. None where nothing is left."""
        design, decoders, beat = self._design, self._decoders, self._beat
        decodes = design.mixed and bool(decoders.tasks)
        budget = left = design.batch_tokens - (decoders.pass_tokens() if decodes else 0)
        if left <= 0:
            return None
        reads: list[Read] = []
        chunks: list[Chunk] = []
        moved, step = 0, design.chunk_tokens or left
        for task in self._reading:
            held = task.held
            tokens = min(task.target - held, left, step)
            if held == task.start:
                moved += task.moved
            reads.append((task, tokens))
            chunks.append(made(Chunk, (tokens, held)))
            left -= tokens
            if not left or len(reads) == design.prompts_a_pass:
                break
        if not self._memory.fit(beat, budget - left, decodes, 1):
            return self._dry()
        if decodes:
            decoders.steady_until(beat)
        batch = decoders.batch(beat, decodes, tuple(chunks), moved)
        end = self._at + self._pricer.pass_s(batch)
        return made(Block, (array("d", (end,)), end, True, decodes, reads))

    def _decode(self) -> Block:
        """As many decode-only passes as can be priced together."""
        decoders, beat, size = self._decoders, self._beat, self._size
        until = decoders.steady_until(beat)
        count = min(until - beat + 1, size) if self._leap else 1
        count = self._memory.fit(beat, 0, True, count)
        if not count:
            return self._dry()
        if size < MOST_LEAP:
            self._size = 2 * size
        turn = not self._leap or beat + count - 1 == until == decoders.next_finish
        ends = self._ends(beat, count)
        return made(Block, (ends, ends[-1], turn, True, []))

    def _ends(self, beat: int, count: int) -> array[float]:
        """When each of `count` decode-only passes ends, from that of `beat` on."""
        pricer, decoders = self._pricer, self._decoders
        if count >= VECTOR_PASSES:
            ends = np.add.accumulate(pricer.passes_s(decoders.batch(beat), count))
            ends += self._at
            return array("d", ends.tobytes())
        few, end = array("d"), self._at
        for ahead in range(count):
            end += pricer.pass_s(decoders.batch(beat + ahead))
            few.append(end)
        return few

    def _dry(self) -> Block:
        """There is no room for the next pass."""
        return made(Block, (array("d"), self._at, True, False, []))
