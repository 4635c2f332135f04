"""State that layers without a growing cache keep for a sequence."""

from __future__ import annotations

_STATE_BYTES = 4
_CONV_BYTES = 2
"""Servers keep recurrent states in 32 bits and the inputs of short convolutions in 16 (vLLM's
defaults; `mamba_ssm_cache_dtype` of published configs)."""


def state_bytes(layers: int, state_values: int, conv_channels: int, conv_kernel: int) -> int:
    """Bytes a sequence: layers (4 state + 2 channels (kernel - 1)).

    `state_values` a layer: heads k_dim v_dim for (gated, Kimi) delta rules, heads dim state for
    Mamba-2, 0 for a short convolution alone.
    """
    conv = conv_channels * max(conv_kernel - 1, 0) * _CONV_BYTES
    return layers * (state_values * _STATE_BYTES + conv)
