"""Chance by what it is for: the same numbers for the same text on every platform, in any order."""

from __future__ import annotations

from hashlib import blake2b

_WORD = 2**64 - 1


def seed_of(text: str) -> int:
    """64 bits of a text."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def splitmix64(seed: int, n: int) -> int:
    """The n-th output of SplitMix64, n from 1 on, whatever was drawn before it: 64 bits.

    Steele, Lea, Flood, OOPSLA 2014; the constants are those of Vigna's splitmix64.c.
    """
    word = (seed + n * 0x9E3779B97F4A7C15) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def fraction(word: int) -> float:
    """64 bits as a number in the open interval (0, 1).

    By 52 of them: with more, the largest would round to 1, whose logarithm is 0 and whose normal
    quantile is infinite.
    """
    return ((word >> 12) + 0.5) / 2**52
