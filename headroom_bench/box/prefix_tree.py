"""What a paged memory holds of past prompts: a tree in which shared beginnings are stored once.

A node is text after the text of its ancestors: one or more pieces (segments, answers) that have
always been used together, so that a long conversation is a node or a few. Where paths part, nodes
are cut in two. A page belongs to the piece in which it ends; text of a path that fills
no whole page is not kept. Pages of nodes that no running sequence uses may be evicted: the node
unused for longest first, its last pages first (vLLM's and SGLang's LRU order).

A sequence that ends lets go of one way down from the root, so what may be evicted is a queue of
such ways, each known by its deepest node: nodes before it go when those after them are gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from headroom_bench.box.events import made
from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment

Piece = tuple[str, int]
"""A text that is always used as a whole: content id and tokens."""


def pieces_of(segments: Sequence[Segment]) -> list[Piece]:
    """Whole segments."""
    return [(segment.content_id, segment.tokens) for segment in segments]


def _blocks_of(segment: Segment) -> list[Piece]:
    """A text in the 16-token blocks that are known of it, and the rest."""
    known = segment.blocks[: segment.tokens // HASH_BLOCK_TOKENS]
    pieces = [(f"#{block}", HASH_BLOCK_TOKENS) for block in known]
    rest = segment.tokens - HASH_BLOCK_TOKENS * len(known)
    if rest:
        pieces.append((f"{segment.content_id}#{segment.tokens}", rest))
    return pieces


class Node:
    """Pieces of text in their place."""

    __slots__ = (
        "children",
        "end",
        "ends",
        "full",
        "number",
        "pages",
        "parent",
        "pieces",
        "refs",
        "stamp",
        "start",
    )

    def __init__(self, number: int, parent: Node | None, start: int) -> None:
        self.number = number
        """Nodes before it."""
        self.parent = parent or self
        """The root is its own."""
        self.pieces: list[Piece] = []
        """None in the root only."""
        self.start = start
        """Tokens before it."""
        self.ends: list[int] = []
        """Tokens up to the end of each piece."""
        self.end = start
        """Tokens up to its end."""
        self.full = 0
        """Pages that end in it when it is there as a whole."""
        self.pages = 0
        """Those that are there, from its start on. Who is not whole has no children."""
        self.refs = 0
        """Running sequences that end here, and children with any."""
        self.stamp = 0
        """The way with which it was let go of last."""
        self.children = 0
        """How many go on from here."""


class Match(NamedTuple):
    """How much of a path is here."""

    node: Node
    """The deepest node on its way, perhaps a last piece that is here in part."""
    depth: int
    """Pieces of it that are here as a whole."""
    tokens: int
    """Its tokens in whole pages that are here."""
    unused: int
    """Of these pages, those that no running sequence uses."""


class PrefixTree:
    """Pages by content. Raises nothing: the caller sees to it that the pages exist."""

    __slots__ = ("_made", "_nodes", "_page", "_stamp", "_unused", "pages", "root", "used")

    def __init__(self, page_tokens: int) -> None:
        self.root = Node(0, None, 0)
        self.root.refs = 1
        self._nodes: dict[tuple[int, Piece], Node] = {}  # by the parent's number and first piece
        self._made = 1
        self.pages = 0
        """Pages held, used or not."""
        self.used = 0
        """Those of them that running sequences use."""
        self._page = page_tokens
        # The deepest node of each way that was let go of and not used since, the oldest first.
        self._unused: OrderedDict[Node, None] = OrderedDict()
        self._stamp = 0

    # --- looking up ---------------------------------------------------------------------------

    def path(self, segments: Sequence[Segment]) -> list[Piece]:
        """A prompt in the pieces by which it is, or will be, held: whole segments, but those of
        which more is known in 16-token blocks, unless they are here whole (an answer is)."""
        path: list[Piece] = []
        place: tuple[Node, int] | None = (self.root, 0)
        for segment in segments:
            pieces = pieces_of((segment,))
            if segment.blocks and self._after(place, pieces[0]) is None:
                pieces = _blocks_of(segment)
            for piece in pieces:
                place = self._after(place, piece)
            path += pieces
        return path

    def match(self, path: list[Piece]) -> Match:
        """Follow `path` as far as it is here. Cuts the node in which it ends."""
        node, depth, unused, nodes = self.root, 0, 0, self._nodes
        while depth < len(path):
            child = nodes.get((node.number, path[depth]))
            if child is None:
                break
            pieces = child.pieces
            count = len(pieces)
            if count > 1 and (child.pages < child.full or path[depth : depth + count] != pieces):
                child = self._cut(child, path[depth : depth + count])
                count = len(child.pieces)
            if not child.refs:
                unused += child.pages
            if child.pages < child.full:
                held = child.start // self._page + child.pages
                return made(Match, (child, depth, held * self._page, unused))
            node = child
            depth += count
        return made(Match, (node, depth, node.end // self._page * self._page, unused))

    def _after(self, place: tuple[Node, int] | None, piece: Piece) -> tuple[Node, int] | None:
        """Where `piece` goes on after a place, a node and how many pieces into it, if it does."""
        if place is None:
            return None
        node, inside = place
        if inside == len(node.pieces):
            child = self._nodes.get((node.number, piece))
            return None if child is None else (child, 1)
        held = node.start // self._page + node.pages
        here = node.pages == node.full or node.ends[inside - 1] // self._page < held
        return (node, inside + 1) if here and node.pieces[inside] == piece else None

    # --- holding ------------------------------------------------------------------------------

    def extend(self, node: Node, piece: Piece, written: int, mine: Node) -> Node:
        """Hold the piece that goes on after `node`, which is there as a whole, as far as it is
        among the first `written` tokens of its path. Returns its node, or `node` if it is not.
        The sequence that wrote it uses the path down to `mine`."""
        start = node.end
        if start >= written:
            return node
        page, end = self._page, start + piece[1]
        child = node
        if node.children or node.refs > (node is mine):  # others go on from it, or use it
            child = self._nodes.get((node.number, piece)) or self._child(node, piece)
            if len(child.pieces) > 1:
                child = self._cut(child, [piece])
        if child is node or not child.pieces:
            child.pieces.append(piece)
            child.ends.append(end)
            child.end = end
            child.full = end // page - child.start // page
        want = child.full if end <= written else written // page - child.start // page
        new = want - child.pages
        if new > 0:
            child.pages = want
            self.pages += new
            if child.refs:
                self.used += new
        return child

    def _child(self, node: Node, piece: Piece) -> Node:
        """A new one, to be filled from `piece` on."""
        child = self._nodes[(node.number, piece)] = Node(self._made, node, node.end)
        self._made += 1
        node.children += 1
        return child

    def rename(self, node: Node, answer: Piece) -> Node:
        """The last piece of a leaf that one running sequence alone uses turns out to be the
        beginning of a longer answer. Returns the node of that, which the sequence uses now."""
        if len(node.pieces) > 1:
            self._part(node, len(node.pieces) - 1)
        parent = node.parent
        del self._nodes[(parent.number, node.pieces[0])]
        same = self._nodes.get((parent.number, answer))
        if same is not None:  # somebody else's: one copy is enough
            same = self._cut(same, [answer])
            self.lock(same)
            self.pages -= node.pages
            self.used -= node.pages
            parent.refs -= 1
            parent.children -= 1
            return same
        end = node.start + answer[1]
        node.pieces, node.ends, node.end = [answer], [end], end
        node.full = end // self._page - node.start // self._page
        self._nodes[(parent.number, answer)] = node
        return node

    def _cut(self, node: Node, path: list[Piece]) -> Node:
        """`node` has the first piece of `path`. Returns the node that holds as many more as both
        have and are here as a whole, or else the first piece alone, as far as it is here."""
        same = 1
        for ours, theirs in zip(node.pieces[1:], path[1:], strict=False):
            if ours != theirs:
                break
            same += 1
        held = node.start // self._page + node.pages
        whole = bisect_left(node.ends, (held + 1) * self._page)
        if whole:
            count = min(same, whole)
            return self._part(node, count) if count < len(node.pieces) else node
        del node.pieces[1:], node.ends[1:]  # nothing is left of these
        node.end = node.ends[0]
        node.full = node.end // self._page - node.start // self._page
        return node

    def _part(self, node: Node, count: int) -> Node:
        """The first `count` pieces of `node`, as a node of their own before it."""
        first = Node(self._made, node.parent, node.start)
        self._made += 1
        first.pieces, node.pieces = node.pieces[:count], node.pieces[count:]
        first.ends, node.ends = node.ends[:count], node.ends[count:]
        first.end = first.ends[-1]
        first.full = first.end // self._page - first.start // self._page
        first.pages = min(node.pages, first.full)
        first.refs = 1 if node.refs else 0
        first.stamp, first.children = node.stamp, 1
        node.parent, node.start = first, first.end
        node.full -= first.full
        node.pages -= first.pages
        self._nodes[(first.parent.number, first.pieces[0])] = first
        self._nodes[(first.number, node.pieces[0])] = node
        return first

    # --- using and letting go -----------------------------------------------------------------

    def lock(self, node: Node) -> None:
        """A running sequence uses the path down to `node`."""
        here, unused = node, self._unused
        while not here.refs:  # the root always has one
            here.refs = 1
            self.used += here.pages
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
            self.used -= here.pages
            here = here.parent
        here.refs -= 1
        while not (node.pages or node.refs or node.children):  # or such texts would pile up
            node = self._drop(node, last=True)

    def shrink(self, limit: int) -> None:
        """Let go of pages until no more than so many are held. No more may be in use."""
        excess = self.pages - limit
        if excess <= 0:
            return
        self.pages = limit
        unused = self._unused
        while excess > 0:
            node = next(iter(unused))
            if node.pages > excess:
                node.pages -= excess
                return
            excess -= node.pages
            self._drop(node, last=False)

    def _drop(self, node: Node, *, last: bool) -> Node:
        """Forget a leaf of the first or `last` way that may go: that ends before it now. Returns
        the node before it."""
        parent, unused = node.parent, self._unused
        del unused[node], self._nodes[(parent.number, node.pieces[0])]
        parent.children -= 1
        if parent.stamp == node.stamp and not parent.refs:
            unused[parent] = None
            unused.move_to_end(parent, last=last)
        return parent
