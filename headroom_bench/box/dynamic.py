"""Dynamic batch: no slots, a cache of its own for each sequence; whole caches are kept for later.

mlx_lm.server's design: up to ten finished caches, least recently used out first; the nearest one
is taken out where the prompt goes on from its end, else copied and cut back, where its kind allows.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heappop, heappush

from headroom_bench.box.design import BoxDesign
from headroom_bench.box.memory import Decoding, TokenPool
from headroom_bench.box.slots import Held
from headroom_bench.box.task import Task
from headroom_bench.segments import Segment


class DynamicMemory:
    """Caches that come and go. Implements `Memory`."""

    __slots__ = ("_caches", "_design", "_number", "_pool", "_seats")

    def __init__(self, design: BoxDesign, decoders: Decoding) -> None:
        self._design = design
        self._seats = list(range(design.parallel))  # the free ones, a heap
        self._pool = TokenPool(design.pool_tokens, decoders)
        self._caches: OrderedDict[int, Held] = OrderedDict()  # least recently used first
        self._number = 0

    def seat(self, task: Task) -> bool:
        if not self._seats:
            return False
        self.settle()
        task.seat = heappop(self._seats)
        task.start = self._reuse(task)
        self._pool.reading += task.start
        return True

    def read(self, task: Task, tokens: int) -> None:  # noqa: ARG002
        self._pool.reading += tokens

    def known(self, task: Task) -> None:
        self._pool.reading -= task.target

    def release(self, task: Task, generated: int, written: int, *, keep: bool) -> None:
        assert task.seat is not None
        heappush(self._seats, task.seat)
        if not generated:
            self._pool.reading -= written
        if not keep or not self._design.prefix_cache or not written:
            return
        answer = Segment("answer", "assistant", "prose", task.request.answer_id, generated)
        segments = (*task.segments, answer) if generated else task.segments
        self._caches[self._number] = Held(segments, written)
        self._number += 1
        self._pool.idle += written
        if len(self._caches) > self._design.cached_prompts:
            self._drop_oldest()

    def settle(self) -> None:
        while self._caches and self._pool.excess() > 0:
            self._drop_oldest()

    def fit(self, beat: int, reads: int, decodes: bool, most: int) -> int:
        return self._pool.fit(beat, reads, decodes, most)

    def idle(self) -> list[tuple[int, int]]:
        return []

    def used_share(self) -> float | None:
        return self._pool.used_share()

    def _reuse(self, task: Task) -> int:
        """Tokens of the prompt that the nearest cache gives."""
        best, start, whole = -1, 0, False
        asked, most, rewinds = task.segments, task.target - 1, self._design.rewind == "any"
        for number, held in self._caches.items():
            if held.valid_tokens <= start:
                continue  # it cannot share more
            shared = min(held.shared(asked), most)
            goes_on = shared == held.valid_tokens
            if shared > start and (goes_on or rewinds):
                best, start, whole = number, shared, goes_on
        if best >= 0:
            self._caches.move_to_end(best)
            if whole:
                self._pool.idle -= self._caches.pop(best).valid_tokens
        return start

    def _drop_oldest(self) -> None:
        _, held = self._caches.popitem(last=False)
        self._pool.idle -= held.valid_tokens
