"""What is parked is bounded, and so is what is remembered of it."""

from __future__ import annotations

from random import Random

from headroom_bench.box.host_cache import HostCache, _Place
from headroom_bench.box.slots import Held
from headroom_bench.segments import Segment


def text(name: str, tokens: int) -> Held:
    shared = Segment("system", "system", "prose", "shared", 5)
    own = Segment("user", "user", "prose", name, tokens)
    return Held((shared, own), 5 + tokens)


def remembered(place: _Place) -> int:
    """Entries of this beginning and of all that go on from it."""
    return len(place.texts) + sum(map(remembered, place.next.values()))


def test_a_long_life_remembers_no_more_than_what_is_there() -> None:
    cache, draw = HostCache(500), Random(0)
    cache.park(text("short", 1))
    for number in range(3000):
        cache.park(text(f"text {number}", draw.randint(10, 60)))
        if number % 100 == 0:  # the shortest stays, so the others are never the first of their heap
            again = cache.fetch(text("short", 1).segments, 0, 0)
            cache.park(again or text("short", 1))
    assert cache.tokens <= 500
    assert remembered(cache._root) <= 3 * 2 * len(cache.texts) + 20
