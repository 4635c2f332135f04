"""The sequences that decode with drafted tokens: each pass gives each of them one or several.

How many is drawn by request and pass, so every pass is stepped singly, and the sums over the
sequences are taken anew for each, once. The same face as `Decoders`.
"""

from __future__ import annotations

from array import array
from operator import attrgetter

from headroom_bench.box.events import made
from headroom_bench.box.speculation import Speculation
from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Batch, Chunk
from headroom_bench.seeds import seed_of

_by_order = attrgetter("order")


class Drafters:
    """Who decodes, by drafts and verification."""

    __slots__ = (
        "_done",
        "_gains",
        "_growing",
        "_inside",
        "_kv",
        "_most",
        "_page_tokens",
        "_pages",
        "_pages_next",
        "_speculation",
        "_stale",
        "_verify",
        "_window",
        "beat",
        "tasks",
    )

    steady = False
    ahead = False
    """Nothing is looked at ahead."""
    next_finish = 0
    """Not known beforehand: it may be any beat."""

    def __init__(self, window: int | None, page_tokens: int, speculation: Speculation) -> None:
        self.beat = 0
        self.tasks: dict[int, Task] = {}
        self._window = window
        self._page_tokens = page_tokens
        self._speculation = speculation
        self._gains: list[tuple[Task, int]] = []
        self._done: list[Task] = []
        self._stale = True
        self._kv = 0  # their tokens in memory, and these within the window
        self._inside = 0
        self._growing = 0  # sequences still below the window
        self._verify = 0  # what the next pass drafts in all, and at most for one
        self._most = 0
        self._pages = 0  # now, and when the next pass has written what it verifies
        self._pages_next = 0

    # --- who ----------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        self._stale = True
        self.tasks[task.order] = task
        if not task.seed:
            # Equal prompts at temperature 0 have equal answers, so they accept alike.
            greedy = task.request.greedy
            text = repr([(s.content_id, s.tokens) for s in task.segments]) if greedy else None
            task.seed = seed_of(text or task.request.id) | 1

    def remove(self, task: Task) -> None:
        self._stale = True
        del self.tasks[task.order]

    def generated(self, task: Task) -> int:
        return len(task.times)

    def times(self, task: Task) -> array[float]:
        return task.times

    # --- passes -------------------------------------------------------------------------------

    def pass_over(self, ends: array[float]) -> int:
        """One pass is over: everyone has the token that it samples, and the accepted before it.
        How many that makes."""
        self._stale = True
        self.beat += 1
        accept, most = self._speculation.accepted, self._speculation.tokens
        gains, done, tokens = [], [], 0
        for task in self.tasks.values():
            times = task.times
            left = task.wanted - len(times)
            drafted = most if most < left else left - 1  # one token of a pass comes without
            gained = 1 + accept(task.request.kind, task.seed, task.drafts, drafted)
            task.drafts += 1
            task.drafted += drafted
            task.accepted += gained - 1
            times.extend(ends * gained)
            if gained == left:
                done.append(task)
            gains.append((task, gained))
            tokens += gained
        self._gains, self._done = gains, done
        return tokens

    def gains(self) -> list[tuple[Task, int]]:
        return self._gains

    def finishing(self) -> list[Task]:
        return sorted(self._done, key=_by_order)

    def steady_until(self, beat: int) -> int:
        return beat

    def rewind(self) -> None:
        """Never needed."""

    # --- sums ---------------------------------------------------------------------------------

    def batch(
        self,
        beat: int,  # noqa: ARG002
        decode: bool = True,
        chunks: tuple[Chunk, ...] = (),
        moved: int = 0,
    ) -> Batch:
        """What the next pass carries."""
        if not decode:
            return Batch(0, 0, 0, 0, chunks, moved_tokens=moved)
        if self._stale:
            self._sum()
        return made(
            Batch,
            (
                len(self.tasks),
                self._kv,
                self._inside,
                self._growing,
                chunks,
                self._verify,
                self._most,
                self._lockstep(),
                moved,
            ),
        )

    def pass_tokens(self) -> int:
        if self._stale:
            self._sum()
        return len(self.tasks) + self._verify

    def kv_now(self) -> int:
        if self._stale:
            self._sum()
        return self._kv

    def pages_after(self, beat: int) -> int:
        """Pages now, or once the next pass has written what it verifies."""
        if self._stale:
            self._sum()
        return self._pages if beat == self.beat else self._pages_next

    def most_pages(self, beat: int) -> int:
        return self.pages_after(beat)

    def _sum(self) -> None:
        page, most, window = self._page_tokens, self._speculation.tokens, self._window
        kv = outside = verify = longest = pages = pages_next = 0
        growing = len(self.tasks)
        for task in self.tasks.values():
            times = len(task.times)
            context = task.prompt_tokens + times - 1  # all but the token sampled last
            drafted = task.wanted - times - 1
            if drafted > most:
                drafted = most
            if drafted > longest:
                longest = drafted
            kv += context
            verify += drafted
            pages += -(-context // page)
            pages_next += -(-(context + 1 + drafted) // page)
            if window is not None and context >= window:
                outside += context - window
                growing -= 1
        self._kv, self._inside, self._growing = kv, kv - outside, growing
        self._verify, self._most = verify, longest
        self._pages, self._pages_next = pages, pages_next
        self._stale = False

    def _lockstep(self) -> int:
        greedy = [task for task in self.tasks.values() if task.request.greedy]
        if len(greedy) < 2:
            return 0
        return len(greedy) - len({(len(task.times), task.segments) for task in greedy})
