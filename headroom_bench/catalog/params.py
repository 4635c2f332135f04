"""Parameters of a model by what they do, counted from its shape or in its file."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.errors import UserError

if TYPE_CHECKING:
    from headroom_bench.catalog.model import MLA, Model
    from headroom_bench.catalog.stored import Stored


@dataclass(frozen=True, slots=True)
class Params:
    """Parameters by role. Multi-token-prediction heads are not counted; norms and biases only where
    they were counted in a file."""

    embedding: float
    """Rows are looked up, not streamed. A tied model's is its output matrix too."""
    per_layer_embedding: float
    """Looked up, like the embedding."""
    head: float
    """The output matrix where it is a tensor of its own (0 when tied)."""
    attention: float
    """Attention and linear-attention mixers."""
    dense_ffn: float
    routed: float
    """All routed experts of all layers."""
    shared: float
    """Shared experts, and the projections around latent ones."""
    router: float
    other: float
    """Small matrices that every token uses (per-layer gating and its kin)."""
    routed_active: float
    """What one token uses of `routed`."""

    @property
    def total(self) -> float:
        """Everything that has to be in memory."""
        return (
            self.embedding + self.per_layer_embedding + self.head + self.body_always + self.routed
        )

    @property
    def body_always(self) -> float:
        """Used by every token, between the embedding and the output matrix."""
        return self.attention + self.dense_ffn + self.shared + self.router + self.other

    @property
    def body_active(self) -> float:
        """Multiplied for one token, the output matrix left out."""
        return self.body_always + self.routed_active

    @property
    def output(self) -> float:
        """The output matrix, tied or not."""
        return self.head or self.embedding

    @property
    def active(self) -> float:
        """Used by one token, the embedding table included (the common convention)."""
        return self.embedding + self.per_layer_embedding + self.head + self.body_active


@functools.cache
def params_of_shape(model: Model) -> Params:
    """Counted from a shape. Raises `UserError` for a partial one."""
    if model.partial:
        raise UserError(
            f"the shape of {model.name} is not fully published, so its weights cannot be counted; "
            "give a TOML file with hidden_size, n_heads, vocab_size and ffn_intermediate"
        )
    embedding = float(model.vocab_size * model.hidden_size)
    routed, shared, router, share_active = _expert_params(model)
    per_layer, other = _per_layer_params(model)
    return Params(
        embedding=embedding,
        per_layer_embedding=per_layer,
        head=0.0 if model.tied_embeddings else embedding,
        attention=_attention_params(model) + _linear_params(model),
        dense_ffn=_dense_ffn_params(model),
        routed=routed,
        shared=shared,
        router=router,
        other=other,
        routed_active=routed * share_active,
    )


def params_in_file(model: Model, stored: Stored) -> Params:
    """Counted in the file that a model was read from."""
    moe = model.moe
    routed = float(stored.values("experts"))
    return Params(
        embedding=float(stored.values("embedding")),
        per_layer_embedding=float(stored.values("per_layer_embedding")),
        head=float(stored.values("output")),
        attention=float(stored.values("attention")),
        dense_ffn=float(stored.values("dense_ffn")),
        routed=routed,
        shared=float(stored.values("shared_experts")),
        router=float(stored.values("router")),
        other=float(stored.values("other")),
        routed_active=routed * moe.experts_per_token / moe.n_experts if moe else 0.0,
    )


def _expert_params(model: Model) -> tuple[float, float, float, float]:
    """Routed, shared, router, and the share of the routed that one token uses."""
    moe = model.moe
    if moe is None:
        return 0.0, 0.0, 0.0, 0.0
    matrices = 3 if model.ffn_gated else 2
    width = moe.latent_size or model.hidden_size
    routed = moe.n_moe_layers * moe.n_experts * matrices * width * moe.moe_intermediate
    shared = moe.n_moe_layers * matrices * model.hidden_size * moe.shared_intermediate
    if moe.latent_size:
        shared += moe.n_moe_layers * 2 * model.hidden_size * moe.latent_size
    router = moe.n_moe_layers * model.hidden_size * moe.n_experts
    return float(routed), float(shared), float(router), moe.experts_per_token / moe.n_experts


def _dense_ffn_params(model: Model) -> float:
    matrices = 3 if model.ffn_gated else 2
    if model.ffn_widths:
        return float(matrices * model.hidden_size * sum(model.ffn_widths))
    linear, moe = model.linear_attention, model.moe
    layers = (linear.n_mlp_or_moe_layers if linear else 0) or model.n_layers
    if moe and not moe.dense_ffn_beside_experts:
        layers -= moe.n_moe_layers
    extra = model.per_layer_embedding
    if extra and extra.kv_shared_layers_use_double_ffn and model.sliding_window:
        layers += model.sliding_window.kv_shared_layers
    return float(layers * matrices * model.hidden_size * model.ffn_intermediate)


