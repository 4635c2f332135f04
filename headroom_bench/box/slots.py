"""Slots: who sits where, and which prefix each slot's memory still holds.

Split slots have a share each; unified ones share one pool, in which idle slots make way. The slot
is chosen as llama.cpp's server does (tools/server, `get_available_slot`): the longest shared prefix
if it is more than a tenth of the prompt, else the slot that has been free for longest, of those
never used the last. What a slot is about to lose is parked in host memory, and a better match there
is brought back; when a task begins, idle slots are parked too (`--cache-idle-slots`, on by
default), and cleared where they share a pool. All as builds b7551 to b11549 were recorded to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom_bench.box.design import BoxDesign
from headroom_bench.box.host_cache import HostCache
from headroom_bench.box.memory import Decoding, TokenPool
from headroom_bench.box.task import Task
from headroom_bench.segments import Segment, shared_prefix_tokens

MIN_SIMILARITY = 0.1
"""llama.cpp's `--slot-prompt-similarity`."""
PARK_BELOW = 0.5
"""Where a prompt keeps less than this share of its slot's text, llama.cpp parks the text first."""
CONTEXT_STEP_TOKENS = 256
CHECKPOINTS = 32
"""Saved states a slot (llama.cpp `--ctx-checkpoints`)."""
CHECKPOINT_STEP_TOKENS = 256
"""Least tokens between two of them."""
CHECKPOINT_BACK_TOKENS = 4
"""llama.cpp saves a state so many tokens before the end of a prompt; the figure is an estimate."""


