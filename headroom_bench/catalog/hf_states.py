"""Layers of a `config.json` that keep a state: delta rules, Mamba-2, short convolutions."""

from __future__ import annotations

from typing import NamedTuple

from headroom_bench.catalog.hf_fields import Fields
from headroom_bench.catalog.model import LinearAttention
from headroom_bench.catalog.states import state_bytes


class _Counts(NamedTuple):
    linear: int
    full: int
    with_ffn: int
    """0 where every layer has an FFN."""


def states_of(fields: Fields, kinds: list[str], hidden: int) -> LinearAttention | None:
    """The linear layers, or None where every layer attends. `kinds` as from `layer_kinds`.

    Raises `UserError`: figures missing, or a kind of layer that is not covered.
    """
    both = kinds.count("both")
    linear = kinds.count("linear") + both
    if not linear:
        return None
    bare = kinds.count("ffn") + kinds.count("moe")
    counts = _Counts(linear, kinds.count("full") + both, bare)
    if counts.full + kinds.count("window") == 0:
        raise fields.wrong("has no attention layers; recurrent models are not covered")
    if fields.get("linear_num_value_heads") is not None:
        return _gated_delta(fields, counts)
    if fields.get("linear_attn_config") is not None:
        return _kimi_delta(fields.table("linear_attn_config"), counts)
    if fields.get("mamba_num_heads", "mamba_n_heads") is not None:
        return _mamba2(fields, counts, hidden)
    if fields.get("conv_L_cache", "conv_l_cache") is not None:
        kernel = fields.positive("conv_L_cache", "conv_l_cache")
        state = state_bytes(linear, 0, hidden, kernel)
        return LinearAttention("short_conv", linear, counts.full, kernel, state, counts.with_ffn)
    raise fields.wrong("has layers without attention of a kind that is not covered")


def _gated_delta(fields: Fields, counts: _Counts) -> LinearAttention:
    key_heads = fields.positive("linear_num_key_heads")
    heads = fields.positive("linear_num_value_heads")
    key = fields.positive("linear_key_head_dim")
    value = fields.positive("linear_value_head_dim")
    kernel = fields.positive("linear_conv_kernel_dim")
    channels = 2 * key_heads * key + heads * value
    return LinearAttention(
        "gated_deltanet", counts.linear, counts.full, kernel,
        state_bytes(counts.linear, heads * key * value, channels, kernel), counts.with_ffn,
        n_k_heads=key_heads, n_v_heads=heads, k_head_dim=key, v_head_dim=value,
    )  # fmt: skip


def _kimi_delta(fields: Fields, counts: _Counts) -> LinearAttention:
    heads, width = fields.positive("num_heads"), fields.positive("head_dim")
    kernel = fields.positive("short_conv_kernel_size")
    return LinearAttention(
        "kimi_delta_attention", counts.linear, counts.full, kernel,
        state_bytes(counts.linear, heads * width * width, 3 * heads * width, kernel),
        counts.with_ffn, n_heads=heads, head_dim=width,
    )  # fmt: skip


def _mamba2(fields: Fields, counts: _Counts, hidden: int) -> LinearAttention:
    heads = fields.positive("mamba_num_heads", "mamba_n_heads")
    inner = fields.whole("mamba_d_ssm", default=fields.whole("mamba_expand", default=2) * hidden)
    told = fields.get("mamba_head_dim", "mamba_d_head")
    width = (
        inner // heads
        if told in (None, "auto")
        else fields.positive("mamba_head_dim", "mamba_d_head")
    )
    size = fields.positive("ssm_state_size", "mamba_d_state")
    groups = fields.positive("n_groups", "mamba_n_groups", default=1)
    kernel = fields.positive("conv_kernel", "mamba_d_conv", default=4)
    channels = heads * width + 2 * groups * size
    return LinearAttention(
        "mamba2", counts.linear, counts.full, kernel,
        state_bytes(counts.linear, heads * width * size, channels, kernel), counts.with_ffn,
        n_ssm_heads=heads, ssm_head_dim=width, ssm_state=size, n_groups=groups,
    )  # fmt: skip
