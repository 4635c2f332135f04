"""What a paged memory holds of past prompts: a tree in which shared beginnings are stored once.

A node is one segment after the segments of its ancestors, so equal paths are equal text. A page
belongs to the node in which it ends; text of a path that fills no whole page is not kept. Pages of
nodes that no running sequence uses may be evicted: the node unused for longest first, its last
pages first (vLLM's and SGLang's LRU order).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment

Atom = tuple[object, int]
"""A piece of text: what identifies it after what precedes it, and its tokens."""


def atoms_of(segments: tuple[Segment, ...]) -> list[Atom]:
    """Pieces that are equal where text is: whole segments, or 16-token blocks where known."""
    atoms: list[Atom] = []
    for segment in segments:
        if not segment.blocks:
            atoms.append(((segment.content_id, segment.tokens), segment.tokens))
            continue
        known = segment.blocks[: segment.tokens // HASH_BLOCK_TOKENS]
        atoms += ((block, HASH_BLOCK_TOKENS) for block in known)
        rest = segment.tokens - HASH_BLOCK_TOKENS * len(known)
        if rest:
            atoms.append(((segment.content_id, segment.tokens), rest))
    return atoms


class Node:
    """One atom in its place."""

    __slots__ = ("children", "full", "key", "pages", "parent", "refs", "stamp", "start")

    def __init__(self, key: object, parent: Node | None, start: int, full: int) -> None:
        self.key = key
        self.parent = parent
        self.start = start
        """Tokens before it."""
        self.full = full
        """Pages that end in it when it is there as a whole."""
        self.pages = 0
        """Those that are there, from its start on."""
        self.refs = 0
        """Running sequences that end here, and children with any."""
        self.stamp = 0
        """When it was last used."""
        self.children: dict[object, Node] = {}


class PrefixTree:
    """Pages by content. Raises nothing: the caller sees to it that the pages exist."""

    __slots__ = ("_heap", "_offers", "_order", "_page", "evictable", "pages", "root")

    def __init__(self, page_tokens: int) -> None:
        self.root = Node(None, None, 0, 0)
        self.root.refs = 1
        self.pages = 0
        """Pages held, used or not."""
        self.evictable = 0
        """Those that no running sequence uses."""
        self._page = page_tokens
        self._heap: list[tuple[int, int, Node]] = []  # leaves by when they were last used
        self._offers = 0  # since the last tidying
        self._order = 0

    def match(self, atoms: list[Atom]) -> tuple[Node, int]:
        """The deepest node on the way of `atoms`, and the tokens in whole pages up to there."""
        node, end = self.root, 0
        for atom in atoms:
            child = node.children.get(atom[0])
            if child is None:
                break
            node = child
            if child.pages < child.full:
                end = (child.start // self._page + child.pages) * self._page
                break
            end = child.start + atom[1]
        return node, end // self._page * self._page

    def insert(self, atoms: list[Atom], written: int) -> Node:
        """Hold the first `written` tokens of `atoms`. Returns the node in which they end."""
        page, node, start = self._page, self.root, 0
        for key, tokens in atoms:
            if start >= written:
                break
            end = start + tokens
            child = node.children.get(key)
            if child is None:
                child = Node(key, node, start, end // page - start // page)
                node.children[key] = child
            want = (end if end < written else written) // page - start // page
            if child.pages < want:
                new = want - child.pages
                child.pages = want
                self.pages += new
                if not child.refs:
                    self.evictable += new
            node, start = child, end
        return node

    def rename(self, node: Node, key: object, tokens: int) -> None:
        """A leaf that one sequence alone uses turns out to be the beginning of a longer atom."""
        assert node.parent is not None
        del node.parent.children[node.key]
        node.key = key
        node.full = (node.start + tokens) // self._page - node.start // self._page
        node.parent.children[key] = node

    def lock(self, node: Node) -> None:
        """A running sequence uses the path down to `node`."""
        here: Node | None = node
        while here is not None:
            here.refs += 1
            if here.refs > 1:
                return
            self.evictable -= here.pages
            here = here.parent

    def unlock(self, node: Node, stamp: int) -> None:
        """It does no more, since the moment `stamp`; stamps may not fall."""
        here: Node | None = node
        while here is not None:
            here.refs -= 1
            if here.refs:
                return
            self.evictable += here.pages
            here.stamp = stamp
            if not here.children:
                self._offer(here)
            here = here.parent

    def unused_pages(self, node: Node) -> int:
        """Pages on the way to `node` that no running sequence uses."""
        pages = 0
        here: Node | None = node
        while here is not None and not here.refs:
            pages += here.pages
            here = here.parent
        return pages

    def evict(self, pages: int) -> None:
        """Let go of so many pages. There must be as many evictable ones."""
        heap = self._heap
        while pages > 0:
            stamp, _, node = heap[0]
            parent = node.parent
            if parent is None or node.refs or node.children or node.stamp != stamp:
                heappop(heap)
                continue
            gone = min(pages, node.pages)
            node.pages -= gone
            self.pages -= gone
            self.evictable -= gone
            pages -= gone
            if node.pages:
                return
            heappop(heap)
            del parent.children[node.key]
            node.parent = None
            if not parent.children and not parent.refs:
                self._offer(parent)

    def _offer(self, leaf: Node) -> None:
        """`leaf` may be evicted."""
        self._order += 1
        heappush(self._heap, (leaf.stamp, self._order, leaf))
        self._offers += 1
        if 2 * self._offers > len(self._heap) + 1024:
            self._tidy()

    def _tidy(self) -> None:
        """Drop offers that no longer hold, so that they do not pile up where nothing is evicted."""
        self._heap = [
            offer
            for offer in self._heap
            if offer[2].parent is not None
            and not offer[2].refs
            and not offer[2].children
            and offer[2].stamp == offer[0]
        ]
        heapify(self._heap)
        self._offers = 0