def context_per_slot(ctx_tokens: int, slots: int) -> int:
    """Tokens that each of `slots` split slots holds of a server's `-c`, rounded up to 256 as
    llama.cpp does (400,000 over 2 slots gave 200,192 in a published log)."""
    share = -(-ctx_tokens // slots)
    return -(-share // CONTEXT_STEP_TOKENS) * CONTEXT_STEP_TOKENS


@dataclass(slots=True, eq=False)
class Held:
    """Text in memory, a slot's or parked."""

    segments: tuple[Segment, ...] = ()
    """The text that the memory was written for."""
    valid_tokens: int = 0
    """Tokens at the start of `segments` that really are in memory."""
    checkpoints: tuple[int, ...] = ()
    """Tokens at which a state was saved, ascending."""
    parked_in: int = -1
    """The parked text that had all of it when somebody looked."""

    def shared(self, asked: tuple[Segment, ...]) -> int:
        """Tokens at the start of `asked` that are here too."""
        if not self.valid_tokens:
            return 0
        return min(shared_prefix_tokens(self.segments, asked), self.valid_tokens)


@dataclass(slots=True, eq=False)
class Slot:
    """One slot and its KV memory."""

    index: int
    held: Held = field(default_factory=Held)


class SlotMemory:
    """A fixed number of slots. Implements `Memory`."""

    __slots__ = ("_design", "_host", "_pool", "_slots", "free")

    def __init__(self, design: BoxDesign, decoders: Decoding) -> None:
        self._design = design
        self._slots = [Slot(index) for index in range(design.parallel)]
        # The longest free first: a dict keeps the order of insertion, and a release inserts last.
        self.free = {slot.index: slot for slot in reversed(self._slots)}
        self._pool = TokenPool(design.pool_tokens, decoders)
        self._host = HostCache(design.host_tokens) if design.host_tokens else None

    def seat(self, task: Task) -> bool:
        if not self.free:
            return False
        self.settle()
        slot, shared = self._choose(task)
        del self.free[slot.index]
        self._pool.idle -= slot.held.valid_tokens
        if self._host is not None:
            shared = self._swap(task, slot, shared, self._host)
        start = self._usable(slot.held, shared, task.target - 1)
        task.seat, task.slot, task.start = slot.index, slot, start
        slot.held = Held(task.segments, start, _until(slot.held.checkpoints, start))
        self._pool.reading += start
        return True

    def read(self, task: Task, tokens: int) -> None:
        assert task.slot is not None
        task.slot.held.valid_tokens += tokens
        self._pool.reading += tokens

    def known(self, task: Task) -> None:
        assert task.slot is not None
        self._pool.reading -= task.target
        if self._design.rewind == "checkpoints":
            held = task.slot.held
            held.checkpoints = _with_prompt(held.checkpoints, task)

    def release(self, task: Task, generated: int, written: int, *, keep: bool) -> None:
        slot = task.slot
        assert slot is not None
        if not generated:
            self._pool.reading -= written
        if not keep or not self._design.prefix_cache:
            slot.held = Held()
        elif generated:
            answer = Segment("answer", "assistant", "prose", task.request.answer_id, generated)
            slot.held.segments = (*task.segments, answer)
            slot.held.valid_tokens = written
        self._pool.idle += slot.held.valid_tokens
        self.free[slot.index] = slot

    def settle(self) -> None:
        """llama.cpp purges idle slots by their number, one at a time, until the pass fits."""
        if self._pool.excess() <= 0:
            return
        for slot in sorted(self.free.values(), key=lambda slot: slot.index):
            if self._pool.excess() <= 0:
                return
            self._pool.idle -= slot.held.valid_tokens
            slot.held = Held()

    def fit(self, beat: int, reads: int, decodes: bool, most: int) -> int:
        return self._pool.fit(beat, reads, decodes, most)

    def idle(self) -> list[tuple[int, int]]:
        return [(slot.index, slot.held.valid_tokens) for slot in self.free.values()]

    def used_share(self) -> float | None:
        return self._pool.used_share()

    # --- choosing -----------------------------------------------------------------------------

    def _choose(self, task: Task) -> tuple[Slot, int]:
        """The slot for `task`, and the tokens of prompt that it holds."""
        asked = task.segments
        threshold = MIN_SIMILARITY * task.prompt_tokens
        oldest: Slot | None = None
        oldest_shared = 0
        best: Slot | None = None
        best_shared = 0
        for slot in self.free.values():
            if oldest is not None and slot.held.valid_tokens < max(threshold, best_shared):
                continue  # it cannot be the best
            shared = slot.held.shared(asked)
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

    def _swap(self, task: Task, slot: Slot, shared: int, host: HostCache) -> int:
        """Park what the slot would lose and bring back a better match. The tokens shared now."""
        held = slot.held
        similar = shared > MIN_SIMILARITY * task.prompt_tokens
        if not (similar and shared >= PARK_BELOW * held.valid_tokens):
            task.moved += host.park(held)
            better = host.fetch(task.segments, shared, held.valid_tokens)
            if better is not None:
                held = slot.held = better
                task.moved += held.valid_tokens
                shared = held.shared(task.segments)
        for other in self._slots:
            lost = other.held
            if not lost.valid_tokens or other.index not in self.free:
                continue
            if lost.parked_in not in host.texts:
                task.moved += host.park(lost)
            if self._pool.limit is not None:
                self._pool.idle -= lost.valid_tokens
                other.held = Held()
        return shared

    def _usable(self, held: Held, shared: int, most: int) -> int:
        """How much of what is shared can be used, for what follows must be cut off."""
        if not self._design.prefix_cache:
            return 0
        shared = min(shared, most)
        if self._design.rewind == "any" or shared == held.valid_tokens:
            return shared
        if self._design.rewind == "extend":
            return 0
        return max((at for at in held.checkpoints if at <= shared), default=0)


def _until(checkpoints: tuple[int, ...], tokens: int) -> tuple[int, ...]:
    """Those that are still good when all after `tokens` is cut off."""
    return tuple(at for at in checkpoints if at <= tokens)


def _with_prompt(checkpoints: tuple[int, ...], task: Task) -> tuple[int, ...]:
    """With those that reading the prompt saved: before each message of a user, and near the end.
    Neighbours of one role are parts of one message."""
    places, start, before = [], 0, ""
    for segment in task.segments:
        if segment.role == "user" != before and start >= task.start:
            places.append(start)
        start += segment.tokens
        before = segment.role
    places.append(max(task.prompt_tokens - CHECKPOINT_BACK_TOKENS, 0))
    kept = list(checkpoints)
    for at in places:
        if at > 0 and (not kept or at - kept[-1] >= CHECKPOINT_STEP_TOKENS):
            kept.append(at)
    return tuple(kept[-CHECKPOINTS:])
