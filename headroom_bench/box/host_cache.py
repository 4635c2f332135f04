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

_Key = tuple[object, ...]


class HostCache:
    """Room for so many tokens; one text is kept however long it is."""

    __slots__ = ("_by_prefix", "_living", "_numbers", "_texts", "limit", "tokens")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.tokens = 0
        self._texts: OrderedDict[int, Held] = OrderedDict()  # the oldest first
        self._numbers = count()
        # For every beginning of every text, in whole segments: the shortest such texts first.
        self._by_prefix: dict[_Key, list[tuple[int, int]]] = {}
        self._living: dict[_Key, int] = {}

    def park(self, held: Held) -> int:
        """Keep a copy. Returns the tokens that were copied: 0 where all of it is here already."""
        if not held.valid_tokens:
            return 0
        for number, other, shared in self._related(held.segments):
            shared = min(shared, held.valid_tokens)
            if shared == held.valid_tokens:
                return 0
            if shared == other.valid_tokens:
                self._drop(number)
        number = next(self._numbers)
        self._texts[number] = held
        self.tokens += held.valid_tokens
        for key in _prefixes(held.segments):
            heappush(self._by_prefix.setdefault(key, []), (held.valid_tokens, number))
            self._living[key] = self._living.get(key, 0) + 1
        while self.tokens > self.limit and len(self._texts) > 1:
            self._drop(next(iter(self._texts)))
        return held.valid_tokens

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
        held = self._texts[best]
        self._drop(best)
        return held

    def _related(self, asked: tuple[Segment, ...]) -> list[tuple[int, Held, int]]:
        """For each beginning of `asked`, the longest first: the shortest text that has it, with the
        tokens that it shares. No other could win over these."""
        found: dict[int, tuple[int, Held, int]] = {}
        for key in reversed(_prefixes(asked)):
            heap = self._by_prefix.get(key)
            if heap is None:
                continue
            while heap[0][1] not in self._texts:
                heappop(heap)
            number = heap[0][1]
            if number not in found:
                held = self._texts[number]
                found[number] = (number, held, held.shared(asked))
        return list(found.values())

    def _drop(self, number: int) -> None:
        held = self._texts.pop(number)
        self.tokens -= held.valid_tokens
        for key in _prefixes(held.segments):
            living = self._living[key] = self._living[key] - 1
            heap = self._by_prefix[key]
            if not living:
                del self._by_prefix[key], self._living[key]
            elif len(heap) > 2 * living + 8:  # or a server's memory would grow with its life
                heap[:] = [entry for entry in heap if entry[1] in self._texts]
                heapify(heap)


def _prefixes(segments: tuple[Segment, ...]) -> list[_Key]:
    """Keys of the beginnings in whole segments, and of the first 16 tokens where text is known."""
    keys: list[_Key] = []
    key: _Key = ()
    for segment in segments:
        if segment.blocks:
            keys.append((key, segment.blocks[0]))
        key = (key, segment.content_id, segment.tokens)
        keys.append(key)
    return keys
