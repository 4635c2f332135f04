"""Numbers that a server tells, as far as they can be any: what cannot is unknown."""

from __future__ import annotations

from typing import Any

from headroom_bench.units import MOST_S, MOST_SEQUENCE_TOKENS


def told_count(table: Any, field: str) -> int | None:
    """Tokens: a whole number, not below zero; servers also send null, texts and nonsense."""
    value = _number(table, field, MOST_SEQUENCE_TOKENS)
    return int(value) if value is not None and value == int(value) else None


def told_ms(table: Any, field: str) -> float | None:
    """Milliseconds, not below zero."""
    return _number(table, field, MOST_S * 1e3)


def _number(table: Any, field: str, most: float) -> float | None:
    value = table.get(field) if isinstance(table, dict) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= most else None  # NaN and infinity are refused too
