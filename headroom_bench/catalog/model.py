"""Shapes of models."""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom_bench.catalog._entries import Facts
from headroom_bench.catalog._names import slug
from headroom_bench.catalog.kv_shape import KvShape, kv_of_shape
from headroom_bench.catalog.params import Params, params_in_file, params_of_shape
from headroom_bench.catalog.stored import Stored

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
    def attention_layers(self) -> tuple[int, int]:
        """Attention layers that see everything, and those that see a window."""
        if self.sliding_window:
            return self.sliding_window.n_global_layers, self.sliding_window.n_local_layers
        if self.linear_attention:
            return self.linear_attention.n_full_attention_layers, 0
        return self.n_attention_layers or self.n_layers, 0

    @property
    def kv_exact(self) -> bool:
        """Whether every figure that the cache follows from was published or read from a file."""
        return not self.estimated and self.compressed_attention is None

    def params(self) -> Params:
        """Parameters by role, counted in the file where there is one, else from the shape.

        Raises `UserError` for a partial shape.
        """
        return params_in_file(self, self.stored) if self.stored else params_of_shape(self)

    def params_of_shape(self) -> Params:
        """Parameters by role, counted from the shape even where there is a file."""
        return params_of_shape(self)

    def kv(self) -> KvShape:
        """Values cached and read a token, and state a sequence, from the shape."""
        return kv_of_shape(self)

    def attention_flops_per_pair(self) -> tuple[float, float]:
        """FLOPs a (query, key) pair, all layers: (full-attention layers, window layers).

        QK^T and PV cost 2 FLOPs a value each: 2 heads (k_width + v_width) a layer; with latent
        attention in its absorbed form 2 heads (2 rank + rope) (DeepSeek-V2, section 2.1).
        """
        full, local = self.attention_layers
        if self.mla:
            width = 2 * self.mla.kv_lora_rank + self.mla.qk_rope_head_dim
            return 2.0 * self.n_heads * width * full, 0.0
        window_width = self.head_dim + (self.v_head_dim or self.head_dim)
        swa = self.sliding_window
        full_width = 2 * swa.global_head_dim if swa and swa.global_head_dim else window_width
        return 2.0 * self.n_heads * full_width * full, 2.0 * self.n_heads * window_width * local
