"""The sequences that decode, as running sums.

Every decoding sequence grows by one token a pass. So its context before pass `p` is `p` plus a
number that never changes, its shift, and the batch of any pass follows from sums of shifts: a
change of the batch costs O(log n), a pass nothing. Heaps hold what will happen at which pass.
"""

from __future__ import annotations

import sys
from heapq import heappop, heappush

from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Batch, Chunk

NEVER = sys.maxsize

_Entry = tuple[int, int, Task]
"""A pass number, the order of admission (no two are equal), who."""


class Decoders:
    """Who decodes, when each will finish, and when each context outgrows the window."""

    __slots__ = (
        "_crossed",
        "_crossings",
        "_finishes",
        "_growing",
        "_growing_shifts",
        "_shifts",
        "_window",
        "tasks",
    )

    def __init__(self, window: int | None) -> None:
        """`window`: the model's sliding window in tokens, None without one."""
        self.tasks: dict[int, Task] = {}
        """By order of admission, which is also the order in which they began to decode."""
        self._window = window
        self._shifts = 0
        self._growing = 0
        self._growing_shifts = 0
        self._finishes: list[_Entry] = []
        self._crossings: list[_Entry] = []
        self._crossed: list[_Entry] = []  # popped by `steady_until`, perhaps to be put back

    def add(self, task: Task) -> None:
        """`task` got its first token in `first_pass`, and decodes from the next pass on."""
        shift = task.shift = task.prompt_tokens - task.first_pass - 1
        self.tasks[task.order] = task
        self._shifts += shift
        heappush(self._finishes, (task.last_pass, task.order, task))
        if self._window is None:
            return
        crossing = self._window - shift
        if crossing > task.first_pass + 1:
            task.growing = True
            self._growing += 1
            self._growing_shifts += shift
            heappush(self._crossings, (crossing, task.order, task))

    def remove(self, task: Task) -> None:
        """`task` decodes no more. `rewind` first, unless this is the last pass looked at.

        Heap entries stay until they come up, for to find them would cost O(n).
        """
        del self.tasks[task.order]
        self._shifts -= task.shift
        if task.growing:
            task.growing = False
            self._growing -= 1
            self._growing_shifts -= task.shift

    def next_finish(self) -> int:
        """The pass in which the next sequence gets its last token, `NEVER` without one."""
        finishes = self._finishes
        while finishes and finishes[0][1] not in self.tasks:
            heappop(finishes)
        return finishes[0][0] if finishes else NEVER

    def finishing(self, number: int) -> list[Task]:
        """Those who get their last token in pass `number`, in order of admission."""
        done = []
        while self.next_finish() == number:
            task = heappop(self._finishes)[2]
            done.append(task)
        return done

    def steady_until(self, number: int) -> int:
        """The last pass that can be priced together with pass `number`.

        Looks ahead: until `rewind`, `number` may only rise, and `batch` answers for `number` up to
        the returned pass.
        """
        crossings = self._crossings
        while crossings:
            crossing, order, task = crossings[0]
            if order not in self.tasks:
                heappop(crossings)
                continue
            if crossing > number:
                return min(crossing - 1, self.next_finish())
            self._crossed.append(heappop(crossings))
            task.growing = False
            self._growing -= 1
            self._growing_shifts -= task.shift
        return self.next_finish()

    def rewind(self, number: int) -> None:
        """Look no further ahead than pass `number`: undo the crossings after it."""
        for entry in self._crossed:
            if entry[0] > number:
                task = entry[2]
                heappush(self._crossings, entry)
                task.growing = True
                self._growing += 1
                self._growing_shifts += task.shift
        self._crossed.clear()

    def batch(self, number: int, chunks: tuple[Chunk, ...] = ()) -> Batch:
        """What pass `number` carries."""
        count = len(self.tasks)
        kv_tokens = count * number + self._shifts
        if self._window is None:
            return Batch(count, kv_tokens, kv_tokens, count, chunks)
        growing = self._growing
        window_tokens = growing * number + self._growing_shifts + (count - growing) * self._window
        return Batch(count, kv_tokens, window_tokens, growing, chunks)
