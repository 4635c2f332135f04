"""From a deployment to what each unit of work of a pass costs.

A `Shape` is what the model and its formats say, `Rates` are what the box, its runtime and its
constants say; `combine` joins the two. All three hold floats for one deployment and arrays for
many, so that one definition prices both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headroom_bench.catalog import Model, kv_value_bytes
from headroom_bench.roofline.constants import Constants
from headroom_bench.roofline.iteration import Coefficients
from headroom_bench.roofline.kernels import (
    BITS16,
    quantized_cache_factor,
    shares_of,
    weight_class,
)
from headroom_bench.roofline.kv import KvBytes
from headroom_bench.roofline.links import Split, split_of
from headroom_bench.roofline.offload import HostShare, host_share

if TYPE_CHECKING:
    from headroom_bench.catalog import Hardware
    from headroom_bench.roofline.deployment import Deployment
    from headroom_bench.roofline.weights import WeightBytes


@dataclass(frozen=True, slots=True)
class Shape:
    """A model in its formats: bytes and FLOPs by what they grow with."""

    always_bytes: Any
    expert_bytes: Any
    """One expert in every MoE layer."""
    experts: Any
    experts_per_token: Any
    expert_exponent: Any
    expert_16bit: Any
    """1 where experts are stored in 16 bits."""
    expert_width: Any
    """Of one routed expert's FFN; for a dense model the width that nothing is scaled at."""
    kv_bytes: Any
    """Read a cached token, layers that keep everything."""
    kv_copy_bytes: Any
    """More where reading a quantized cache costs more than its bytes."""
    window_bytes: Any
    window_copy_bytes: Any
    state_bytes: Any
    body_flops: Any
    """A token, 2 FLOPs a parameter (Headroom article)."""
    expert_flops: Any
    """One expert in every MoE layer, a token."""
    head_flops: Any
    pair_flops: Any
    window_pair_flops: Any
    latent: Any
    """1 for latent attention (MLA)."""
    ungrouped: Any
    """1 where the query heads of a KV head are no multiple of 8."""
    layers: Any
    moe_layers: Any
    linear_layers: Any
    hidden: Any


_USUAL_WIDTH = 2048.0


@dataclass(frozen=True, slots=True)
class Rates:
    """A box under a runtime, for one class of weight formats: seconds a byte, a FLOP, a layer."""

    byte_s: Any
    expert_byte_s: Any
    kv_byte_s: Any
    flop_s: Any
    pair_flop_s: Any
    ungrouped_share: Any
    query_flop_s: Any
    latent_flop_s: Any
    half_tokens: Any
    narrow_width: Any
    overhead_s: Any
    layer_s: Any
    linear_layer_s: Any
    linear_token_s: Any
    latent_layer_s: Any
    expert_layer_s: Any
    expert_16bit_share: Any
    expert_16bit_compute_share: Any
    expert_16bit_layer_s: Any
    batch_layer_s: Any
    expert_batch_s: Any
    token_share: Any
    vector_tokens: Any
    tile_tokens: Any
    expert_tiles: Any
    graph_tokens: Any
    kv_copy: Any
    prompt_p: Any
    p: float


def shape_of(model: Model, weights: WeightBytes, kv: KvBytes, kv_k: str, kv_v: str) -> Shape:
    """The shape of a model with its weights and its cache stored as given.

    Raises `UserError` for a partial shape or an unknown cache type.
    """
    params, moe = model.params(), model.moe
    pair, window_pair = model.attention_flops_per_pair()
    if kv.window_tokens is None:
        pair, window_pair = pair + window_pair, 0.0
    copy, window_copy = _copy_bytes(model, kv, kv_k, kv_v)
    linear = model.linear_attention
    return Shape(
        always_bytes=weights.always_read,
        expert_bytes=weights.one_expert * weights.moe_layers,
        experts=float(moe.n_experts) if moe else 0.0,
        experts_per_token=float(moe.experts_per_token) if moe else 0.0,
        expert_exponent=moe.expert_exponent if moe else 1.0,
        expert_16bit=float(bool(moe) and weights.routed >= BITS16 / 8 * params.routed),
        expert_width=float(moe.moe_intermediate) if moe else _USUAL_WIDTH,
        kv_bytes=kv.full_read,
        kv_copy_bytes=copy,
        window_bytes=kv.window_read,
        window_copy_bytes=window_copy,
        state_bytes=kv.state,
        body_flops=2 * params.body_active,
        expert_flops=2 * params.routed_active / moe.experts_per_token if moe else 0.0,
        head_flops=2 * params.output,
        pair_flops=pair,
        window_pair_flops=window_pair,
        latent=1.0 if model.mla else 0.0,
        ungrouped=float(_ungrouped(model)),
        layers=float(model.n_layers),
        moe_layers=float(weights.moe_layers),
        linear_layers=float(linear.n_linear_layers) if linear else 0.0,
        hidden=float(model.hidden_size),
    )


