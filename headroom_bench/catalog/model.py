"""Shapes of models, and what follows from a shape: parameters by role, values cached a token."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

from headroom_bench.catalog._entries import Facts, slug
from headroom_bench.catalog.stored import Stored
from headroom_bench.errors import UserError

DEFAULT_EXPERT_EXPONENT = 0.85
"""n users wake as many experts as n**0.85 independent ones: between the Headroom article's 0.65 and
the 1.0 of independent routing, which published step times of eight models span."""


@dataclass(frozen=True, slots=True)
class MoE:
    """Routed experts of one model."""

    n_experts: int
    experts_per_token: int
    moe_intermediate: int
    """Width of one routed expert."""
    n_moe_layers: int
    n_shared_experts: int = 0
    shared_intermediate: int = 0
    """Width of the shared experts, summed."""
    first_dense_layers: int = 0
    dense_ffn_beside_experts: bool = False
    """Every layer has a dense FFN as well as its experts (Gemma 4 26B-A4B)."""
    latent_size: int | None = None
    """Routed experts work on a projection of this width (Nemotron 3 Super)."""
    n_dense_layers: int | None = None
    expert_exponent: float = DEFAULT_EXPERT_EXPONENT
    """n sequences wake as many experts as n**exponent independent ones."""
    expert_exponent_low: float = 0.65
    expert_exponent_high: float = 1.0
    """The range that it may lie in; narrow where it was fitted."""
    expert_exponent_source: str = ""
    """Rows that it was fitted to; empty where it is the default."""


@dataclass(frozen=True, slots=True)
class MLA:
    """Multi-head latent attention: one compressed vector a token a layer is cached."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None = None


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Layers that see only the last `window` tokens, among layers that see all."""

    window: int
    n_local_layers: int
    n_global_layers: int
    global_n_kv_heads: int | None = None
    global_head_dim: int | None = None
    local_n_kv_heads: int | None = None
    global_v_from_k: bool = False
    """Full-attention layers have no V projection; both K and V are cached all the same."""
    kv_shared_layers: int = 0
    """The last so many layers read the cache of earlier ones instead of having their own."""
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Layers that keep a state of fixed size instead of a growing cache."""

    kind: str
    """gated_deltanet, mamba2, kimi_delta_attention, short_conv; mamba (1) in files only."""
    n_linear_layers: int
    n_full_attention_layers: int
    conv_kernel: int
    state_bytes_per_sequence: int
    n_mlp_or_moe_layers: int = 0
    """Layers that are only an FFN (Nemotron); 0 where every layer has one."""
    n_k_heads: int = 0
    n_v_heads: int = 0
    k_head_dim: int = 0
    v_head_dim: int = 0
    n_ssm_heads: int = 0
    ssm_head_dim: int = 0
    ssm_state: int = 0
    n_groups: int = 0
    n_heads: int = 0
    head_dim: int = 0


@dataclass(frozen=True, slots=True)
class SparseAttention:
    """A small indexer picks which cached tokens a query reads."""

    index_heads: int
    index_dim: int
    topk_tokens: int
    first_dense_layers: int = 0


@dataclass(frozen=True, slots=True)
class CompressedAttention:
    """A cache stored several times compressed, beside a short window (DeepSeek V4)."""

    window: int
    n_layers: int
    values_per_layer: int
    """Cached a token a layer inside the window."""
    kv_values_per_token: int
    """Cached a token beyond it, all layers together, after compression."""
    attention_params_b: float
    """Counted by its own formula: low-rank query, grouped low-rank output, indexer."""
    compress_ratio_layers: Facts = field(default_factory=dict, compare=False)
    q_lora_rank: int = 0
    o_lora_rank: int = 0
    o_groups: int = 0
    qk_rope_head_dim: int = 0
    index_topk: int = 0
    index_n_heads: int = 0
    index_head_dim: int = 0
    num_hash_layers: int = 0


@dataclass(frozen=True, slots=True)
class PerLayerEmbedding:
    """An extra embedding table for every layer: looked up, never multiplied (Gemma 3n, 4)."""

    dim: int
    vocab_size: int
    altup_inputs: int = 0
    laurel_rank: int = 0
    kv_shared_layers_use_double_ffn: bool = False


