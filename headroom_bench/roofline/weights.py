"""Bytes of weights by role, for a model stored in one way."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from headroom_bench.catalog import Model, Quant, Stored

_Q6_K_BPW = 6.5625
_Q8_0_BPW = 8.5
_MXFP4_BPW = 4.25
_F32_BPW = 32.0


@dataclass(frozen=True, slots=True)
class RoleBits:
    """Bits a weight, scales included, by what the weight does."""

    tables: float
    """Embeddings: rows are looked up."""
    head: float
    attention: float
    """Attention and recurrent mixers; in a mixture its dense FFN as well."""
    body: float
    """Dense FFN, shared experts and what else every token uses."""
    experts: float
    """Routed experts."""
    router: float


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Where the bytes of a model are, and which of them a pass reads."""

    total: float
    """Everything, as it lies in memory."""
    always_read: float
    """Read by every pass: the body and the output matrix. The input embedding is not in it unless
    it is the output matrix too (tied)."""
    head: float
    """The output matrix's part of `always_read`."""
    routed: float
    """All routed experts of all layers."""
    one_expert: float
    """One routed expert in one layer; 0 for a dense model."""
    moe_layers: int
    """Layers with routed experts."""


def role_bits(model: Model, quant: Quant) -> RoleBits:
    """Widths by role.

    From `Quant.covers`. Three rules of llama.cpp's files come on top, confirmed by published file
    sizes: plain 4- and 5-bit files keep the output matrix at Q6_K (Q8_0 where the width is no
    multiple of 256; Llama 2 7B at Q4_0 has 4.54 bits a weight, SmolLM2-135M at Q4_1 96.6 MB);
    routers stay at 32 bits (the Tuning article's Gemma 4 file); gpt-oss keeps its published MXFP4
    experts whatever the rest is stored in (the 120B: 59.02 GiB with Q8_0, 60.87 with 16 bits).
    """
    width = quant.bits_per_weight
    tables = head = attention = body = experts = router = width
    if quant.covers == "linear" or (quant.covers == "experts" and model.moe is None):
        tables = head = router = quant.rest_bpw
    elif quant.covers == "experts":
        tables = head = attention = body = router = quant.rest_bpw
    elif quant.format == "gguf" and not quant.whole_file_bpw and 4 < width < _Q6_K_BPW:
        head = _Q8_0_BPW if model.hidden_size % 256 else _Q6_K_BPW
        tables = head if model.tied_embeddings else tables
    if quant.format == "gguf":
        router = _F32_BPW
    if model.native_quant.get("experts") == "MXFP4":
        experts = _MXFP4_BPW
    hybrid = model.linear_attention is not None
    attention = (quant.hybrid_attention_bpw if hybrid else quant.attention_bpw) or attention
    return RoleBits(tables, head, attention, body, experts, router)


@functools.cache
def weight_bytes(model: Model, quant: Quant) -> WeightBytes:
    """Bytes by role: as the model's file stores them, else from its shape and the widths by role.

    Where there is a file its tensors count and `quant` does not. Raises `UserError` for a model
    whose shape is only partly published.
    """
    if model.stored:
        return _bytes_in_file(model, model.stored)
    params, bits = model.params(), role_bits(model, quant)
    tables = (params.embedding + params.per_layer_embedding) * bits.tables / 8
    wide = params.attention + (params.dense_ffn if model.moe else 0.0)
    narrow = params.body_always - wide - params.router
    body = (wide * bits.attention + narrow * bits.body + params.router * bits.router) / 8
    head = params.output * bits.head / 8
    routed = params.routed * bits.experts / 8
    moe = model.moe
    return WeightBytes(
        total=tables + params.head * bits.head / 8 + body + routed,
        always_read=body + head,
        head=head,
        routed=routed,
        one_expert=routed / (moe.n_moe_layers * moe.n_experts) if moe else 0.0,
        moe_layers=moe.n_moe_layers if moe else 0,
    )


def _bytes_in_file(model: Model, stored: Stored) -> WeightBytes:
    """Blocks that predict further tokens are in memory; an ordinary pass does not read them."""
    head = float(stored.size_bytes("output") or stored.size_bytes("embedding"))
    always = stored.size_bytes("attention", "dense_ffn", "shared_experts", "router", "other")
    routed, moe = float(stored.size_bytes("experts")), model.moe
    return WeightBytes(
        total=float(stored.size_bytes()),
        always_read=always + head,
        head=head,
        routed=routed,
        one_expert=routed / (moe.n_moe_layers * moe.n_experts) if moe else 0.0,
        moe_layers=moe.n_moe_layers if moe else 0,
    )