def _ungrouped(model: Model) -> bool:
    """Whether full-attention layers share a KV head among a number of heads not a multiple of 8."""
    swa = model.sliding_window
    kv_heads = (swa.global_n_kv_heads if swa else None) or model.n_kv_heads
    return model.mla is None and model.n_heads % (8 * kv_heads) != 0


def _copy_bytes(model: Model, kv: KvBytes, kv_k: str, kv_v: str) -> tuple[float, float]:
    """What reading a quantized cache costs more on CUDA, as bytes: full and window layers.

    K and V each pay for themselves.
    """
    shape, swa, mla = model.kv(), model.sliding_window, model.mla
    width = mla.kv_lora_rank + mla.qk_rope_head_dim if mla else model.head_dim
    full_width = (swa.global_head_dim if swa else None) or width
    sizes = kv_value_bytes(kv_k), kv_value_bytes(kv_v)
    found = []
    for values, read, head in (
        ((shape.full_k, shape.full_v), kv.full_read, full_width),
        ((shape.window_k, shape.window_v), kv.window_read, width),
    ):
        own = sum(n * size for n, size in zip(values, sizes, strict=True))
        more = sum(
            n * size * (quantized_cache_factor(size, head) - 1.0)
            for n, size in zip(values, sizes, strict=True)
            if size < 2.0
        )
        found.append(read * more / own if own else 0.0)
    return found[0], found[1]


def rates_of(hardware: Hardware, fitted: Constants, kind: str) -> Rates:
    """The rates of a box for weights of a class (see `kernels.weight_class`)."""
    shares = shares_of(kind, fitted)
    stream = hardware.bandwidth_gb_s * 1e9 * fitted.bandwidth_efficiency.value
    peaks = hardware.tflops_dense
    peak = max(peaks.fp16_bf16, peaks.fp32 or 0.0) * 1e12
    products = peaks.int8 * 1e12 if peaks.int8 and fitted.int8_products.value else peak
    return Rates(
        byte_s=1 / (stream * shares.bandwidth),
        expert_byte_s=1 / (stream * shares.expert_bandwidth),
        kv_byte_s=1 / (stream * fitted.kv_bandwidth_share.value),
        flop_s=1 / (products * fitted.compute_efficiency.value * shares.compute),
        pair_flop_s=1 / (peak * fitted.attention_efficiency.value),
        ungrouped_share=fitted.ungrouped_attention_share.value,
        query_flop_s=1 / (peak * fitted.decode_attention_efficiency.value),
        latent_flop_s=1 / (peak * fitted.latent_attention_efficiency.value),
        half_tokens=fitted.expert_half_tokens.value * shares.half_tokens,
        narrow_width=fitted.narrow_expert_width.value,
        overhead_s=fitted.overhead_s.value,
        layer_s=fitted.layer_s.value,
        linear_layer_s=fitted.linear_layer_s.value,
        linear_token_s=fitted.linear_token_s.value,
        latent_layer_s=fitted.latent_layer_s.value,
        expert_layer_s=fitted.expert_layer_s.value,
        expert_16bit_share=fitted.expert_16bit_share.value,
        expert_16bit_compute_share=fitted.expert_16bit_compute_share.value,
        expert_16bit_layer_s=fitted.expert_16bit_layer_s.value,
        batch_layer_s=fitted.batch_layer_s.value,
        expert_batch_s=fitted.expert_batch_s.value,
        token_share=fitted.token_share.value,
        vector_tokens=fitted.vector_tokens.value,
        tile_tokens=fitted.tile_tokens.value,
        expert_tiles=fitted.expert_tiles.value,
        graph_tokens=fitted.graph_tokens.value,
        kv_copy=fitted.kv_copy.value,
        prompt_p=shares.prompt_p,
        p=fitted.overlap_p.value,
    )