@dataclass(frozen=True, slots=True)
class Model:
    """One model's shape. Sizes are counts of elements unless the name has a unit."""

    name: str
    n_layers: int
    n_kv_heads: int
    head_dim: int
    """K's width a head. For a latent-attention model the expanded width."""
    hidden_size: int = 0
    n_heads: int = 0
    vocab_size: int = 0
    v_head_dim: int = 0
    """V's width a head; 0 means as K's."""
    n_attention_layers: int | None = None
    """Layers with attention, where some have none (Nemotron Super 49B)."""
    attention_output_gate: bool = False
    qkv_bias: bool = False
    attention_sinks: bool = False
    tied_embeddings: bool = False
    ffn_intermediate: int = 0
    ffn_gated: bool = True
    ffn_widths: tuple[int, ...] = ()
    """One width a layer, where layers differ."""
    moe: MoE | None = None
    mla: MLA | None = None
    sliding_window: SlidingWindow | None = None
    linear_attention: LinearAttention | None = None
    sparse_attention: SparseAttention | None = None
    compressed_attention: CompressedAttention | None = None
    per_layer_embedding: PerLayerEmbedding | None = None
    max_context: int = 0
    partial: bool = False
    """Parts of the shape are not published: the cache can be computed, the weights cannot."""
    hf_id: str = ""
    aliases: tuple[str, ...] = ()
    family: str = ""
    released: str = ""
    params_total_b: float | None = None
    """The publisher's figure, in 10^9."""
    params_active_b: float | None = None
    """The publisher's figure, in 10^9. Some count the embedding, some do not."""
    params_source: str = ""
    towers: Facts = field(default_factory=dict, compare=False)
    native_quant: Facts = field(default_factory=dict, compare=False)
    """The mix that the weights were published in, where it is not one 16-bit type."""
    reasoning: Facts = field(default_factory=dict, compare=False)
    native_speculative: Facts = field(default_factory=dict, compare=False)
    notes: str = ""
    estimated: bool = False
    """Some value was not confirmed by a published config; notes say which."""
    source: str = ""
    stored: Stored | None = None
    """The weights of the file that the model was read from, tensor by tensor."""

    @property
    def id(self) -> str:
        """The name as a user would type it: lower case, hyphens."""
        return slug(self.name)

    @property
    def window(self) -> int | None:
        """The sliding window's tokens, where some layers have one."""
        if self.compressed_attention:
            return self.compressed_attention.window
        return self.sliding_window.window if self.sliding_window else None

    @property
    def kv_exact(self) -> bool:
        """Whether every figure that the cache follows from was published or read from a file."""
        return not self.estimated and self.compressed_attention is None

    def params(self) -> Params:
        """Parameters by role, counted in the file where there is one, else from the shape.

        Raises `UserError` for a partial shape.
        """
        return _stored_params(self, self.stored) if self.stored else _params(self)

    def params_of_shape(self) -> Params:
        """Parameters by role, counted from the shape even where there is a file."""
        return _params(self)

    def kv(self) -> KvShape:
        """Values cached and read a token, and state a sequence, from the shape."""
        return _kv(self)

    def attention_flops_per_pair(self) -> tuple[float, float]:
        """FLOPs a (query, key) pair, all layers: (full-attention layers, window layers).

        QK^T and PV cost 2 FLOPs a value each: 2 heads (k_width + v_width) a layer; with latent
        attention in its absorbed form 2 heads (2 rank + rope) (DeepSeek-V2, section 2.1).
        """
        full, local = _attention_layers(self)
        if self.mla:
            width = 2 * self.mla.kv_lora_rank + self.mla.qk_rope_head_dim
            return 2.0 * self.n_heads * width * full, 0.0
        window_width = self.head_dim + (self.v_head_dim or self.head_dim)
        swa = self.sliding_window
        full_width = 2 * swa.global_head_dim if swa and swa.global_head_dim else window_width
        return 2.0 * self.n_heads * full_width * full, 2.0 * self.n_heads * window_width * local


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


def _attention_layers(model: Model) -> tuple[int, int]:
    """Attention layers that see everything, and those that see a window."""
    if model.sliding_window:
        return model.sliding_window.n_global_layers, model.sliding_window.n_local_layers
    if model.linear_attention:
        return model.linear_attention.n_full_attention_layers, 0
    return model.n_attention_layers or model.n_layers, 0


@functools.cache
def _kv(model: Model) -> KvShape:
    state = model.linear_attention.state_bytes_per_sequence if model.linear_attention else 0
    full, local = _attention_layers(model)
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


@functools.cache
def _params(model: Model) -> Params:
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


def _stored_params(model: Model, stored: Stored) -> Params:
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
    full, local = _attention_layers(model)
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
