"""The sequences that decode with drafted tokens: each pass gives each of them one or several.

How many is drawn by request and pass, so every pass is stepped singly, and the sums over the
sequences are taken anew for each. The same face as `Decoders`.
"""

from __future__ import annotations

from array import array

from headroom_bench.box.speculation import Speculation, seed_of
from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Batch, Chunk


class Drafters:
    """Who decodes, by drafts and verification."""

    __slots__ = ("_gains", "_page_tokens", "_speculation", "_window", "beat", "tasks")

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

    # --- who ----------------------------------------------------------------------------------

    def add(self, task: Task) -> None:
        self.tasks[task.order] = task
        if not task.seed:
            # Equal prompts at temperature 0 have equal answers, so they accept alike.
            greedy = task.request.greedy
            text = repr([(s.content_id, s.tokens) for s in task.segments]) if greedy else None
            task.seed = seed_of(text or task.request.id) | 1

    def remove(self, task: Task) -> None:
        del self.tasks[task.order]

    def generated(self, task: Task) -> int:
        return len(task.times)

    def times(self, task: Task) -> array[float]:
        return task.times

    # --- passes -------------------------------------------------------------------------------

    def pass_over(self, ends: array[float]) -> int:
        """One pass is over: everyone has the token that it samples, and the accepted before it.
        How many that makes."""
        (end,) = ends
        self.beat += 1
        gains, tokens = [], 0
        for task in self.tasks.values():
            drafted = self._drafted(task)
            accepted = self._speculation.accepted(
                task.request.kind, task.seed, task.drafts, drafted
            )
            task.drafts += 1
            task.drafted += drafted
            task.accepted += accepted
            task.times.extend([end] * (accepted + 1))
            gains.append((task, accepted + 1))
            tokens += accepted + 1
        self._gains = gains
        return tokens

    def gains(self) -> list[tuple[Task, int]]:
        return self._gains

    def finishing(self) -> list[Task]:
        return sorted(
            (task for task in self.tasks.values() if len(task.times) == task.wanted),
            key=lambda task: task.order,
        )

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
        contexts = [_context(task) for task in self.tasks.values()]
        drafts = [self._drafted(task) for task in self.tasks.values()]
        kv_tokens, window = sum(contexts), self._window
        inside, growing = kv_tokens, len(contexts)
        if window is not None:
            inside = sum(min(context, window) for context in contexts)
            growing = sum(context < window for context in contexts)
        return Batch(
            decodes=len(contexts),
            kv_tokens=kv_tokens,
            window_tokens=inside,
            windows_growing=growing,
            chunks=chunks,
            verify=sum(drafts),
            draft_passes=max(drafts, default=0),
            lockstep=self._lockstep(),
            moved_tokens=moved,
        )

    def pass_tokens(self) -> int:
        return sum(1 + self._drafted(task) for task in self.tasks.values())

    def kv_now(self) -> int:
        return sum(map(_context, self.tasks.values()))

    def pages_after(self, beat: int) -> int:
        """Pages now, or once the next pass has written what it verifies."""
        page = self._page_tokens
        if beat == self.beat:
            return sum(-(-_context(task) // page) for task in self.tasks.values())
        return sum(
            -(-(_context(task) + 1 + self._drafted(task)) // page) for task in self.tasks.values()
        )

    def most_pages(self, beat: int) -> int:
        return self.pages_after(beat)

    def _drafted(self, task: Task) -> int:
        """No more than could be used: one token of the pass comes without."""
        return min(self._speculation.tokens, task.wanted - len(task.times) - 1)

    def _lockstep(self) -> int:
        greedy = [task for task in self.tasks.values() if task.request.greedy]
        return len(greedy) - len({(_context(task), task.segments) for task in greedy})


def _context(task: Task) -> int:
    """Tokens in memory: all but the one sampled last."""
    return task.prompt_tokens + len(task.times) - 1