def combine(shape: Shape, rates: Rates, split: Split, host: HostShare) -> Coefficients:
    """What each unit of work costs.

    Time of bytes = bytes / (bandwidth * efficiency); time of FLOPs = FLOPs / (peak * efficiency).
    A prompt's experts work at m / (m + m_half) of the dense efficiency, m the tokens a woken expert
    gets (fitted form: GB10, M2 Ultra, Strix Halo); m_half tokens more for each woken expert is the
    same thing, written as `tile_s`.
    """
    work, cache = 1 / split.work_boxes, 1 / split.cache_boxes
    query = shape.latent * rates.latent_flop_s + (1 - shape.latent) * rates.query_flop_s
    pair_flop_s = rates.pair_flop_s * (1 + shape.ungrouped * (1 / rates.ungrouped_share - 1))
    launches = (
        rates.layer_s * shape.layers
        + rates.linear_layer_s * shape.linear_layers
        + rates.latent_layer_s * shape.layers * shape.latent
        + rates.expert_layer_s * shape.moe_layers
        + rates.expert_16bit_layer_s * shape.moe_layers * shape.expert_16bit
    )
    expert_byte_s = rates.expert_byte_s * (
        1 + shape.expert_16bit * (1 / rates.expert_16bit_share - 1)
    )
    narrow = (1 + rates.narrow_width / shape.expert_width) / (1 + rates.narrow_width / _USUAL_WIDTH)
    slower = 1 + shape.expert_16bit * (1 / rates.expert_16bit_compute_share - 1)
    expert_flops = shape.expert_flops * narrow * slower
    body_flops = shape.body_flops + (expert_flops - shape.expert_flops) * shape.experts_per_token
    always, expert = 1 - host.always, 1 - host.experts
    return Coefficients(
        always_s=shape.always_bytes * always * rates.byte_s * work,
        expert_s=shape.expert_bytes * expert * expert_byte_s * work,
        host_s=shape.always_bytes * host.always * host.byte_s,
        host_expert_s=shape.expert_bytes * host.experts * host.byte_s,
        experts=shape.experts,
        experts_per_token=shape.experts_per_token,
        expert_exponent=shape.expert_exponent,
        kv_s=(shape.kv_bytes + rates.kv_copy * shape.kv_copy_bytes) * rates.kv_byte_s * cache,
        window_s=(
            (shape.window_bytes + rates.kv_copy * shape.window_copy_bytes) * rates.kv_byte_s * cache
        ),
        state_s=2 * shape.state_bytes * rates.kv_byte_s * cache,
        body_s=body_flops * rates.flop_s * work,
        head_s=shape.head_flops * rates.flop_s * work,
        pair_s=shape.pair_flops * pair_flop_s * cache,
        window_pair_s=shape.window_pair_flops * pair_flop_s * cache,
        query_s=shape.pair_flops * query * cache,
        query_window_s=shape.window_pair_flops * query * cache,
        scan_s=rates.linear_token_s * shape.linear_layers * work,
        tile_s=expert_flops * rates.half_tokens * rates.flop_s * work,
        overhead_s=rates.overhead_s + launches + split.fixed_s,
        sort_s=rates.expert_batch_s * shape.moe_layers,
        several_s=rates.batch_layer_s * shape.layers,
        exchange_s=split.token_s,
        token_share=rates.token_share,
        vector_tokens=rates.vector_tokens,
        tile_tokens=rates.tile_tokens,
        expert_tiles=rates.expert_tiles,
        graph_tokens=rates.graph_tokens,
        prompt_p=rates.prompt_p,
        p=rates.p,
    )


def coefficients(deployment: Deployment) -> Coefficients:
    """What each unit of work costs this deployment, in seconds.

    Raises `UserError` for a model whose shape is only partly published.
    """
    shape = shape_of(
        deployment.model, deployment.weights(), deployment.kv(), deployment.kv_k, deployment.kv_v
    )
    kind = weight_class(deployment.quant)
    rates = rates_of(deployment.hardware, deployment.constants, kind)
    return combine(shape, rates, split_of(deployment), host_share(deployment))


HOST_COPY_GB_S = 20.0
"""What copying between a card and host memory reaches over PCIe 4.0 x16 (assumed)."""


def host_copy_s(deployment: Deployment) -> float:
    """Copying one token's cache from or to host memory; half the memory's rate where shared."""
    kv, box = deployment.kv(), deployment.hardware
    rate = box.bandwidth_gb_s / 2 if box.unified else HOST_COPY_GB_S
    return (kv.full + kv.window) / (rate * 1e9)
