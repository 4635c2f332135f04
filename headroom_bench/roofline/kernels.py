"""What kernels make of a weight format: which constants of a box hold for it."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.catalog import Quant
from headroom_bench.roofline.constants import Constants

_KQUANTS = ("k-quant", "i-quant", "ternary", "unsloth dynamic mix", "affine", "4-bit")
BITS16, _BITS8 = 15.0, 7.5
"""Bits a weight from which a format counts as 16 or 8 bits."""
VECTOR_HEAD_SIZE = 256
"""Widest head whose quantized cache CUDA's vector kernel reads as it is (llama.cpp, fattn.cu)."""


@dataclass(frozen=True, slots=True)
class FormatShares:
    """A weight format against plain 4-bit blocks on one box."""

    bandwidth: float
    expert_bandwidth: float
    compute: float
    half_tokens: float
    """Of the prompt tokens an expert at which its products reach half of the dense efficiency."""
    prompt_p: float
    """Exponent of the p-norm for prompts."""


def weight_class(quant: Quant) -> str:
    """fp4, bits16, bits8, kquant or plain: formats that share their kernels."""
    name = quant.name.lower()
    if "mxfp4" in name or "nvfp4" in name:
        return "fp4"
    if quant.bits_per_weight >= BITS16:
        return "bits16"
    if quant.bits_per_weight >= _BITS8:
        return "bits8"
    return "kquant" if quant.kind in _KQUANTS else "plain"


def shares_of(kind: str, constants: Constants) -> FormatShares:
    """The shares of a weight class (see `weight_class`) under a box's constants."""
    of_class = {
        "kquant": constants.kquant_bandwidth_share,
        "bits16": constants.bits16_bandwidth_share,
    }
    bandwidth = of_class[kind].value if kind in of_class else 1.0
    overlap = constants.overlap_p.value
    compute = {
        "fp4": constants.fp4_compute_share,
        "bits16": constants.bits16_compute_share,
        "bits8": constants.bits8_compute_share,
        "kquant": constants.kquant_compute_share,
    }
    return FormatShares(
        bandwidth=bandwidth,
        expert_bandwidth=bandwidth * constants.expert_bandwidth_share.value,
        compute=compute[kind].value if kind in compute else 1.0,
        half_tokens=constants.fp4_half_share.value if kind == "fp4" else 1.0,
        prompt_p=max(overlap, constants.fp4_prompt_p.value) if kind == "fp4" else overlap,
    )


def quantized_cache_factor(value_bytes: float, head_size: int) -> float:
    """Cost of reading a quantized cache on CUDA, over that of its own bytes.

    Wide heads: the cache is first copied to 16 bits: read it, write 2 bytes a value, read 2 bytes,
    (b + 4) / b. No free constant; at 64k measured on Gemma 4 26B (9.0 ms more; this gives 9.3) and
    GLM-4.7-Flash (22.8; 24.7). Others: unpacking takes back what fewer bytes save, 2 / b (Qwen3.6:
    0.4 % at 64k; all three in the Tuning article).
    """
    if head_size > VECTOR_HEAD_SIZE:
        return (value_bytes + 4.0) / value_bytes
    return 2.0 / value_bytes
