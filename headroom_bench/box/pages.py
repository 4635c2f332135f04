"""Paged memory: one pool of pages for all sequences, shared beginnings stored once.

vLLM's and SGLang's design. A sequence keeps room for its whole prompt from admission on, and takes
pages as its answer grows; the pages of past prompts make way for both. What a preempted sequence
had written stays like any other past text, until its pages are needed.
"""

from __future__ import annotations

from headroom_bench.box.decoders import NEVER
from headroom_bench.box.design import BoxDesign
from headroom_bench.box.memory import Decoding, Places
from headroom_bench.box.prefix_tree import Node, PrefixTree
from headroom_bench.box.task import Task
from headroom_bench.segments import Segment

SURE_BEATS = 1024
"""Look no further ahead than this many beats."""


class PagedMemory:
    """Pages for sequences. Implements `Memory`."""

    __slots__ = (
        "_decoders",
        "_design",
        "_limit",
        "_page",
        "_places",
        "_releases",
        "_reserved",
        "_shared",
        "tree",
    )

    def __init__(self, design: BoxDesign, decoders: Decoding) -> None:
        self._design = design
        self._decoders = decoders
        self._page = design.page_tokens
        self._limit = design.usable_pool // design.page_tokens
        self._places = Places(design.parallel)
        self.tree = PrefixTree(design.page_tokens)
        self._reserved = 0  # pages of their own of those who do not take pages beat by beat
        self._shared = 0  # pages of the tree that those who do begin with
        self._releases = 0

    def seat(self, task: Task) -> bool:
        if not self._places:
            return False
        private = self._settle()
        tree, page = self.tree, self._page
        node, depth, start = tree.root, 0, 0
        if self._design.prefix_cache:
            first = task.path is None
            if task.path is None:
                task.path = task.segments
            node, depth, start = tree.match(_with_answer(task, len(task.times)))
            if first and any(segment.blocks for segment in task.segments[depth:]):
                task.path = tree.path(task.segments)
                node, depth, start = tree.match(task.path)
            start = min(start, (task.target - 1) // page * page)
        tokens = task.target
        if self._design.reserve_answer:
            tokens = task.prompt_tokens + task.wanted
        own = -(-tokens // page) - start // page
        used = tree.pages - tree.evictable + private
        if own + tree.unused_pages(node) > self._limit - used:
            if used:
                return False
            # Alone it always fits, though perhaps not beside all that it would find.
            node, depth, start, own = tree.root, 0, 0, -(-tokens // page)
        tree.lock(node)
        task.seat, task.node, task.depth = self._places.take(), node, depth
        # Somebody else may fill up a node that is here in part now: what is missing goes on from
        # the last one that is here as a whole.
        task.base = node if node.pages == node.full else node.parent
        task.start = start
        task.pages, task.reserved = start // page, own
        self._reserved += own
        return True

    def read(self, task: Task, tokens: int) -> None:
        """Its pages were kept when it was admitted."""

    def known(self, task: Task) -> None:
        # Where somebody else has read the same meanwhile, one copy goes: a moment to settle before.
        node = task.node
        assert node is not None
        if node.children or node.start // self._page + node.pages > task.pages:
            self.settle()
        if not self._design.reserve_answer:
            self._reserved -= task.reserved
            task.reserved = 0
        self._hold(task, len(task.times), task.target)
        if not self._design.reserve_answer:
            self._shared += task.pages

    def release(self, task: Task, generated: int, written: int, *, keep: bool) -> None:
        tree = self.tree
        assert task.node is not None
        assert task.seat is not None
        if task.reserved:
            self._reserved -= task.reserved
            task.reserved = 0
        else:
            self._shared -= task.pages
        if keep:
            self._hold(task, generated, written)
        self._releases += 1
        tree.unlock(task.node, self._releases)
        task.node = None
        self._places.give(task.seat)

    def settle(self) -> None:
        if self.tree.evictable:
            self._settle()

    def fit(self, beat: int, reads: int, decodes: bool) -> int:  # noqa: ARG002
        if self._design.reserve_answer or not decodes:
            return NEVER
        tree, decoders = self.tree, self._decoders
        most = self._limit - (tree.pages - tree.evictable) - self._reserved + self._shared
        if decoders.most_pages(beat + SURE_BEATS) <= most:
            return SURE_BEATS
        low, high = 0, SURE_BEATS + 1  # the first `low` beats fit, the first `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            if decoders.pages_after(beat + middle - 1) <= most:
                low = middle
            else:
                high = middle
        return low

    def idle(self) -> list[tuple[int, int]]:
        return []

    def used_share(self) -> float | None:
        return (self.tree.pages - self.tree.evictable + self._private()) / self._limit

    def _settle(self) -> int:
        """Settle. Returns the pages that running sequences hold beside the tree."""
        private = self._private()
        excess = self.tree.pages + private - self._limit
        if excess > 0:
            self.tree.evict(excess)
        return private

    def _private(self) -> int:
        """Pages that running sequences hold beside the tree."""
        if self._design.reserve_answer:
            return self._reserved
        return self._reserved + self._decoders.pages_now() - self._shared

    def _hold(self, task: Task, generated: int, written: int) -> None:
        """What `task` has written becomes part of the tree, and is its own no more."""
        if not self._design.prefix_cache:
            return
        tree, old, path = self.tree, task.node, _with_answer(task, generated)
        assert old is not None
        base = task.base
        missing = path[task.depth :]
        if task.preemptions and generated and _is_older(old, path[-1]):
            old = task.node = tree.rename(old, path[-1])
            base, missing = old.parent, path[-1:]
        assert base is not None
        node = tree.insert(base, missing, written)
        if node is not old:
            tree.lock(node)
            self._releases += 1
            tree.unlock(old, self._releases)
            task.node = node
        task.base, task.depth = node, len(path)
        pages = written // self._page
        if task.reserved:
            moved = min(task.reserved, pages - task.pages)
            task.reserved -= moved
            self._reserved -= moved
        task.pages = pages


def _with_answer(task: Task, generated: int) -> tuple[Segment, ...]:
    """The prompt's pieces, and the answer so far."""
    assert task.path is not None
    return (*task.path, _answer(task, generated)) if generated else task.path


def _answer(task: Task, generated: int) -> Segment:
    return Segment("answer", "assistant", "prose", task.request.answer_id, generated)


def _is_older(node: Node, answer: Segment) -> bool:
    """Whether `node` holds what there was of an answer when its sequence was preempted."""
    return node.key[1] == answer.content_id and node.key[2] != answer.tokens
