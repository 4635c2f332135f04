"""What a paged memory holds of past prompts: a tree in which shared beginnings are stored once.

A node is one segment after the segments of its ancestors, so equal paths are equal text. A page
belongs to the node in which it ends; text of a path that fills no whole page is not kept. Pages of
nodes that no running sequence uses may be evicted: the node unused for longest first, its last
pages first (vLLM's and SGLang's LRU order).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment

TIDY_OFFERS = 1024
"""Look through the leaves on offer when about so many more have come than there were."""

Atom = tuple[object, int]
"""A piece of text: what identifies it after what precedes it, and its tokens."""


def _pieces(segment: Segment) -> list[Atom]:
    """A text in the 16-token blocks that are known of it, and the rest."""
    known = segment.blocks[: segment.tokens // HASH_BLOCK_TOKENS]
    pieces: list[Atom] = [(block, HASH_BLOCK_TOKENS) for block in known]
    rest = segment.tokens - HASH_BLOCK_TOKENS * len(known)
    if rest:
        pieces.append(((segment.content_id, segment.tokens), rest))
    return pieces


class Node:
    """One atom in its place."""

    __slots__ = ("children", "end", "full", "key", "pages", "parent", "refs", "stamp", "start")

    def __init__(self, key: object, parent: Node | None, start: int, end: int, page: int) -> None:
        self.key = key
        self.parent = parent
        self.start = start
        """Tokens before it."""
        self.end = end
        """Tokens up to its end."""
        self.full = end // page - start // page
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
        self.root = Node(None, None, 0, 0, page_tokens)
        self.root.refs = 1
        self.pages = 0
        """Pages held, used or not."""
        self.evictable = 0
        """Those that no running sequence uses."""
        self._page = page_tokens
        self._heap: list[tuple[int, int, Node]] = []  # leaves by when they were last used
        self._offers = 0  # since the last tidying
        self._order = 0

    def atoms(self, segments: tuple[Segment, ...]) -> list[Atom]:
        """A prompt in the pieces by which it is, or will be, held: whole segments, but those of
        which more is known in 16-token blocks, unless they are here whole (an answer is)."""
        atoms: list[Atom] = []
        node: Node | None = self.root
        for segment in segments:
            whole: Atom = ((segment.content_id, segment.tokens), segment.tokens)
            pieces = [whole]
            if segment.blocks and (node is None or whole[0] not in node.children):
                pieces = _pieces(segment)
            for atom in pieces:
                node = None if node is None else node.children.get(atom[0])
            atoms += pieces
        return atoms

    def match(self, atoms: list[Atom]) -> tuple[Node, int, int]:
        """The deepest node on the way of `atoms`, how many of them are here as a whole, and the
        tokens in whole pages up to there."""
        node, depth, page = self.root, 0, self._page
        for atom in atoms:
            child = node.children.get(atom[0])
            if child is None:
                break
            if child.pages < child.full:
                return child, depth, (child.start // page + child.pages) * page
            node = child
            depth += 1
        return node, depth, node.end // page * page

    def insert(self, node: Node, atoms: list[Atom], written: int) -> Node:
        """Hold the first `written` tokens of the path that goes on with `atoms` after `node`, which
        is there as a whole. Returns the node in which they end."""
        page, start = self._page, node.end
        for key, tokens in atoms:
            if start >= written:
                break
            end = start + tokens
            child = node.children.get(key)
            if child is None:
                child = Node(key, node, start, end, page)
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

    def rename(self, node: Node, key: object, tokens: int) -> Node:
        """A leaf that one running sequence alone uses turns out to be the beginning of a longer
        atom. Returns the node of that, which the sequence uses now."""
        parent = node.parent
        assert parent is not None
        del parent.children[node.key]
        same = parent.children.get(key)
        if same is not None:  # somebody else's: one copy is enough
            self.lock(same)
            self.pages -= node.pages
            node.parent = None
            parent.refs -= 1
            return same
        node.key = key
        node.end = node.start + tokens
        node.full = node.end // self._page - node.start // self._page
        parent.children[key] = node
        return node

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
        if 2 * self._offers > len(self._heap) + TIDY_OFFERS:
            self._tidy()

    def _tidy(self) -> None:
        """Drop offers that no longer hold, so that they do not pile up where nothing is evicted."""
        self._heap[:] = [
            offer
            for offer in self._heap
            if offer[2].parent is not None
            and not offer[2].refs
            and not offer[2].children
            and offer[2].stamp == offer[0]
        ]
        heapify(self._heap)
        self._offers = 0
