"""Cached keys and values: bytes a token, and (query, key) pairs of a prompt."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.catalog import Model, kv_value_bytes


@dataclass(frozen=True, slots=True)
class KvBytes:
    """Bytes a token of context, layers that keep everything and layers that keep a window."""

    full: float
    window: float
    full_read: float
    """Read by one query: above `full` where layers read another's cache."""
    window_read: float
    state: float
    """Recurrent state a sequence."""
    window_tokens: int | None
    """None without a window, or when windows are kept in full."""


def kv_bytes(model: Model, kv_k: str, kv_v: str, *, swa_full: bool = False) -> KvBytes:
    """Bytes a token for caches of the types `kv_k` and `kv_v` (f16, q8_0, fp8 …).

    2 layers kv_heads head_dim bytes (Methodology, section 1), with windows, latents and states as
    the shape has them. `swa_full` keeps window layers in full, as llama.cpp's flag of that name.
    Raises `UserError` for an unknown type.
    """
    k_bytes, v_bytes = kv_value_bytes(kv_k), kv_value_bytes(kv_v)
    shape = model.kv()
    full, window = shape.full_bytes(k_bytes, v_bytes), shape.window_bytes(k_bytes, v_bytes)
    full_read, window_read = full * shape.full_read_ratio, window * shape.window_read_ratio
    if swa_full and shape.window:
        return KvBytes(full + window, 0.0, full_read + window_read, 0.0, shape.state_bytes, None)
    return KvBytes(full, window, full_read, window_read, shape.state_bytes, shape.window)


def causal_pairs(tokens: int, context: int) -> float:
    """(query, key) pairs of `tokens` read after `context`: m c0 + m (m + 1) / 2."""
    return tokens * context + tokens * (tokens + 1) / 2


def windowed_pairs(tokens: int, context: int, window: int) -> float:
    """The same where a query sees at most `window` keys, itself among them."""
    growing = min(max(window - context, 0), tokens)
    return causal_pairs(growing, context) + (tokens - growing) * window
