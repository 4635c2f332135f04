"""Paged memory: one pool of pages for all sequences, shared beginnings stored once.

vLLM's and SGLang's design. A sequence keeps room for its whole prompt from admission on, and takes
pages as its answer grows; the pages of past prompts make way for both. What a preempted sequence
had written stays like any other past text, until its pages are needed.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headroom_bench.box.design import BoxDesign
from headroom_bench.box.memory import Decoding
from headroom_bench.box.prefix_tree import Match, Node, Piece, PrefixTree, pieces_of
from headroom_bench.box.task import Task
from headroom_bench.segments import Segment


class PagedMemory:
    """Pages for sequences. Implements `Memory`."""

    __slots__ = (
        "_beside",
        "_by_beat",
        "_decoders",
        "_design",
        "_limit",
        "_page",
        "_seats",
        "tree",
    )

    def __init__(self, design: BoxDesign, decoders: Decoding) -> None:
        self._design = design
        self._decoders = decoders
        self._by_beat = not design.reserve_answer  # pages are taken as the answer grows
        self._page = design.page_tokens
        self._limit = design.usable_pool // design.page_tokens
        self._seats = list(range(design.parallel))  # the free ones, a heap
        self.tree = PrefixTree(design.page_tokens)
        # Pages of their own of those who do not take pages beat by beat, less the pages of the tree
        # that those who do begin with: what running sequences hold beside the tree and what the
        # decoders count.
        self._beside = 0

    def seat(self, task: Task) -> bool:
        if not self._seats:
            return False
        tree, page, target, private = self.tree, self._page, task.target, self._private()
        tree.shrink(self._limit - private)
        found = self._find(task)
        start = min(found.tokens, (target - 1) // page * page)
        tokens = target if self._by_beat else task.prompt_tokens + task.wanted
        own = -(-tokens // page) - start // page
        used = tree.used + private
        if own + found.unused > self._limit - used:
            if used:
                return False
            # Alone it always fits, though perhaps not beside all that it would find.
            found, start, own = tree.match([]), 0, -(-tokens // page)
        node = found.node
        tree.lock(node)
        task.seat, task.node, task.depth = heappop(self._seats), node, found.depth
        # Somebody else may fill up a node that is here in part now: what is missing goes on from
        # the last one that is here as a whole.
        task.base = node if node.pages == node.full else node.parent
        task.start = start
        task.pages, task.reserved = start // page, own
        self._beside += own
        return True

    def read(self, task: Task, tokens: int) -> None:
        """Its pages were kept when it was admitted."""

    def known(self, task: Task) -> None:
        # Where somebody else has read the same meanwhile, one copy goes: a moment to settle before.
        node = task.node
        assert node is not None
        if node.children or node.start // self._page + node.pages > task.pages:
            self.settle()
        by_beat = self._by_beat
        if by_beat:
            self._beside -= task.reserved
            task.reserved = 0
        self._hold(task, len(task.times), task.target)
        if by_beat:
            self._beside -= task.pages

    def release(self, task: Task, generated: int, written: int, *, keep: bool) -> None:
        assert task.seat is not None
        if task.reserved:
            self._beside -= task.reserved
            task.reserved = 0
        else:
            self._beside += task.pages
        if keep:
            self._hold(task, generated, written)
        assert task.node is not None
        self.tree.unlock(task.node)
        task.node = None
        heappush(self._seats, task.seat)

    def settle(self) -> None:
        tree = self.tree
        if tree.pages > tree.used:
            tree.shrink(self._limit - self._private())

    def fit(self, beat: int, reads: int, decodes: bool, most: int) -> int:  # noqa: ARG002
        if not decodes or not self._by_beat:
            return most
        decoders, pages = self._decoders, self._limit - self.tree.used - self._beside
        last = beat + most - 1
        if decoders.most_pages(last) <= pages or decoders.pages_after(last) <= pages:
            return most
        low, high = 0, most  # the first `low` beats fit, the first `high` do not
        while high - low > 1:
            middle = (low + high) // 2
            if decoders.pages_after(beat + middle - 1) <= pages:
                low = middle
            else:
                high = middle
        return low

    def idle(self) -> list[tuple[int, int]]:
        return []

    def used_share(self) -> float | None:
        return (self.tree.used + self._private()) / self._limit

    def _private(self) -> int:
        """Pages that running sequences hold beside the tree."""
        if not self._by_beat:
            return self._beside
        decoders = self._decoders
        return self._beside + decoders.pages_after(decoders.beat)

    def _find(self, task: Task) -> Match:
        """How much of the prompt, and of the answer so far, the tree holds."""
        tree = self.tree
        if not self._design.prefix_cache:
            return tree.match([])
        if task.path is None:
            task.path = pieces_of(task.segments)
            found = tree.match(task.path)
            if not _has_blocks(task.segments, found.depth):
                return found
            task.path = tree.path(task.segments)
        if task.times:
            return tree.match([*task.path, (task.request.answer_id, len(task.times))])
        return tree.match(task.path)

    def _hold(self, task: Task, generated: int, written: int) -> None:
        """What `task` has written becomes part of the tree, and is its own no more."""
        path = task.path
        if path is None:  # without a prefix cache
            return
        tree, old, node, depth = self.tree, task.node, task.base, task.depth
        assert old is not None
        assert node is not None
        answer = (task.request.answer_id, generated)
        if generated and task.preemptions and _is_shorter(old, answer):
            # What there was of the answer when it was preempted.
            old = tree.rename(old, answer)
            node, depth = old.parent, len(path)
        for piece in path[depth:]:
            node = tree.extend(node, piece, written, old)
        if generated and depth <= len(path):
            node = tree.extend(node, answer, written, old)
        if node is not old:
            tree.lock(node)
            tree.unlock(old)
        task.node = task.base = node
        task.depth = len(path) + (generated > 0)
        pages = written // self._page
        if task.reserved:
            moved = min(task.reserved, pages - task.pages)
            task.reserved -= moved
            self._beside -= moved
        task.pages = pages


def _is_shorter(node: Node, answer: Piece) -> bool:
    """Whether `node` ends with a shorter form of the answer."""
    if not node.pieces:
        return False
    content_id, tokens = node.pieces[-1]
    return content_id == answer[0] and tokens != answer[1]


def _has_blocks(segments: tuple[Segment, ...], depth: int) -> bool:
    """Whether 16-token blocks are known of what comes after the first `depth` segments."""
    for segment in segments[depth:]:  # noqa: SIM110
        if segment.blocks:
            return True
    return False
