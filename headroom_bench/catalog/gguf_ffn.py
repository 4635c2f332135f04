"""FFNs and experts of a GGUF's blocks."""

from __future__ import annotations

from headroom_bench.catalog.gguf_blocks import Blocks, Layer, has_experts
from headroom_bench.catalog.model import MoE, PerLayerEmbedding


def dense_width(blocks: Blocks) -> int:
    """Width of a dense FFN, the largest where they differ; 0 where there is none."""
    return max(blocks.per_layer("feed_forward_length", 0))


def ffn_widths(blocks: Blocks) -> tuple[int, ...]:
    """One a layer where dense layers differ among themselves."""
    widths = blocks.per_layer("feed_forward_length", 0)
    return tuple(widths) if len({width for width in widths if width}) > 1 else ()


def gated_ffn(blocks: Blocks) -> bool:
    """Three matrices. A fused up projection (Phi-3) is twice as wide as the FFN."""
    for has in blocks.layers:
        if any(name.startswith("ffn_gate") and "inp" not in name for name in has):
            return True
        if up := has.get("ffn_up"):
            return up.shape[-1] == 2 * dense_width(blocks)
    return False


def moe_of(blocks: Blocks) -> MoE | None:
    """The experts, or None. Raises `UserError` where tensors and counts differ."""
    layers = [i for i, has in enumerate(blocks.layers) if has_experts(has)]
    if not layers:
        return None
    experts = blocks.whole("expert_count")
    first = blocks.layers[layers[0]]
    if down := first.get("ffn_down_exps"):
        if len(down.shape) != 3 or down.shape[2] != experts:
            raise blocks.wrong(
                f"contradicts itself: expert_count is {experts}, but {down.name} is "
                f"{list(down.shape)}"
            )
        width, onto = down.shape[0], down.shape[1]
    else:  # one tensor an expert, as files were written before 2024-04
        width, onto = blocks.whole("feed_forward_length"), blocks.hidden
    shared = first.get("ffn_up_shexp")
    shared_width = shared.shape[-1] if shared else 0
    dense_beside = "ffn_down" in first and "ffn_up" in first
    return MoE(
        n_experts=experts,
        experts_per_token=blocks.whole("expert_used_count"),
        moe_intermediate=width,
        n_moe_layers=len(layers),
        n_shared_experts=blocks.whole("expert_shared_count", 1) if shared else 0,
        shared_intermediate=shared_width,
        first_dense_layers=_dense_before(blocks, layers),
        dense_ffn_beside_experts=dense_beside,
        latent_size=onto if onto != blocks.hidden else None,
    )


def _dense_before(blocks: Blocks, layers: list[int]) -> int:
    """Dense layers in front of an unbroken row of layers with experts."""
    unbroken = layers == list(range(layers[0], blocks.n_layers))
    dense = all("ffn_down" in has for has in blocks.layers[: layers[0]])
    return layers[0] if unbroken and dense else 0


def per_layer_embedding(blocks: Blocks, top: Layer) -> PerLayerEmbedding | None:
    """Tables of their own for every layer (Gemma 3n, 4). `top`: the file's tensors by name."""
    width = blocks.whole("embedding_length_per_layer_input", 0)
    table = top.get("per_layer_token_embd.weight")
    if not width or table is None:
        return None
    laurel = blocks.layers[0].get("laurel_l")
    widths = {up.shape[-1] for has in blocks.layers if (up := has.get("ffn_up")) is not None}
    return PerLayerEmbedding(
        dim=width,
        vocab_size=table.values // (width * blocks.n_layers),
        altup_inputs=blocks.whole("altup.num_inputs", 0),
        laurel_rank=min(laurel.shape) if laurel else 0,
        kv_shared_layers_use_double_ffn=len(widths) > 1,
    )
