"""What each layer of a `config.json` is: attention, a window, a state, an FFN alone."""

from __future__ import annotations

from headroom_bench.catalog.hf_fields import Fields
from headroom_bench.catalog.windows import WINDOW_EVERY, windowed

_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "local_attention": "window",
    "linear_attention": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "conv": "linear",
    "hybrid": "both",
    "mlp": "ffn",
    "moe": "moe",
    "*": "full",
    "M": "linear",
    "-": "ffn",
    "E": "moe",
}
"""Names in `layer_types` and letters of Nemotron's `hybrid_override_pattern`."""


def layer_kinds(fields: Fields, n_layers: int) -> list[str]:
    """One of full, window, linear, both (attention and a state), ffn or moe (no mixer) a layer.

    Raises `UserError`: an unknown kind, or more or fewer kinds than layers.
    """
    told = _told(fields, n_layers)
    if told is None:
        return [
            "window" if i in _windowed_layers(fields, n_layers) else "full" for i in range(n_layers)
        ]
    if len(told) != n_layers:
        raise fields.wrong(
            f"contradicts itself: {len(told)} layers are described, num_hidden_layers is {n_layers}"
        )
    kinds = [_KINDS.get(kind, "") if isinstance(kind, str) else "" for kind in told]
    if "" in kinds:
        raise fields.wrong(f"a layer of the kind {told[kinds.index('')]!r:.40} is not known")
    if "window" in kinds and not window_tokens(fields):
        return ["full" if kind == "window" else kind for kind in kinds]
    return kinds


def count_layers(fields: Fields) -> int:
    """`num_hidden_layers`, or the length of what stands in its place."""
    pattern = fields.get("hybrid_override_pattern", "layers_block_type")
    default = len(pattern) if isinstance(pattern, str | list) else None
    return fields.positive(
        "num_hidden_layers", "n_layer", "n_layers", "num_layers", default=default
    )


def window_tokens(fields: Fields) -> int:
    """The sliding window (or attention chunk); 0 where it is off or never reached."""
    if fields.get("use_sliding_window") is False:
        return 0
    window = fields.whole(
        "sliding_window", "attention_chunk_size", "sliding_window_size", default=0
    )
    most = fields.whole("max_position_embeddings", default=0)
    return 0 if most and window >= most else window


def _told(fields: Fields, n_layers: int) -> list[object] | None:
    """Layer by layer, in whichever way this config says it."""
    pattern = fields.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return list(pattern)
    if (listed := fields.items("layer_types", "layers_block_type")) is not None:
        return list(listed)
    kind = fields.text("model_type")
    if kind == "falcon_h1":
        return ["hybrid"] * n_layers
    if (flags := fields.items("hybrid_layer_pattern")) is not None:  # MiMo: 1 is a window
        return ["sliding_attention" if flag else "full_attention" for flag in flags]
    if (whole := _attending(fields, n_layers)) is not None:
        return ["full_attention" if i in whole else "linear_attention" for i in range(n_layers)]
    return None


def _attending(fields: Fields, n_layers: int) -> set[int] | None:
    """Layers with attention among layers with a state."""
    kimi = fields.table("linear_attn_config")
    if (ones := kimi.items("full_attn_layers")) is not None:  # counted from 1
        return {number - 1 for number in ones if type(number) is int}
    if (listed := fields.items("attn_layer_indices", "full_attn_idxs")) is not None:
        return {number for number in listed if type(number) is int}
    if fields.get("linear_num_value_heads") is None:
        return None
    every = fields.positive("full_attention_interval", default=4)
    return {i for i in range(n_layers) if (i + 1) % every == 0}


def _windowed_layers(fields: Fields, n_layers: int) -> set[int]:
    if not window_tokens(fields):
        return set()
    told = fields.get("sliding_window_pattern")
    if isinstance(told, str):  # EXAONE: "LLLG", repeated
        return {i for i in range(n_layers) if told[i % len(told)] == "L"} if told else set()
    every = told if type(told) is int else WINDOW_EVERY.get(fields.text("model_type"), 1)
    return {i for i in range(n_layers) if windowed(i, every)}
