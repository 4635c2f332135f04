"""Blocks of a GGUF that keep a state: delta rules, Mamba, short convolutions."""

from __future__ import annotations

import dataclasses

from headroom_bench.catalog.checks import MAX_WIDTH
from headroom_bench.catalog.gguf_blocks import Blocks, Layer, attends, has_ffn, keeps_state
from headroom_bench.catalog.model import LinearAttention
from headroom_bench.catalog.states import state_bytes


def states_of(blocks: Blocks) -> LinearAttention | None:
    """The layers that keep a state, or None. Raises `UserError` for figures missing or wrong."""
    keeping = [i for i, has in enumerate(blocks.layers) if keeps_state(has)]
    if not keeping:
        return None
    first = blocks.layers[keeping[0]]
    attend = sum(1 for has in blocks.layers if attends(has))
    bare = sum(1 for has in blocks.layers if not has_ffn(has))
    layers = LinearAttention(
        kind="",
        n_linear_layers=len(keeping),
        n_full_attention_layers=attend,
        conv_kernel=blocks.whole("ssm.conv_kernel", 0),
        state_bytes_per_sequence=0,
        n_mlp_or_moe_layers=blocks.n_layers - bare if bare else 0,
    )
    if "shortconv.conv" in first:
        return _short_conv(blocks, layers)
    if "ssm_conv1d_q" in first:
        return _kimi_delta(blocks, layers)
    if {"ssm_ba", "ssm_alpha"} & first.keys():
        return _gated_delta(blocks, layers)
    return _mamba(blocks, layers, first)


def _short_conv(blocks: Blocks, layers: LinearAttention) -> LinearAttention:
    kernel = blocks.whole("shortconv.l_cache")
    state = state_bytes(layers.n_linear_layers, 0, blocks.hidden, kernel)
    return dataclasses.replace(
        layers, kind="short_conv", conv_kernel=kernel, state_bytes_per_sequence=state
    )


def _kimi_delta(blocks: Blocks, layers: LinearAttention) -> LinearAttention:
    width, heads = blocks.whole("kda.head_dim"), blocks.n_heads
    state = state_bytes(
        layers.n_linear_layers, heads * width * width, 3 * heads * width, layers.conv_kernel
    )
    return dataclasses.replace(
        layers, kind="kimi_delta_attention", n_heads=heads, head_dim=width,
        state_bytes_per_sequence=state,
    )  # fmt: skip


def _gated_delta(blocks: Blocks, layers: LinearAttention) -> LinearAttention:
    heads, inner = _heads_of_state(blocks)
    key_heads, key = blocks.whole("ssm.group_count"), blocks.whole("ssm.state_size")
    value = inner // heads
    state = state_bytes(
        layers.n_linear_layers,
        heads * key * value,
        2 * key_heads * key + inner,
        layers.conv_kernel,
    )
    return dataclasses.replace(
        layers, kind="gated_deltanet", n_k_heads=key_heads, n_v_heads=heads, k_head_dim=key,
        v_head_dim=value, state_bytes_per_sequence=state,
    )  # fmt: skip


def _mamba(blocks: Blocks, layers: LinearAttention, first: Layer) -> LinearAttention:
    size, inner = blocks.whole("ssm.state_size"), blocks.whole("ssm.inner_size")
    if "ssm_x" in first:  # the first Mamba has no heads
        state = state_bytes(layers.n_linear_layers, inner * size, inner, layers.conv_kernel)
        return dataclasses.replace(
            layers, kind="mamba", ssm_state=size, state_bytes_per_sequence=state
        )
    heads, inner = _heads_of_state(blocks)
    groups = blocks.whole("ssm.group_count", 1)
    state = state_bytes(
        layers.n_linear_layers, inner * size, inner + 2 * groups * size, layers.conv_kernel
    )
    return dataclasses.replace(
        layers, kind="mamba2", n_ssm_heads=heads, ssm_head_dim=inner // heads, ssm_state=size,
        n_groups=groups, state_bytes_per_sequence=state,
    )  # fmt: skip


def _heads_of_state(blocks: Blocks) -> tuple[int, int]:
    heads, inner = blocks.whole("ssm.time_step_rank"), blocks.whole("ssm.inner_size")
    if not heads or inner % heads or inner > MAX_WIDTH:
        raise blocks.wrong(f"contradicts itself: {heads} state heads share a width of {inner}")
    return heads, inner
