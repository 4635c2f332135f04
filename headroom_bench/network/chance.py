"""Chance by counting: the n-th number of a seed (SplitMix64, `seeds`), one by one or at once.

A longer vector begins as a shorter one does, and no generator is made or kept.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from headroom_bench.seeds import fraction, splitmix64

Values = NDArray[np.float64]

_INCREMENT = 0x9E3779B97F4A7C15
_WORD = 2**64 - 1
_SALT = 0xD1342543DE82EF95
"""Any odd number with as many ones as zeros: a multiplier of L'Ecuyer's (1999)."""
_HALF_STEP = 2.0**-53
"""Keeps numbers off 0, and as far off 1."""
# SplitMix64's, as arrays of one number: anything else NumPy converts at each use, which takes as
# long as the use.
_SHIFTS = tuple(np.array(shift, dtype=np.uint64) for shift in (30, 27, 31))
_FACTORS = tuple(
    np.array(factor, dtype=np.uint64) for factor in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_UNUSED_BITS = np.array(12, dtype=np.uint64)
"""A double between 1 and 2 holds 52 bits."""
_BITS_OF_ONE = np.array(1.0).view(np.uint64)
_BELOW_ONE = np.array(1.0 - _HALF_STEP)

_multiples = np.zeros(0, dtype=np.uint64)


def beside(seed: int) -> int:
    """Another seed, whose numbers have nothing to do with those of the first."""
    return seed ^ _SALT


def uniform(seed: int, n: int) -> float:
    """The n-th number of a seed, in the open interval (0, 1); n counts from 0."""
    return fraction(splitmix64(seed, n + 1))


def losses(seed: int, count: int, loss: float) -> list[tuple[int, int]]:
    """Which of `count` packets are lost, in order, and how many times in a row.

    Each is lost with chance `loss`, above 0, and again with the same: from one to the next both
    counts are geometric, so it costs what is lost and not what is sent. The numbers are those of
    `uniform`, one after the other; its words stand here again because they are most of the work.
    """
    log, kept, again = math.log, math.log1p(-loss), math.log(loss)
    found: list[tuple[int, int]] = []
    place, is_place = -1, True
    while True:
        seed = (seed + _INCREMENT) & _WORD
        word = ((seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
        drawn = log((((word ^ (word >> 31)) >> 12) + 0.5) / 2.0**52)
        if is_place:
            place += 1 + int(drawn / kept)
            if place >= count:
                return found
        else:
            found.append((place, 1 + int(drawn / again)))
        is_place = not is_place


def exponential(seed: int, n: int) -> float:
    """The n-th number of a seed, exponential with mean 1."""
    return -math.log(uniform(seed, n))


def exponentials(seed: int, count: int, mean: float = 1.0) -> Values:
    """The first `count` numbers of a seed, exponential with that mean. Shape (count,)."""
    words = _first_multiples(count) + np.uint64(seed)
    words ^= words >> _SHIFTS[0]
    words *= _FACTORS[0]
    words ^= words >> _SHIFTS[1]
    words *= _FACTORS[1]
    words ^= words >> _SHIFTS[2]
    words >>= _UNUSED_BITS
    words |= _BITS_OF_ONE
    drawn = words.view(np.float64)
    drawn -= _BELOW_ONE
    np.log(drawn, out=drawn)
    drawn *= -mean
    return drawn


def _first_multiples(count: int) -> NDArray[np.uint64]:
    """The increment's first `count` multiples, modulo 2^64."""
    global _multiples
    if count > len(_multiples):
        numbers = np.arange(1, max(count, 2 * len(_multiples), 1024) + 1, dtype=np.uint64)
        _multiples = numbers * np.uint64(_INCREMENT)
    return _multiples[:count]
