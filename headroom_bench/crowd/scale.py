"""The same crowd with more or fewer people in it."""

from __future__ import annotations

import heapq
from dataclasses import replace

from headroom_bench.crowd.crowd import Crowd, Group


def least_people(crowd: Crowd) -> int:
    """The fewest that it can have: one of every group."""
    return len(crowd.groups)


def scaled(crowd: Crowd, people: int) -> Crowd:
    """`people` of the same mix: one of every group first, then by Webster's divisors.

    Webster's method (each further seat to the group with the largest count / (2·seats + 1)) keeps
    proportions as whole people allow, and never takes a seat back: a larger crowd holds the smaller
    one, person by person, which makes its redline a matter of load rather than of luck.
    Raises ValueError below one of every group.
    """
    if people < least_people(crowd):
        raise ValueError(f"{people} people cannot hold one of each of {len(crowd.groups)} groups")
    seats = [1] * len(crowd.groups)
    heap = [(-group.count / 3, place) for place, group in enumerate(crowd.groups)]
    heapq.heapify(heap)
    for _ in range(people - len(seats)):
        place = heap[0][1]
        seats[place] += 1
        heapq.heapreplace(heap, (-crowd.groups[place].count / (2 * seats[place] + 1), place))
    groups = tuple(Group(g.persona, n) for g, n in zip(crowd.groups, seats, strict=True))
    return replace(crowd, groups=groups)
