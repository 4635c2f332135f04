"""A model's shape alone, so that a file's can be compared with the catalogue's."""

from __future__ import annotations

import dataclasses
from typing import Any

from headroom_bench.catalog import Model

_LABELS: dict[str, Any] = {
    "name": "",
    "hf_id": "",
    "aliases": (),
    "family": "",
    "released": "",
    "params_total_b": None,
    "params_active_b": None,
    "params_source": "",
    "notes": "",
    "source": "",
    "estimated": False,
    "attention_sinks": False,
    "stored": None,
}
"""What says nothing of the shape."""


def shape(model: Model) -> Model:
    """No names, sources or fitted figures, and one way to say what can be said in two."""
    bare = dataclasses.replace(model, **_LABELS)
    if swa := bare.sliding_window:
        heads = swa.global_n_kv_heads or bare.n_kv_heads
        plain = dataclasses.replace(swa, pattern="", global_n_kv_heads=heads)
        bare = dataclasses.replace(bare, sliding_window=plain)
    if moe := bare.moe:
        plain_moe = dataclasses.replace(moe, expert_exponent=0.65, n_dense_layers=None)
        bare = dataclasses.replace(bare, moe=plain_moe)
    linear = bare.linear_attention
    if linear and linear.n_mlp_or_moe_layers == bare.n_layers:  # says the same as 0
        every = dataclasses.replace(linear, n_mlp_or_moe_layers=0)
        bare = dataclasses.replace(bare, linear_attention=every)
    return bare
