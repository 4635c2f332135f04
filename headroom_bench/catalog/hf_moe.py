"""Routed and shared experts of a `config.json`."""

from __future__ import annotations

from headroom_bench.catalog.hf_fields import Fields
from headroom_bench.catalog.model import MoE


def moe_of(fields: Fields, kinds: list[str]) -> MoE | None:
    """The experts, or None for a dense model. `kinds` as from `layer_kinds`."""
    experts = fields.whole(
        "n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts", "n_experts",
        default=0,
    )  # fmt: skip
    if experts < 2 or fields.get("enable_moe_block") is False:
        return None
    layers = _moe_layers(fields, kinds)
    if not layers:
        return None
    beside = fields.flag("enable_moe_block")
    width = fields.positive(
        "moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size",
        "intermediate_size",
    )  # fmt: skip
    shared, shared_width = _shared(fields, width)
    return MoE(
        n_experts=experts,
        experts_per_token=fields.positive(
            "num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", "moe_k",
            "moe_top_k",
        ),
        moe_intermediate=width,
        n_moe_layers=len(layers),
        n_shared_experts=shared,
        shared_intermediate=shared_width,
        first_dense_layers=_dense_before(layers, len(kinds)),
        dense_ffn_beside_experts=beside,
        latent_size=fields.whole("moe_latent_size", default=0) or None,
    )  # fmt: skip


def _shared(fields: Fields, width: int) -> tuple[int, int]:
    """Number and summed width of the shared experts."""
    count = fields.whole(
        "n_shared_experts", "num_shared_experts", "num_shared_expert", "moe_num_shared_experts",
        default=0,
    )  # fmt: skip
    told = fields.whole(
        "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
        "shared_intermediate_size", "share_expert_dim", default=0,
    )  # fmt: skip
    if told:
        return max(count, 1), told
    if fields.text("model_type").startswith("llama4"):
        return 1, width
    return count, count * width


def _moe_layers(fields: Fields, kinds: list[str]) -> list[int]:
    """Layers with experts, by whichever of the families' rules the config has."""
    n_layers = len(kinds)
    if "moe" in kinds:
        return [i for i, kind in enumerate(kinds) if kind == "moe"]
    if (listed := fields.items("mlp_layer_types")) is not None:
        _check_length(fields, "mlp_layer_types", listed, n_layers)
        return [i for i, kind in enumerate(listed) if kind in ("sparse", "moe")]
    if (flags := fields.items("moe_layer_freq")) is not None:
        _check_length(fields, "moe_layer_freq", flags, n_layers)
        return [i for i, flag in enumerate(flags) if flag]
    if (numbers := fields.items("moe_layers")) is not None:
        return [i for i in range(n_layers) if i in numbers]
    first = fields.whole(
        "first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", default=0
    )
    step = fields.positive(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_freq",
        default=1,
    )  # fmt: skip
    dense = fields.items("mlp_only_layers") or []
    return [i for i in range(first, n_layers) if (i + 1) % step == 0 and i not in dense]


def _check_length(fields: Fields, key: str, listed: list[object], n_layers: int) -> None:
    if len(listed) != n_layers:
        raise fields.wrong(
            f"contradicts itself: {key} has {len(listed)} values for {n_layers} layers"
        )


def _dense_before(layers: list[int], n_layers: int) -> int:
    """Dense layers in front of an unbroken row of layers with experts."""
    return layers[0] if layers == list(range(layers[0], n_layers)) else 0
