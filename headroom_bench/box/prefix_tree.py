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

Key = tuple[int, str, int]
"""What identifies a piece of text in its place: its parent's number, content id and tokens."""


def _pieces(segment: Segment) -> list[Segment]:
    """A text in the 16-token blocks that are known of it, and the rest."""
    name, role, kind = segment.name, segment.role, segment.kind
    known = segment.blocks[: segment.tokens // HASH_BLOCK_TOKENS]
    pieces = [Segment(name, role, kind, f"#{block}", HASH_BLOCK_TOKENS) for block in known]
    rest = segment.tokens - HASH_BLOCK_TOKENS * len(known)
    if rest:
        pieces.append(Segment(name, role, kind, f"{segment.content_id}#{segment.tokens}", rest))
    return pieces


class Node:
    """One piece of text in its place."""

    __slots__ = (
        "children",
        "end",
        "full",
        "key",
        "number",
        "pages",
        "parent",
        "refs",
        "stamp",
        "start",
    )

    def __init__(
        self, number: int, key: Key, parent: Node | None, start: int, end: int, page: int
    ) -> None:
        self.number = number
        """Nodes before it."""
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
        self.children = 0
        """How many go on from here."""


class PrefixTree:
    """Pages by content. Raises nothing: the caller sees to it that the pages exist."""

    __slots__ = (
        "_heap",
        "_made",
        "_nodes",
        "_offers",
        "_order",
        "_page",
        "evictable",
        "pages",
        "root",
    )

    def __init__(self, page_tokens: int) -> None:
        self.root = Node(0, (0, "", 0), None, 0, 0, page_tokens)
        self.root.refs = 1
        self._nodes: dict[Key, Node] = {}
        self._made = 1
        self.pages = 0
        """Pages held, used or not."""
        self.evictable = 0
        """Those that no running sequence uses."""
        self._page = page_tokens
        self._heap: list[tuple[int, int, Node]] = []  # leaves by when they were last used
        self._offers = 0  # since the last tidying
        self._order = 0

    def path(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """A prompt in the pieces by which it is, or will be, held: whole segments, but those of
        which more is known in 16-token blocks, unless they are here whole (an answer is)."""
        path: list[Segment] = []
        node: Node | None = self.root
        for segment in segments:
            pieces = [segment]
            if segment.blocks and self._child(node, segment) is None:
                pieces = _pieces(segment)
            for piece in pieces:
                node = self._child(node, piece)
            path += pieces
        return tuple(path)

    def match(self, path: tuple[Segment, ...]) -> tuple[Node, int, int]:
        """The deepest node on the way of `path`, how many pieces of that are here as a whole, and
        the tokens in whole pages up to there."""
        node, depth, page, nodes = self.root, 0, self._page, self._nodes
        for piece in path:
            child = nodes.get((node.number, piece.content_id, piece.tokens))
            if child is None:
                break
            if child.pages < child.full:
                return child, depth, (child.start // page + child.pages) * page
            node = child
            depth += 1
        return node, depth, node.end // page * page

    def insert(self, node: Node, pieces: tuple[Segment, ...], written: int) -> Node:
        """Hold the first `written` tokens of the path that goes on with `pieces` after `node`,
        which is there as a whole. Returns the node in which they end."""
        page, start = self._page, node.end
        for piece in pieces:
            if start >= written:
                break
            tokens = piece.tokens
            key = (node.number, piece.content_id, tokens)
            end = start + tokens
            child = self._nodes.get(key)
            if child is None:
                child = self._nodes[key] = Node(self._made, key, node, start, end, page)
                self._made += 1
                node.children += 1
            want = (end if end < written else written) // page - start // page
            if child.pages < want:
                new = want - child.pages
                child.pages = want
                self.pages += new
                if not child.refs:
                    self.evictable += new
            node, start = child, end
        return node

    def rename(self, node: Node, answer: Segment) -> Node:
        """A leaf that one running sequence alone uses turns out to be the beginning of a longer
        answer. Returns the node of that, which the sequence uses now."""
        parent = node.parent
        assert parent is not None
        key = (parent.number, answer.content_id, answer.tokens)
        del self._nodes[node.key]
        same = self._nodes.get(key)
        if same is not None:  # somebody else's: one copy is enough
            self.lock(same)
            self.pages -= node.pages
            node.parent = None
            parent.refs -= 1
            parent.children -= 1
            return same
        node.key = key
        node.end = node.start + answer.tokens
        node.full = node.end // self._page - node.start // self._page
        self._nodes[key] = node
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
            del self._nodes[node.key]
            parent.children -= 1
            node.parent = None
            if not parent.children and not parent.refs:
                self._offer(parent)

    def _child(self, node: Node | None, piece: Segment) -> Node | None:
        if node is None:
            return None
        return self._nodes.get((node.number, piece.content_id, piece.tokens))

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
