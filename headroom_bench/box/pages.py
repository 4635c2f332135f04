"""Paged memory: one pool of pages for all sequences, shared beginnings stored once.

vLLM's and SGLang's design. A sequence keeps room for its whole prompt from admission on, and takes
pages as its answer grows; the pages of past prompts make way for both. What a preempted sequence
had written stays like any other past text, until its pages are needed.
"""

from __future__ import annotations

from headroom_bench.box.decoders import NEVER
from headroom_bench.box.design import BoxDesign
from headroom_bench.box.memory import Decoding, Places
from headroom_bench.box.prefix_tree import Atom, Node, PrefixTree
from headroom_bench.box.task import Task

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
        self.settle()
        tree, page = self.tree, self._page
        node, depth, start = tree.root, 0, 0
        if self._design.prefix_cache:
            if task.atoms is None:
                task.atoms = tree.atoms(task.segments)
            node, depth, start = tree.match(_with_answer(task, len(task.times)))
            start = min(start, (task.target - 1) // page * page)
        tokens = task.target
        if self._design.reserve_answer:
            tokens = task.prompt_tokens + task.wanted
        own = -(-tokens // page) - start // page
        used = tree.pages - tree.evictable + self._private()
        if own + tree.unused_pages(node) > self._limit - used:
            if used:
                return False
            # Alone it always fits, though perhaps not beside all that it would find.
            node, depth, start, own = tree.root, 0, 0, -(-tokens // page)
        tree.lock(node)
        task.seat, task.node, task.depth = self._places.take(), node, depth
        task.start = start
        task.pages, task.reserved = start // page, own
        self._reserved += own
        self.settle()
        return True

    def read(self, task: Task, tokens: int) -> None:
        """Its pages were kept when it was admitted."""

    def known(self, task: Task) -> None:
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
        excess = self.tree.pages + self._private() - self._limit
        if excess > 0:
            self.tree.evict(excess)

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
        base: Node | None = old if old.pages == old.full else old.parent
        missing = path[task.depth :]
        if task.preemptions and generated and _is_older_answer(old.key, path[-1][0]):
            old = task.node = tree.rename(old, *path[-1])
            base, missing = old.parent, path[-1:]
        assert base is not None
        node = tree.insert(base, missing, written)
        if node is not old:
            tree.lock(node)
            self._releases += 1
            tree.unlock(old, self._releases)
            task.node = node
        task.depth = len(path)
        pages = written // self._page
        if task.reserved:
            moved = min(task.reserved, pages - task.pages)
            task.reserved -= moved
            self._reserved -= moved
        task.pages = pages


def _with_answer(task: Task, generated: int) -> list[Atom]:
    """The prompt's atoms, and that of the answer so far."""
    atoms = task.atoms
    assert atoms is not None
    if not generated:
        return atoms
    return [*atoms, ((task.request.answer_id, generated), generated)]


def _is_older_answer(key: object, answer: object) -> bool:
    """Whether a node holds what there was of an answer when its sequence was preempted."""
    if not isinstance(key, tuple) or not isinstance(answer, tuple):
        return False
    return bool(key[0] == answer[0] and key != answer)
