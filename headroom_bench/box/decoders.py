"""The sequences that decode, as running sums.

Every decoding sequence grows by one token a beat (a pass that decodes). So its context before beat
`b` is `b` plus a number that never changes, its shift, and the batch of any beat follows from sums
of shifts: a change of the batch costs O(log n), a beat nothing. Heaps hold what will happen at
which beat.
"""

from __future__ import annotations

import sys
from array import array
from heapq import heappop, heappush

from headroom_bench.box.events import made
from headroom_bench.box.task import Task
from headroom_bench.box.timeline import Timeline
from headroom_bench.roofline.pricer import Batch, Chunk
from headroom_bench.segments import Segment

NEVER = sys.maxsize

_Entry = tuple[int, int, Task]
"""A beat, the order of admission (no two are equal), who."""


class Decoders:
    """Who decodes, when each will finish, and when each context outgrows the window."""

    __slots__ = (
        "_crossings",
        "_finishes",
        "_growing",
        "_growing_shifts",
        "_page_tokens",
        "_quotients",
        "_residues",
        "_routes",
        "_shifts",
        "_timeline",
        "_window",
        "ahead",
        "beat",
        "lockstep",
        "next_finish",
        "tasks",
    )

    steady = True
    """Many beats may be alike."""

    def __init__(self, window: int | None, page_tokens: int = 1) -> None:
        """`window`: the model's sliding window in tokens, None without one."""
        self.beat = 0
        """Passes so far that decoded."""
        self.tasks: dict[int, Task] = {}
        """By order of admission; the longest decoding first."""
        self.lockstep = 0
        """How many repeat another's prompt and position at temperature 0."""
        self.next_finish = NEVER
        """The beat in which the next sequence gets its last token."""
        self._window = window
        self._page_tokens = page_tokens
        self._residues = [0] * page_tokens  # how many shifts leave that rest in pages
        self._quotients = 0
        self._shifts = 0
        self._growing = 0
        self._growing_shifts = 0
        self._finishes: list[_Entry] = []
        self._crossings: list[_Entry] = []
        self.ahead: list[_Entry] = []
        """Crossings that `steady_until` took, perhaps to be put back by `rewind`."""
        self._routes: dict[tuple[int, tuple[Segment, ...]], int] = {}
        self._timeline = Timeline()

    # --- who ----------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        """`task` has its prompt and its tokens so far in memory but for the last one; from the next
        beat on it decodes."""
        beat, order = self.beat, task.order
        generated = len(task.times)
        shift = task.shift = task.prompt_tokens + generated - 2 - beat
        task.since = beat
        last = task.last_beat = beat + task.wanted - generated
        self.tasks[order] = task
        if last < self.next_finish:
            self.next_finish = last
        quotient, rest = divmod(shift, self._page_tokens)
        self._residues[rest] += 1
        self._quotients += quotient
        self._shifts += shift
        heappush(self._finishes, (last, order, task))
        if task.request.greedy:
            self._route(task, 1)
        if self._window is None:
            return
        crossing = self._window - shift
        if crossing > beat + 1:
            task.growing = True
            self._growing += 1
            self._growing_shifts += shift
            heappush(self._crossings, (crossing, order, task))

    def remove(self, task: Task) -> None:
        """`task` decodes no more, and nothing is looked at ahead.

        Heap entries stay until they come up, for to find them would cost O(n).
        """
        if self.ahead:
            self.rewind()
        tasks, since, beat, shift = self.tasks, task.since, self.beat, task.shift
        del tasks[task.order]
        task.times.extend(self._timeline.run(since + 1, beat - since))
        task.since = -1
        if task.last_beat == self.next_finish:
            self.next_finish = self._first_finish()
        quotient, rest = divmod(shift, self._page_tokens)
        self._residues[rest] -= 1
        self._quotients -= quotient
        self._shifts -= shift
        if task.request.greedy:
            self._route(task, -1)
        if task.growing:
            task.growing = False
            self._growing -= 1
            self._growing_shifts -= shift
        for oldest in tasks.values():
            beat = oldest.since
            break
        self._timeline.forget_before(beat + 1)

    def generated(self, task: Task) -> int:
        """Tokens of the answer so far."""
        stretch = self.beat - task.since if task.since >= 0 else 0
        return len(task.times) + stretch

    def times(self, task: Task) -> array[float]:
        """When they came."""
        if task.since < 0:
            return task.times
        return task.times + self._timeline.run(task.since + 1, self.beat - task.since)

    # --- passes -------------------------------------------------------------------------------

    def pass_over(self, ends: array[float]) -> int:
        """The next beats' end times: everyone has one token more for each. How many that makes."""
        self._timeline.append(ends)
        beats = len(ends)
        self.beat += beats
        return beats * len(self.tasks)

    def gains(self) -> list[tuple[Task, int]]:
        """Who got how many tokens in the last beat."""
        return [(task, 1) for task in self.tasks.values()]

    def finishing(self) -> list[Task]:
        """Those who got their last token in the beat just over, in order of admission. They are
        told once, to be removed."""
        finishes, beat = self._finishes, self.beat
        done: list[Task] = []
        while finishes and finishes[0][0] == beat:
            _, order, task = heappop(finishes)
            if order in self.tasks:
                done.append(task)
        return done

    def steady_until(self, beat: int) -> int:
        """The last beat that can be priced together with `beat`.

        Looks ahead: until `rewind`, `beat` may only rise, and `batch` answers for beats up to the
        returned one.
        """
        crossings = self._crossings
        while crossings:
            crossing, order, task = crossings[0]
            if order not in self.tasks:
                heappop(crossings)
                continue
            if crossing > beat:
                return min(crossing - 1, self.next_finish)
            self.ahead.append(heappop(crossings))
            task.growing = False
            self._growing -= 1
            self._growing_shifts -= task.shift
        return self.next_finish

    def rewind(self) -> None:
        """Look no further ahead than the next beat: undo the crossings after it."""
        for entry in self.ahead:
            if entry[0] > self.beat + 1:
                task = entry[2]
                heappush(self._crossings, entry)
                task.growing = True
                self._growing += 1
                self._growing_shifts += task.shift
        self.ahead.clear()

    def _first_finish(self) -> int:
        """The heap's first beat in which anybody will finish, `NEVER` without one."""
        finishes = self._finishes
        while finishes:
            beat, order, _ = finishes[0]
            if order in self.tasks:
                return beat
            heappop(finishes)
        return NEVER

    # --- sums ---------------------------------------------------------------------------------

    def batch(
        self, beat: int, decode: bool = True, chunks: tuple[Chunk, ...] = (), moved: int = 0
    ) -> Batch:
        """What the pass of `beat` carries."""
        if not decode:
            return Batch(0, 0, 0, 0, chunks, moved_tokens=moved)
        count = len(self.tasks)
        kv_tokens = count * beat + self._shifts
        inside, growing = kv_tokens, count
        if self._window is not None:
            growing = self._growing
            inside = growing * beat + self._growing_shifts + (count - growing) * self._window
        return made(Batch, (count, kv_tokens, inside, growing, chunks, 0, 0, self.lockstep, moved))

    def pass_tokens(self) -> int:
        """Tokens that a pass computes for those who decode."""
        return len(self.tasks)

    def kv_now(self) -> int:
        """Their tokens in memory, summed."""
        return len(self.tasks) * (self.beat + 1) + self._shifts

    def pages_after(self, beat: int) -> int:
        """The pages that they fill once `beat` is over, each sequence its own: the sum of
        ceil((beat + 1 + shift) / page)."""
        page, residues = self._page_tokens, self._residues
        whole, rest = divmod(beat + 1, page)
        pages = len(self.tasks) * (whole + 1) + self._quotients
        if not rest:
            return pages - residues[0]
        return pages + sum(residues[page - rest + 1 :])

    def most_pages(self, beat: int) -> int:
        """No fewer than `pages_after(beat)`, and quicker to tell."""
        count, page = len(self.tasks), self._page_tokens
        return (count * (beat + page) + self._shifts) // page

    def _route(self, task: Task, sign: int) -> None:
        key = (task.shift, task.segments)
        before = self._routes.get(key, 0)
        after = before + sign
        if after:
            self._routes[key] = after
        else:
            del self._routes[key]
        self.lockstep += max(after - 1, 0) - max(before - 1, 0)
