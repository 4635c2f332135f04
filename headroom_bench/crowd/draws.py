"""Random draws keyed by what they are for, never by the order of events.

The same seed gives the same crowd in every world, however its requests interleave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

from headroom_bench.seeds import fraction, seed_of
from headroom_bench.toml_table import Table
from headroom_bench.units import MOST_SEQUENCE_TOKENS, shown, spelled

_NORMAL = NormalDist()
_MOST_EXPONENT = 700.0
"""The exponential of more would be no float."""
_Z90 = _NORMAL.inv_cdf(0.9)


KEY_SEPARATOR = "\x1f"
"""Between the parts of a key, so that no two keys are one text."""


def uniform(*key: object) -> float:
    """A number in the open interval (0, 1), a pure function of the key."""
    return uniform_of(KEY_SEPARATOR.join(map(str, key)))


def uniform_of(key: str) -> float:
    """The same for a key that is put together already."""
    return fraction(seed_of(key))


@dataclass(frozen=True, slots=True)
class Distribution:
    """`{fixed}`, `{uniform = [low, high]}` or lognormal `{p50, p90, max}`."""

    kind: Literal["fixed", "uniform", "lognormal"]
    a: float
    """fixed: the value; uniform: the low end; lognormal: ln of the median."""
    b: float = 0.0
    """uniform: the high end; lognormal: sigma."""
    most: float = math.inf

    @classmethod
    def fixed(cls, value: float) -> Distribution:
        return cls("fixed", value, value, value)

    @classmethod
    def lognormal(cls, p50: float, p90: float, most: float = math.inf) -> Distribution:
        """Through a median and a 90th percentile, cut at `most`; 0 < p50 <= p90."""
        return cls("lognormal", math.log(p50), math.log(p90 / p50) / _Z90, most)

    def draw(self, u: float) -> float:
        """The value at quantile `u` in (0, 1)."""
        if self.kind == "fixed":
            return self.a
        if self.kind == "uniform":
            return self.a + (self.b - self.a) * u
        exponent = self.a + self.b * _NORMAL.inv_cdf(u)
        return min(self.most, math.exp(min(exponent, _MOST_EXPONENT)))

    def draw_whole(self, u: float, least: int = 0) -> int:
        """A whole number, at most `MOST_SEQUENCE_TOKENS`; a uniform one is drawn evenly, both ends
        included."""
        if self.kind == "uniform":
            low = math.ceil(self.a)
            high = max(low, math.floor(self.b))
            return max(least, min(high, low + math.floor((high - low + 1) * u)))
        return max(least, round(min(self.draw(u), MOST_SEQUENCE_TOKENS)))

    @property
    def largest(self) -> float:
        """The largest value that can be drawn; infinite for a lognormal without `max`."""
        return self.most if self.kind == "lognormal" else self.b

    @property
    def typical(self) -> float:
        return self.draw(0.5)


def read_distribution(
    table: Table,
    field: str,
    default: Distribution | None,
    least: float = 0,
    most: float = MOST_SEQUENCE_TOKENS,
) -> Distribution:
    """The distribution in `field`; `default` None means that it must be there.

    Raises:
        UserError: it is none of the three forms, its numbers contradict each other, or one of them
            is below `least` or above `most`.
    """
    raw = table.raw(field)
    if raw is None:
        if default is None:
            raise table.error(field, "is missing; give {fixed = 1} or {p50 = 1, p90 = 2}")
        return default
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        raw = {"fixed": raw}
    if not isinstance(raw, dict):
        raise table.error(
            field, f"{shown(raw)} is not a distribution such as {{p50 = 100, p90 = 300}}"
        )
    return _distribution_from(table, field, raw, least, most)


def read_count(table: Table, field: str, default: int | None, least: int = 1) -> Distribution:
    """The distribution of a count, of turns or tokens: a fixed one and both ends of a uniform one
    are whole; percentiles need not be. Raises as `read_distribution`."""
    usual = None if default is None else Distribution.fixed(default)
    found = read_distribution(table, field, usual, least)
    for end in () if found.kind == "lognormal" else (found.a, found.b):
        if end % 1:
            raise table.error(field, f"{spelled(end)} is not a whole number, and this is a count")
    return found


def _distribution_from(
    table: Table, field: str, raw: dict[str, object], least: float, most: float
) -> Distribution:
    def number(value: object) -> float:
        match value:
            case bool():
                pass
            case int() | float() if least <= value <= most:
                return float(value)
        bounds = f"from {spelled(least)} to {spelled(most)}"
        raise table.error(field, f"{shown(value)} is not a number {bounds}")

    match raw:
        case {"fixed": value} if set(raw) == {"fixed"}:
            return Distribution.fixed(number(value))
        case {"uniform": [low, high]} if set(raw) == {"uniform"}:
            a, b = number(low), number(high)
            if a > b:
                raise table.error(
                    field, f"uniform from {spelled(a)} to {spelled(b)} runs backwards"
                )
            return Distribution("uniform", a, b, b)
        case {"p50": p50, "p90": p90} if set(raw) <= {"p50", "p90", "max"}:
            median, high = number(p50), number(p90)
            cut = number(raw["max"]) if "max" in raw else math.inf
            if not 0 < median <= high <= cut:
                raise table.error(field, "needs 0 < p50 <= p90 <= max")
            return Distribution.lognormal(median, high, cut)
    raise table.error(
        field, f"{shown(raw)} is not {{fixed}}, {{uniform = [low, high]}} or {{p50, p90, max}}"
    )
