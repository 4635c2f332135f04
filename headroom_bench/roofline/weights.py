"""Bytes of weights by role, for a model stored in one way."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from headroom_bench.catalog import Model, Quant
from headroom_bench.catalog.stored import ROLES

_Q6_K_BPW = 6.5625
_K_BLOCK = 256
"""Weights of one block of a K- or I-quant: matrices of other row lengths cannot be stored so."""
_SHORT_BLOCKS = ((6.5625, 8.5), (5.5, 6.0), (4.5, 5.5), (0.0, 4.5))
"""Bits of such a block, and of the short one that llama.cpp takes instead (llama-quant.cpp):
Q8_0 for Q6_K, Q5_1 for Q5_K, Q5_0 for Q4_K, IQ4_NL for what is smaller."""
_WITH_K_BLOCKS = ("k-quant", "i-quant", "unsloth dynamic mix")
_Q8_0_BPW = 8.5
_MXFP4_BPW = 4.25
_F32_BPW = 32.0
_EVERY_PASS = ("attention", "dense_ffn", "shared_experts", "router", "other")
"""Roles that every pass reads as a whole."""


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


def unlike_any_file(model: Model, quant: Quant) -> str | None:
    """What is wrong with a format that no file of such a model is known to have; None where nothing
    is."""
    if quant.covers != "experts" or model.moe is not None:
        return None
    return (
        f"{quant.name} is a format of experts, and {model.name} has none: no such file is known; "
        "priced as if its layers were stored so"
    )


def role_bits(model: Model, quant: Quant) -> RoleBits:
    """Widths by role.

    From `Quant.covers`. Four rules of llama.cpp's files come on top, confirmed by published file
    sizes: matrices whose rows K-blocks do not fill take short ones (`_ragged`); plain 4- and 5-bit
    files keep the output matrix at Q6_K (Q8_0 where the width is no multiple of 256; Llama 2 7B at
    Q4_0 has 4.54 bits a weight, SmolLM2-135M at Q4_1 96.6 MB); routers stay at 32 bits (the Tuning
    article's Gemma 4 file); gpt-oss keeps its published MXFP4 experts whatever the rest is stored
    in (the 120B: 59.02 GiB with Q8_0, 60.87 with 16 bits).
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
    if quant.kind in _WITH_K_BLOCKS and width < _Q8_0_BPW:
        experts, attention, body = _ragged(model, quant, width)
    if model.native_quant.get("experts") == "MXFP4":
        experts = _MXFP4_BPW
    hybrid = model.linear_attention is not None
    attention = (quant.hybrid_attention_bpw if hybrid else quant.attention_bpw) or attention
    return RoleBits(tables, head, attention, body, experts, router)


def _ragged(model: Model, quant: Quant, width: float) -> tuple[float, float, float]:
    """Widths of experts, attention and the rest of the body with short blocks where rows need them.

    GLM-4.5-Air's experts are 1408 wide: 5.5 blocks. Its UD-Q4_K_XL file has 5.47 bits a weight
    where others have 4.75, UD-Q6_K_XL 7.60 for 6.9; Gemma 4 26B-A4B (704 wide) 5.41.
    """
    inner = next(short for block, short in _SHORT_BLOCKS if width >= block)
    mixed = quant.kind == "unsloth dynamic mix" or quant.name.endswith("_M")
    # Mixed files keep half of the down projections in the next class, Q6_K.
    outer = (inner + 8.5) / 2 if mixed and 4.5 <= width < _Q6_K_BPW else inner

    def ffn(into: int, through: int) -> float:
        ins = 2 if model.ffn_gated else 1
        wide = ins * (inner if into % _K_BLOCK else width)
        return (wide + (outer if through % _K_BLOCK else width)) / (ins + 1)

    moe, hidden = model.moe, model.hidden_size
    experts = ffn(moe.latent_size or hidden, moe.moe_intermediate) if moe else width
    attention = inner if hidden % _K_BLOCK else width
    return experts, attention, ffn(hidden, model.ffn_intermediate or _K_BLOCK)


def bytes_by_role(model: Model, quant: Quant) -> dict[str, float]:
    """What tensors of each role (`catalog.stored.ROLES`) take: in the model's file, where there is
    one, else by its shape and the widths by role.

    Raises `UserError` for a model whose shape is only partly published.
    """
    if model.stored:
        return {role: float(model.stored.size_bytes(role)) for role in ROLES}
    params, bits = model.params(), role_bits(model, quant)
    found = {
        "experts": params.routed * bits.experts,
        "attention": params.attention * bits.attention,
        "embedding": params.embedding * bits.tables,
        "per_layer_embedding": params.per_layer_embedding * bits.tables,
        "output": params.head * bits.head,
        "dense_ffn": params.dense_ffn * (bits.attention if model.moe else bits.body),
        "shared_experts": params.shared * bits.body,
        "router": params.router * bits.router,
        "other": params.other * bits.body,
        "mtp": 0.0,
    }
    return {role: width / 8 for role, width in found.items()}


@functools.cache
def weight_bytes(model: Model, quant: Quant) -> WeightBytes:
    """The same by what a pass reads. Where the model has a file, its tensors count and `quant` does
    not; blocks that predict further tokens are in memory, and an ordinary pass does not read them.

    Raises `UserError` for a model whose shape is only partly published.
    """
    size, moe = bytes_by_role(model, quant), model.moe
    head = size["output"] or size["embedding"]
    body = sum(size[role] for role in _EVERY_PASS)
    return WeightBytes(
        total=sum(size.values()),
        always_read=body + head,
        head=head,
        routed=size["experts"],
        one_expert=size["experts"] / (moe.n_moe_layers * moe.n_experts) if moe else 0.0,
        moe_layers=moe.n_moe_layers if moe else 0,
    )
