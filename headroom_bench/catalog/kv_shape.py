"""Values that a shape caches a token, and the state that it keeps for a sequence."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headroom_bench.catalog.model import Model


@dataclass(frozen=True, slots=True)
class KvShape:
    """Cached values. Layers that share another's cache are read but not stored."""

    full_k: float
    """K values a token in layers that keep everything (latent layers: the latent)."""
    full_v: float
    window_k: float
    """K values a token in layers that keep a window."""
    window_v: float
    full_read_ratio: float
    """Values read over values stored, full layers: above 1 where layers share a cache."""
    window_read_ratio: float
    window: int | None
    state_bytes: float
    """Recurrent state a sequence, read and written by every token."""

    def full_bytes(self, k_bytes: float = 2.0, v_bytes: float = 2.0) -> float:
        """Stored bytes a token that grow with the context, at so many bytes a value."""
        return self.full_k * k_bytes + self.full_v * v_bytes

    def window_bytes(self, k_bytes: float = 2.0, v_bytes: float = 2.0) -> float:
        """Stored bytes a token inside the window."""
        return self.window_k * k_bytes + self.window_v * v_bytes


@functools.cache
def kv_of_shape(model: Model) -> KvShape:
    """Values cached and read a token, and state a sequence."""
    state = model.linear_attention.state_bytes_per_sequence if model.linear_attention else 0
    full, local = model.attention_layers
    if squeezed := model.compressed_attention:
        inside = float(squeezed.n_layers * squeezed.values_per_layer)
        grown = float(squeezed.kv_values_per_token)
        return KvShape(grown, 0.0, inside, 0.0, 1.0, 1.0, squeezed.window, state)
    if model.mla:
        latent = float(full * (model.mla.kv_lora_rank + model.mla.qk_rope_head_dim))
        return KvShape(latent, 0.0, 0.0, 0.0, 1.0, 1.0, None, state)
    v_dim = model.v_head_dim or model.head_dim
    swa = model.sliding_window
    if swa is None:
        heads = full * model.n_kv_heads
        return KvShape(heads * model.head_dim, heads * v_dim, 0.0, 0.0, 1.0, 1.0, None, state)
    kept = 1 - swa.kv_shared_layers / model.n_layers
    full_heads = round(full * kept) * (swa.global_n_kv_heads or model.n_kv_heads)
    local_heads = round(local * kept) * (swa.local_n_kv_heads or model.n_kv_heads)
    return KvShape(
        full_heads * (swa.global_head_dim or model.head_dim),
        full_heads * (swa.global_head_dim or v_dim),
        local_heads * model.head_dim,
        local_heads * v_dim,
        full / max(round(full * kept), 1),
        local / max(round(local * kept), 1),
        swa.window,
        state,
    )
