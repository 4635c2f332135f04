"""Durations, sizes and counts as people write them, and the largest that mean anything."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from headroom_bench.errors import UserError

_PIECE = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h)", re.IGNORECASE | re.ASCII)
_PIECES = re.compile(rf"{_PIECE.pattern}(?:\s*{_PIECE.pattern})*", re.IGNORECASE | re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(ki|mi|gi|k|m|g)?", re.IGNORECASE | re.ASCII)
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}

MOST_S = 366 * 86_400.0
"""A year: the longest duration of anything that is asked for."""
MOST_TOKENS = 2**30
"""The largest size: of the memory that a whole server has for its sequences."""
MOST_SEQUENCE_TOKENS = 2**24
"""Of one prompt or answer; the longest contexts of today hold some ten millions."""
MOST_PEOPLE = 100_000
MOST_SLOTS = 100_000
MOST_REPEATS = 1000
_LONGEST = 40
"""Letters of a value that are repeated to whoever gave it."""


def parse_duration_s(text: str, what: str = "duration") -> float:
    """Seconds from `30s`, `5m`, `1.5h`, `250ms`, `1m30s` or a bare number of seconds.

    Raises:
        UserError: the text is none of these, is zero, or is longer than `MOST_S`.
    """
    compact = text.strip()
    if _NUMBER.fullmatch(compact):
        seconds = float(compact)
    elif _PIECES.fullmatch(compact):
        seconds = sum(float(n) * _SECONDS[unit.lower()] for n, unit in _PIECE.findall(compact))
    else:
        raise UserError(f"{what} {shown(text)} is not a duration; write 30s, 5m or 1.5h")
    if seconds <= 0:
        raise UserError(f"{what} {shown(text)} must be longer than nothing")
    if seconds > MOST_S:
        raise UserError(f"{what} {shown(text)} is longer than {MOST_S / 86_400:.0f} days")
    return seconds


def parse_size(text: str, what: str = "size") -> int:
    """A count from `32k` (32,000), `128Ki` (131,072), `1.5M` or a bare whole number.

    Raises:
        UserError: the text is none of these, is not a whole number above zero, or is larger than
            `MOST_TOKENS`.
    """
    match = _SIZE.fullmatch(text.strip())
    factor = _FACTORS[(match[2] or "").lower()] if match else 0
    if match and float(match[1]) * factor > MOST_TOKENS:
        raise UserError(f"{what} {shown(text)} is larger than {MOST_TOKENS:,}")
    # Exact: 4.003k is 4,003, whatever floats make of the product.
    digits = match[1] if match and len(match[1]) <= _LONGEST else "0"
    value = Fraction(digits) * factor
    if value < 1 or value.denominator != 1:
        raise UserError(f"{what} {shown(text)} is not a size; write 2000, 32k or 128Ki")
    return int(value)


def parse_whole(text: str, what: str, most: int, least: int = 1) -> int:
    """A whole number from `least` to `most`, in plain digits.

    Raises:
        UserError: the text is none.
    """
    plain = text.isascii() and text.isdecimal()
    value = int(text) if plain and len(text) <= _LONGEST else None
    if value is None or not least <= value <= most:
        raise UserError(f"{what} {shown(text)} is not a whole number from {least} to {most:,}")
    return value


def shown(value: object) -> str:
    """A value as it was written, for a message; the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def spelled(bound: float) -> str:
    """A number as nobody has to decipher it: `0.001`, `31,622,400`, `1,000,000,000,000`."""
    return f"{bound:,.15g}"


def counted(number: int, noun: str) -> str:
    """`1 answer`, `1,200 answers`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def people(number: int) -> str:
    """`1 person`, `12 people`."""
    return f"{number:,} " + ("person" if number == 1 else "people")


def percent(share: float) -> str:
    """`94.5%`, `100%`: to a tenth and never up, for a share that stands beside what it should
    reach: 94.96 % of a target of 95 % is not 95 %."""
    return f"{math.floor(share * 1000 + 1e-6) / 10:g}%"


def in_words(seconds: float) -> str:
    """A duration for a reader: `45 s`, `2 min 5 s`, `1 h 3 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
