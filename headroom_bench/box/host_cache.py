"""Text parked in host memory: what slots lost, to be brought back for a prompt that shares it.

llama.cpp's `--cache-ram` (tools/server, `server_prompt_cache`): first in, first out over its size;
a text that another one contains is not kept twice; a text of which a prompt would use less than a
quarter stays where it is; what is brought back is parked no more.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from headroom_bench.segments import Segment

if TYPE_CHECKING:
    from headroom_bench.box.slots import Held

LEAST_KEPT = 0.25
"""llama.cpp: "don't trash large prompts"."""

_Key = tuple[str, int] | int
"""What comes after a place: a whole segment, or the first 16 tokens of one whose text is known."""


class _Place:
    """A beginning that texts share."""

    __slots__ = ("key", "living", "next", "parent", "texts")

    def __init__(self, parent: _Place | None, key: _Key) -> None:
        self.parent = parent
        self.key = key
        self.next: dict[_Key, _Place] = {}
        self.living = 0
        """Parked texts that begin so."""
        self.texts: list[tuple[int, int]] = []
        """These, and some that are parked no more: a heap of tokens and numbers."""


class HostCache:
    """Room for so many tokens; one text is kept however long it is."""

    __slots__ = ("_numbers", "_places", "_root", "limit", "texts", "tokens")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens = 0
        self.texts: OrderedDict[int, Held] = OrderedDict()
        """What is parked, by number, the oldest first."""
        self._places: dict[int, list[_Place]] = {}  # the beginnings of each text
        self._numbers = count()
        self._root = _Place(None, 0)

    def park(self, held: Held) -> int:
        """Keep a copy. Returns the tokens that were copied: 0 where all of it is here already."""
        valid = held.valid_tokens
        if not valid or held.parked_in in self.texts:
            return 0
        for number, other, shared in self._related(held.segments):
            if min(shared, valid) == valid:
                held.parked_in = number
                return 0
            if shared == other.valid_tokens:
                self._drop(number)
        number = held.parked_in = next(self._numbers)
        self.texts[number] = held
        self.tokens += valid
        places = self._places[number] = self._make_places(held.segments)
        for place in places:
            place.living += 1
            heappush(place.texts, (valid, number))
        while self.tokens > self.limit and len(self.texts) > 1:
            self._drop(next(iter(self.texts)))
        return valid

    def fetch(self, asked: tuple[Segment, ...], shared: int, of: int) -> Held | None:
        """The text most like `asked`, if it beats `shared` tokens of `of`, both in tokens and in
        the share of it that would be kept. It is parked no more."""
        kept = shared / of if of else -1.0
        best: int | None = None
        for number, other, tokens in self._related(asked):
            share = tokens / other.valid_tokens
            if share >= LEAST_KEPT and share > kept and tokens > shared:
                best, kept, shared = number, share, tokens
        if best is None:
            return None
        held = self.texts[best]
        self._drop(best)
        return held

    def _related(self, asked: tuple[Segment, ...]) -> list[tuple[int, Held, int]]:
        """For each beginning of `asked`, the longest first: the shortest text that has it, with the
        tokens that it shares. No other could win over these."""
        texts = self.texts
        found: dict[int, tuple[int, Held, int]] = {}
        for place in reversed(self._find_places(asked)):
            heap = place.texts
            while heap[0][1] not in texts:
                heappop(heap)
            number = heap[0][1]
            if number not in found:
                held = texts[number]
                found[number] = (number, held, held.shared(asked))
        return list(found.values())

    def _find_places(self, segments: tuple[Segment, ...]) -> list[_Place]:
        """The beginnings of a text that parked ones share, the shortest first."""
        here: _Place | None = self._root
        places = []
        for segment in segments:
            assert here is not None
            if segment.blocks:
                start = here.next.get(segment.blocks[0])
                if start is not None:
                    places.append(start)
            here = here.next.get((segment.content_id, segment.tokens))
            if here is None:
                break
            places.append(here)
        return places

    def _make_places(self, segments: tuple[Segment, ...]) -> list[_Place]:
        """All beginnings of a text, in whole segments, and in 16 tokens more where they are
        known."""
        here = self._root
        places = []
        for segment in segments:
            if segment.blocks:
                places.append(_after(here, segment.blocks[0]))
            here = _after(here, (segment.content_id, segment.tokens))
            places.append(here)
        return places

    def _drop(self, number: int) -> None:
        texts = self.texts
        self.tokens -= texts.pop(number).valid_tokens
        for place in self._places.pop(number):
            place.living -= 1
            if not place.living:
                assert place.parent is not None
                del place.parent.next[place.key]
            elif len(place.texts) > 2 * place.living + 8:  # or it would grow with a server's life
                place.texts = [entry for entry in place.texts if entry[1] in texts]
                heapify(place.texts)


def _after(place: _Place, key: _Key) -> _Place:
    """The place where `key` goes on, made if it is not there."""
    after = place.next.get(key)
    if after is None:
        after = place.next[key] = _Place(place, key)
    return after
