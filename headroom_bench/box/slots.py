"""Split slots: who sits where, and which prefix each slot's memory still holds.

The slot is chosen as llama.cpp's server does: the longest shared prefix if it is more than a tenth
of the prompt, else the slot that has been free for longest.
"""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.box.task import Task
from headroom_bench.segments import Segment, shared_prefix_tokens

MIN_SIMILARITY = 0.1
"""llama.cpp's `--slot-prompt-similarity`."""
CONTEXT_STEP_TOKENS = 256


def context_per_slot(ctx_tokens: int, slots: int) -> int:
    """Tokens that each of `slots` split slots holds of a server's `-c`, rounded up to 256 as
    llama.cpp does (400,000 over 2 slots gave 200,192 in a published log)."""
    share = -(-ctx_tokens // slots)
    return -(-share // CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS


@dataclass(slots=True, eq=False)
class Slot:
    """One slot and its KV memory."""

    index: int
    segments: tuple[Segment, ...] = ()
    """The text that the memory was written for."""
    valid_tokens: int = 0
    """Tokens at the start of `segments` that really are in memory."""
    task: Task | None = None


class Slots:
    """A fixed number of slots."""

    __slots__ = ("_slots", "free")

    def __init__(self, count: int) -> None:
        self._slots = [Slot(index) for index in range(count)]
        # The longest free first: a dict keeps the order of insertion, and a release inserts last.
        self.free = {slot.index: slot for slot in self._slots}

    def all(self) -> tuple[Slot, ...]:
        return tuple(self._slots)

    def take(self, task: Task) -> Slot:
        """Seat `task` and keep what its slot shares with the prompt. A slot must be free.

        Sets the task's `slot` and `cached_tokens`. At least one token is left to read, for a
        prompt that is known to its end still has to be asked for its next token.
        """
        slot, shared = self._choose(task)
        del self.free[slot.index]
        cached = min(shared, task.prompt_tokens - 1)
        task.slot = slot
        task.cached_tokens = cached
        slot.task = task
        slot.segments = task.request.segments
        slot.valid_tokens = cached
        return slot

    def release(self, slot: Slot, generated: int) -> None:
        """Free the slot, with its prompt and `generated` tokens of answer left in memory.

        The last token was sampled but never read, so it is not in memory.
        """
        task = slot.task
        assert task is not None
        if generated:
            answer = Segment("answer", "assistant", "prose", task.request.answer_id, generated)
            slot.segments = (*task.request.segments, answer)
            slot.valid_tokens = task.prompt_tokens + generated - 1
        slot.task = None
        self.free[slot.index] = slot

    def _choose(self, task: Task) -> tuple[Slot, int]:
        """The slot for `task`, and the tokens of prompt that it holds."""
        asked = task.request.segments
        threshold = MIN_SIMILARITY * task.prompt_tokens
        oldest: Slot | None = None
        oldest_shared = 0
        best: Slot | None = None
        best_shared = 0
        for slot in self.free.values():
            shared = 0
            if slot.valid_tokens:
                shared = min(shared_prefix_tokens(slot.segments, asked), slot.valid_tokens)
            if oldest is None:
                oldest, oldest_shared = slot, shared
            if shared > threshold and (
                best is None
                or shared > best_shared
                or (shared == best_shared and slot.index < best.index)
            ):
                best, best_shared = slot, shared
        if best is not None:
            return best, best_shared
        assert oldest is not None
        return oldest, oldest_shared