def _attention_params(model: Model) -> float:
    full, local = model.attention_layers
    if model.compressed_attention:
        return model.compressed_attention.attention_params_b * 1e9
    if model.mla:
        return full * (_mla_params(model, model.mla) + _indexer_params(model))
    swa = model.sliding_window
    v_dim = model.v_head_dim or model.head_dim
    if swa is None:
        plain = _gqa_params(model, model.n_kv_heads, model.head_dim, v_dim)
        return full * (plain + _indexer_params(model))
    kept = 1 - swa.kv_shared_layers / model.n_layers
    global_dim = swa.global_head_dim or model.head_dim
    global_v = swa.global_head_dim or v_dim
    global_kv = swa.global_n_kv_heads or model.n_kv_heads
    no_v = swa.global_v_from_k
    total = 0.0
    for layers, heads, k, v, v_free in (
        (full, global_kv, global_dim, global_v, no_v),
        (local, swa.local_n_kv_heads or model.n_kv_heads, model.head_dim, v_dim, False),
    ):
        own = round(layers * kept)
        total += own * _gqa_params(model, heads, k, v, v_from_k=v_free)
        total += (layers - own) * _gqa_params(model, 0, k, v)
    return total


def _gqa_params(
    model: Model, kv_heads: int, k_dim: int, v_dim: int, *, v_from_k: bool = False
) -> float:
    hidden, heads = model.hidden_size, model.n_heads
    query = hidden * heads * k_dim * (2 if model.attention_output_gate else 1)
    cached = hidden * kv_heads * (k_dim + (0 if v_from_k else v_dim))
    return float(query + cached + heads * v_dim * hidden)


def _mla_params(model: Model, mla: MLA) -> float:
    hidden, heads = model.hidden_size, model.n_heads
    key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    rank = mla.q_lora_rank
    query = hidden * rank + rank * heads * key if rank else hidden * heads * key
    latent = hidden * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    expand = mla.kv_lora_rank * heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return float(query + latent + expand + heads * mla.v_head_dim * hidden)


def _indexer_params(model: Model) -> float:
    sparse = model.sparse_attention
    if sparse is None:
        return 0.0
    source = (model.mla.q_lora_rank if model.mla else None) or model.hidden_size
    query = source * sparse.index_heads * sparse.index_dim
    return float(query + model.hidden_size * (sparse.index_dim + sparse.index_heads))


def _linear_params(model: Model) -> float:
    """Mixers without a growing cache: projections in and out, gates and short convolutions."""
    linear = model.linear_attention
    if linear is None:
        return 0.0
    hidden, kernel = model.hidden_size, linear.conv_kernel
    if linear.kind == "gated_deltanet":
        key, value = linear.n_k_heads * linear.k_head_dim, linear.n_v_heads * linear.v_head_dim
        mixed = 2 * key + value
        layer = hidden * (mixed + value + 2 * linear.n_v_heads) + mixed * kernel + value * hidden
    elif linear.kind == "mamba2":
        inner = linear.n_ssm_heads * linear.ssm_head_dim
        mixed = inner + 2 * linear.n_groups * linear.ssm_state
        layer = hidden * (inner + mixed + linear.n_ssm_heads) + mixed * kernel + inner * hidden
    elif linear.kind == "kimi_delta_attention":
        inner = linear.n_heads * linear.head_dim
        gates = 2 * (hidden * linear.head_dim + linear.head_dim * inner)
        layer = 4 * hidden * inner + gates + hidden * linear.n_heads + 3 * inner * kernel
    elif linear.kind == "short_conv":
        layer = 4 * hidden * hidden + hidden * kernel
    else:
        raise UserError(
            f"{model.name}: linear_attention kind {linear.kind!r} is unknown; it is one of "
            "gated_deltanet, mamba2, kimi_delta_attention, short_conv"
        )
    return float(linear.n_linear_layers * layer)


def _per_layer_params(model: Model) -> tuple[float, float]:
    """Tables that are looked up, and the small matrices that mix their rows in."""
    extra = model.per_layer_embedding
    if extra is None:
        return 0.0, 0.0
    hidden, layers = model.hidden_size, model.n_layers
    gating = 3 * hidden * extra.dim * layers
    laurel = 2 * extra.laurel_rank * hidden * layers
    altup = 2 * max(extra.altup_inputs - 1, 0) * hidden * hidden
    return float(layers * extra.dim * extra.vocab_size), float(gating + laurel + altup)
