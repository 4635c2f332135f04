"""What a paged memory holds of past prompts: a tree in which shared beginnings are stored once.

A node is one segment after the segments of its ancestors, so equal paths are equal text. A page
belongs to the node in which it ends; text of a path that fills no whole page is not kept. Pages of
nodes that no running sequence uses may be evicted: the node unused for longest first, its last
pages first (vLLM's and SGLang's LRU order).

A sequence that ends lets go of one way down from the root, so what may be evicted is a queue of
such ways, each known by its deepest node: nodes before it go when those after them are gone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment

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
        self.parent = parent or self
        """The root is its own."""
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
        """The way with which it was let go of last."""
        self.children = 0
        """How many go on from here."""


class Match(NamedTuple):
    """How much of a path is here."""

    node: Node
    """The deepest node on its way."""
    depth: int
    """Pieces of it that are here as a whole."""
    tokens: int
    """Its tokens in whole pages that are here."""
    unused: int
    """Of these pages, those that no running sequence uses."""


class PrefixTree:
    """Pages by content. Raises nothing: the caller sees to it that the pages exist."""

    __slots__ = ("_made", "_nodes", "_page", "_stamp", "_unused", "evictable", "pages", "root")

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
        # The deepest node of each way that was let go of and not used since, the oldest first.
        self._unused: OrderedDict[Node, None] = OrderedDict()
        self._stamp = 0

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

    def match(self, path: tuple[Segment, ...]) -> Match:
        """Follow `path` as far as it is here."""
        node, depth, unused, page, nodes = self.root, 0, 0, self._page, self._nodes
        for piece in path:
            child = nodes.get((node.number, piece.content_id, piece.tokens))
            if child is None:
                break
            if not child.refs:
                unused += child.pages
            if child.pages < child.full:
                return Match(child, depth, (child.start // page + child.pages) * page, unused)
            node = child
            depth += 1
        return Match(node, depth, node.end // page * page, unused)

    def extend(self, node: Node, content_id: str, tokens: int, written: int) -> Node:
        """Hold the piece that goes on after `node`, which is there as a whole, as far as it is
        among the first `written` tokens of its path. Returns its node, or `node` if it is not."""
        start = node.end
        if start >= written:
            return node
        key = (node.number, content_id, tokens)
        end = start + tokens
        child = self._nodes.get(key)
        if child is None:
            child = self._nodes[key] = Node(self._made, key, node, start, end, self._page)
            self._made += 1
            node.children += 1
        want = child.full if end <= written else written // self._page - start // self._page
        new = want - child.pages
        if new > 0:
            child.pages = want
            self.pages += new
            if not child.refs:
                self.evictable += new
        return child

    def rename(self, node: Node, content_id: str, tokens: int) -> Node:
        """A leaf that one running sequence alone uses turns out to be the beginning of a longer
        answer. Returns the node of that, which the sequence uses now."""
        parent = node.parent
        key = (parent.number, content_id, tokens)
        del self._nodes[node.key]
        same = self._nodes.get(key)
        if same is not None:  # somebody else's: one copy is enough
            self.lock(same)
            self.pages -= node.pages
            parent.refs -= 1
            parent.children -= 1
            return same
        node.key = key
        node.end = node.start + tokens
        node.full = node.end // self._page - node.start // self._page
        self._nodes[key] = node
        return node

    def lock(self, node: Node) -> None:
        """A running sequence uses the path down to `node`."""
        here, unused = node, self._unused
        while not here.refs:  # the root always has one
            here.refs = 1
            self.evictable -= here.pages
            if here in unused:
                del unused[here]
            here = here.parent
        here.refs += 1

    def unlock(self, node: Node) -> None:
        """It does no more."""
        self._stamp = stamp = self._stamp + 1
        if node.refs == 1:
            self._unused[node] = None
        here = node
        while here.refs == 1:
            here.refs = 0
            here.stamp = stamp
            self.evictable += here.pages
            here = here.parent
        here.refs -= 1

    def move(self, old: Node, node: Node) -> None:
        """A running sequence that used the path down to `old` uses that down to `node`."""
        if node.parent is old and not node.refs:
            node.refs = 1
            self.evictable -= node.pages
            self._unused.pop(node, None)
        elif node is not old:
            self.lock(node)
            self.unlock(old)

    def evict(self, pages: int) -> None:
        """Let go of so many pages. There must be as many evictable ones."""
        self.pages -= pages
        self.evictable -= pages
        unused = self._unused
        while pages > 0:
            node = next(iter(unused))
            if node.pages > pages:
                node.pages -= pages
                return
            pages -= node.pages
            self._drop(node)

    def _drop(self, node: Node) -> None:
        """Forget a leaf: the way that it was the last of ends before it now."""
        parent, unused = node.parent, self._unused
        del unused[node], self._nodes[node.key]
        parent.children -= 1
        if parent.stamp == node.stamp and not parent.refs:
            unused[parent] = None
            unused.move_to_end(parent, last=False)

    def _child(self, node: Node | None, piece: Segment) -> Node | None:
        if node is None:
            return None
        return self._nodes.get((node.number, piece.content_id, piece.tokens))
