"""The numbers that no data sheet gives, as fitted to published measurements.

Row ids such as `ggspark26` name series of the published measurements that the accuracy page uses.
Each box was fitted to its own rows (robust least squares on the logarithm of the rate, every model
weighing the square root of its cells), drawn towards what the boxes have in common; only constants
that its rows could tell are listed under a box. Left out before any fit: rows marked implausible
or unstable, builds before 2025 where newer ones exist, lists of minima and maxima, deliberately
crippled configurations, several boxes, speculative decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """85th percentile of |log(predicted / measured)|: of published rows of models or, where there
    are several, of series that were left out."""

    decode_dense: float
    decode_moe: float
    several_dense: float
    """Decoding of several sequences."""
    several_moe: float
    prefill_dense: float
    prefill_moe: float
    attention: float = 0.0
    """More for prompts, times the share of their time that attention takes: what deep prompts
    differ by between builds of one year."""
    handling_s: float = 0.0
    """More for short prompts, over their seconds: what a server does before and after, and what
    clients subtract for it, is not in the rule."""


UNKNOWN_BOX = Spread(0.35, 0.45, 0.45, 0.55, 0.70, 0.80)
"""Assumed where a box has no fit of its own."""


@dataclass(frozen=True, slots=True)
class Fit:
    """What rows of one box told."""

    values: Mapping[str, float]
    spread: Spread
    source: str
    status: str = "fitted"


_MEAN = "what fitted boxes have in common"
_METHODOLOGY = "Methodology page, its table of assumptions"

COMMON: Mapping[str, tuple[float, str, str, str]] = {
    "bandwidth_efficiency": (0.80, "1", "assumed", f"{_MEAN}, less what unknown boxes may lack"),
    "kquant_bandwidth_share": (0.93, "1", "assumed", _MEAN),
    "bits16_bandwidth_share": (1.0, "1", "assumed", "no loss outside of SYCL"),
    "expert_bandwidth_share": (0.93, "1", "assumed", _MEAN),
    "expert_16bit_share": (1.0, "1", "assumed", "no loss outside of ROCm"),
    "expert_16bit_compute_share": (1.0, "1", "assumed", "no loss outside of RDNA 3.5 and Vulkan"),
    "kv_bandwidth_share": (0.93, "1", "assumed", _MEAN),
    "decode_attention_efficiency": (0.30, "1", "assumed", _MEAN),
    "latent_attention_efficiency": (0.08, "1", "fitted", "GLM-4.7-Flash on four boxes"),
    "attention_efficiency": (0.35, "1", "assumed", "CUDA and Metal boxes"),
    "ungrouped_attention_share": (1.0, "1", "assumed", "no difference on CUDA, Metal and RDNA 4"),
    "compute_efficiency": (0.35, "1", "assumed", "middle of the fitted boxes"),
    "int8_products": (0.0, "1", "assumed", "16-bit units, or no whole rate is told for 8 bits"),
    "kquant_compute_share": (0.93, "1", "assumed", _MEAN),
    "bits8_compute_share": (0.95, "1", "assumed", _MEAN),
    "bits16_compute_share": (0.9, "1", "assumed", _MEAN),
    "fp4_compute_share": (1.05, "1", "assumed", _MEAN),
    "expert_half_tokens": (20.0, "tokens", "assumed", _MEAN),
    "overhead_s": (0.8e-3, "s", "assumed", _MEAN),
    "layer_s": (1.0e-5, "s", "assumed", _MEAN),
    "linear_layer_s": (1.1e-4, "s", "assumed", _MEAN),
    "linear_token_s": (2.0e-6, "s", "assumed", _MEAN),
    "latent_layer_s": (5.0e-5, "s", "fitted", "GLM-4.7-Flash on four boxes"),
    "expert_layer_s": (2.0e-5, "s", "assumed", _MEAN),
    "batch_layer_s": (6.0e-5, "s", "assumed", _MEAN),
    "expert_16bit_layer_s": (0.0, "s", "assumed", "no loss outside of Vulkan"),
    "expert_batch_s": (5.0e-5, "s", "assumed", _MEAN),
    "token_share": (0.03, "1", "assumed", _MEAN),
    "vector_tokens": (
        8.0,
        "tokens",
        "assumed",
        "llama.cpp: MMVQ_MAX_BATCH_SIZE",
    ),
    "tile_tokens": (16.0, "tokens", "assumed", "matrix kernels of CUDA and ROCm"),
    "expert_tiles": (0.0, "1", "fitted", "ggspark25, ggspark26: CUDA takes small tiles"),
    "graph_tokens": (0.0, "tokens", "assumed", "no captured graphs"),
    "kv_copy": (0.0, "1", "assumed", "hogkv, nathan: Vulkan reads them as they are"),
    "narrow_expert_width": (0.0, "1", "assumed", "no difference under llama.cpp on four boxes"),
    "fp4_half_share": (1.0, "1", "assumed", "no difference outside of gb10"),
    "fp4_prompt_p": (1.0, "1", "assumed", "no difference outside of gb10"),
    "overlap_p": (1.0, "1", "fitted", "7B Q8_0 on gb10 from 1 to 32 sequences: the terms add"),
}
"""name -> value, unit, status, source: what holds unless something below says otherwise."""

_Values = tuple[dict[str, float], str, str]

OF_RUNTIME: Mapping[str, _Values] = {
    "llama.cpp": ({}, "fitted", ""),
    "mlx": (
        {"vector_tokens": 0.0, "tile_tokens": 1.0, "expert_tiles": 0.0, "overhead_s": 3.0e-3},
        "assumed",
        _METHODOLOGY,
    ),
    "vllm": (
        {
            "vector_tokens": 0.0, "tile_tokens": 1.0, "graph_tokens": 8.0, "linear_layer_s": 5.8e-5,
            "batch_layer_s": 0.0, "expert_batch_s": 0.0, "expert_layer_s": 6.8e-5,
            "overhead_s": 2.2e-3, "compute_efficiency": 0.40, "bits16_compute_share": 1.1,
        },
        "assumed",
        "as vLLM on gb10 (dj, jvr); graphs at 1, 2, 4 and multiples of 8 sequences",
    ),
    "tensorrt-llm": (
        {
            "vector_tokens": 0.0, "tile_tokens": 1.0, "linear_layer_s": 5.8e-5, "layer_s": 0.5e-5,
            "batch_layer_s": 0.0, "expert_batch_s": 0.0, "overlap_p": 2.5,
            "compute_efficiency": 0.5,
        },
        "assumed",
        "8B on H100: time hardly grows from 8 to 128 sequences; usual share of peak",
    ),
}  # fmt: skip
"""Family of runtimes -> values, status, source."""

ADDED_BY_RUNTIME: Mapping[str, _Values] = {
    "ollama": (
        {"expert_layer_s": 8.0e-5},
        "fitted",
        "gpar, hogb, lmsys, misc against llama.cpp on the same boxes: mixtures decode a third "
        "slower, dense models do not",
    ),
}
"""Runtime (not family) -> what it adds to the constants of its family, status, source."""

OF_BACKEND: Mapping[str, _Values] = {
    "cuda": (
        {
            "kv_copy": 1.0, "latent_attention_efficiency": 0.9, "int8_products": 1.0,
            "compute_efficiency": 0.22,
        },
        "assumed",
        "quantized caches: seed1, b10851; products: 0.22 to 0.24 of the 8-bit peak on six boxes "
        "from RTX 3090 to RTX PRO 6000, 0.16 on gb10",
    ),
    "rocm": (
        {"kv_copy": 1.0, "attention_efficiency": 0.10, "compute_efficiency": 0.31},
        "assumed",
        "shares CUDA's kernels; attention and products as on RDNA 3, 3.5 and 4",
    ),
    "vulkan": (
        {
            "tile_tokens": 32.0, "expert_tiles": 1.0, "expert_16bit_layer_s": 1.48e-3,
            "expert_16bit_compute_share": 0.5,
            "attention_efficiency": 0.07, "compute_efficiency": 0.21, "bits16_compute_share": 0.45,
        },
        "fitted",
        "lhl25, hogmu, hogss: Strix Halo from 1 to 64 tokens; ky26feb, ky26may: BF16 MoE; "
        "prompts as on RDNA 3.5, RDNA 4 and Xe2",
    ),
    "metal": (
        {
            "tile_tokens": 32.0, "expert_tiles": 1.0, "token_share": 0.175, "overhead_s": 2.8e-3,
            "expert_layer_s": 6.7e-5,
        },
        "fitted",
        "ggm2u: M2 Ultra, six models from 1 to 32 sequences",
    ),
    "sycl": ({"tile_tokens": 32.0, "expert_tiles": 1.0}, "assumed", "as Vulkan"),
    "cpu": (
        {
            "overhead_s": 2.0e-3, "layer_s": 0.0, "linear_layer_s": 0.0, "latent_layer_s": 0.0,
            "expert_layer_s": 0.0, "batch_layer_s": 0.0, "expert_batch_s": 0.0, "tile_tokens": 1.0,
            "vector_tokens": 0.0, "compute_efficiency": 0.5, "bandwidth_efficiency": 0.55,
            "attention_efficiency": 0.5, "decode_attention_efficiency": 0.5,
        },
        "assumed",
        "no kernels start on a CPU; ikcpu-0015: 7950X, 8B Q4_0",
    ),
}  # fmt: skip
"""What a backend of llama.cpp does wherever it runs: values of the boxes below, for boxes without
rows of their own."""

# fmt: off
BOXES: Mapping[tuple[str, str, str], Fit] = {
    ("gb10", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.871, "kquant_bandwidth_share": 0.952,
        "expert_bandwidth_share": 0.993, "kv_bandwidth_share": 0.83, "overhead_s": 0.000987,
        "linear_layer_s": 0.000111, "batch_layer_s": 0.000129, "compute_efficiency": 0.158,
        "kquant_compute_share": 0.967, "fp4_compute_share": 0.66, "attention_efficiency": 0.38,
        "fp4_half_share": 0.0, "fp4_prompt_p": 2.0, "expert_half_tokens": 22.0,
        "token_share": 0.0169,
        "bits8_compute_share": 0.782, "linear_token_s": 6.44e-06,
    }, Spread(0.17, 0.11, 0.21, 0.12, 0.15, 0.22),
        "ggspark26, gbrep, jethac, prglm, prmmv, seed1, spkmmvq: 348 rows, 12 models, 2026"),
    ("rdna3.5", "llama.cpp", "vulkan"): Fit({
        "ungrouped_attention_share": 0.495,
        "bandwidth_efficiency": 0.857, "kquant_bandwidth_share": 0.911,
        "expert_bandwidth_share": 0.918, "kv_bandwidth_share": 0.931, "overhead_s": 0.50e-3,
        "linear_layer_s": 1.38e-4, "compute_efficiency": 0.273, "kquant_compute_share": 0.856,
        "bits16_compute_share": 0.418, "fp4_compute_share": 0.996, "bits8_compute_share": 0.975,
        "attention_efficiency": 0.118, "expert_half_tokens": 29.2, "token_share": 0.0249,
        "latent_attention_efficiency": 0.0764,
        "linear_token_s": 1.2e-06,
    }, Spread(0.12, 0.24, 0.24, 0.36, 0.26, 0.33, 0.50),
        "ky26feb, ky26may, ky26may12, kycurve, hogb, hogkv, hogmu, hogss, visor: "
        "497 rows, 32 models, RADV"),
    ("rdna3.5", "llama.cpp", "rocm"): Fit({
        "ungrouped_attention_share": 0.552,
        "bandwidth_efficiency": 0.848, "kquant_bandwidth_share": 0.802,
        "expert_bandwidth_share": 0.849, "kv_bandwidth_share": 0.845, "overhead_s": 0.00099,
        "linear_layer_s": 0.000151, "compute_efficiency": 0.37, "kquant_compute_share": 0.943,
        "bits16_compute_share": 1.06, "fp4_compute_share": 0.904, "attention_efficiency": 0.135,
        "expert_half_tokens": 25.9, "decode_attention_efficiency": 0.209,
        "latent_attention_efficiency": 0.0963, "expert_16bit_share": 0.9,
        "expert_16bit_compute_share": 0.3,
        "bits8_compute_share": 0.994, "linear_token_s": 1.85e-06,
    }, Spread(0.15, 0.18, 0.24, 0.45, 0.15, 0.29, 0.45),
        "ky26feb, ky26may, ky26may12, kycurve, bluep, hogb, hogss, strixpar: 1038 rows, ROCm 7"),
    ("apple", "llama.cpp", "metal"): Fit({
        "bandwidth_efficiency": 0.818, "overhead_s": 0.00282, "linear_layer_s": 0.000128,
        "expert_layer_s": 6.72e-05, "batch_layer_s": 5.56e-05, "compute_efficiency": 0.715,
        "kquant_compute_share": 0.856, "bits16_compute_share": 0.942, "fp4_compute_share": 1.09,
        "attention_efficiency": 0.44, "expert_half_tokens": 21.2, "token_share": 0.175,
        "decode_attention_efficiency": 0.141, "latent_attention_efficiency": 0.0888,
        "latent_layer_s": 6.65e-05, "bits8_compute_share": 1, "linear_token_s": 3.81e-06,
    }, Spread(0.24, 0.30, 0.33, 0.19, 0.29, 0.14),
        "ggm2u, atomg, cryp, geer2, m2ufa, m3u20b, q38mtp: 328 rows, 16 models"),
    ("rdna4", "llama.cpp", "rocm"): Fit({
        "bandwidth_efficiency": 0.943, "overhead_s": 3.72e-3, "compute_efficiency": 0.269,
        "kquant_compute_share": 0.851, "bits16_compute_share": 1.69, "fp4_compute_share": 0.87,
        "bits8_compute_share": 0.935, "attention_efficiency": 0.0696, "expert_half_tokens": 52.9,
    }, Spread(0.16, 0.37, 0.35, 0.45, 0.26, 0.80), "kyr9700, ubsweep: R9700, 104 rows, 9 models"),
    ("rdna4", "llama.cpp", "vulkan"): Fit({
        "bandwidth_efficiency": 0.80, "overhead_s": 3.64e-3, "compute_efficiency": 0.170,
        "kquant_compute_share": 0.694, "bits16_compute_share": 0.754, "fp4_compute_share": 1.07,
        "bits8_compute_share": 1.07, "attention_efficiency": 0.0410, "expert_half_tokens": 26.8,
    }, Spread(0.36, 0.43, 0.40, 0.50, 0.32, 0.42), "kyr9700, q38mtp: R9700, 97 rows, 9 models"),
    ("rdna3", "llama.cpp", "vulkan"): Fit({
        "bandwidth_efficiency": 0.752, "overhead_s": 1.37e-3, "compute_efficiency": 0.42,
    }, Spread(0.28, 0.35, 0.40, 0.50, 0.30, 0.45), "pr26284, q38mtp, q38pr, q38swp: RX 7900 XTX"),
    ("rdna3", "llama.cpp", "rocm"): Fit({
        "bandwidth_efficiency": 0.805, "compute_efficiency": 0.304,
    }, Spread(0.30, 0.35, 0.40, 0.40, 0.30, 0.45), "pr18537, ubsweep: RX 7900 XTX, 12 rows"),
    ("ada", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.87, "overhead_s": 0.80e-3, "expert_batch_s": 1.27e-4,
        "compute_efficiency": 0.239, "kquant_compute_share": 0.905, "bits16_compute_share": 1.26,
        "fp4_compute_share": 0.715, "attention_efficiency": 0.41,
    }, Spread(0.22, 0.16, 0.30, 0.37, 0.40, 0.36),
        "gbrep, ikoss, q38mtp, scorebd, ubsweep, xj24: GeForce, 107 rows, 7 models"),
    ("rtx-6000-ada", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.894, "compute_efficiency": 0.144, "kquant_compute_share": 0.784,
        "bits16_compute_share": 0.951, "fp4_compute_share": 1.05,
    }, Spread(0.13, 0.20, 0.35, 0.40, 0.36, 0.40), "pr19053, q38mtp, xj24: 31 rows, 6 models"),
    ("l40s", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.796, "compute_efficiency": 0.131, "bits16_compute_share": 0.572,
        "attention_efficiency": 0.0748,
    }, Spread(0.15, 0.40, 0.45, 0.50, 0.53, 0.60), "xj24: Llama 3 in builds of 2024, 24 rows"),
    ("l4", "llama.cpp", "cuda"): Fit(
        {"compute_efficiency": 0.144}, UNKNOWN_BOX, "as rtx-6000-ada", "assumed"),
    ("ampere", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.807, "kquant_bandwidth_share": 0.90, "kv_bandwidth_share": 1.10,
        "overhead_s": 1.02e-3, "linear_layer_s": 1.20e-4, "expert_batch_s": 7.0e-5,
        "compute_efficiency": 0.22, "kquant_compute_share": 0.792, "bits16_compute_share": 1.18,
        "attention_efficiency": 0.502, "expert_half_tokens": 88.4,
        "decode_attention_efficiency": 0.901,
    }, Spread(0.47, 0.22, 0.50, 0.60, 0.41, 0.80),
        "club, lot3090, misc, q38mtp, scorebd, ubsweep, xj24: GeForce, 92 rows, 11 models"),
    ("rtx-a6000", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.828, "compute_efficiency": 0.232, "bits16_compute_share": 1.14,
        "attention_efficiency": 0.0834,
    }, Spread(0.15, 0.35, 0.45, 0.60, 0.25, 0.70), "xj24: Llama 3 in builds of 2024, 24 rows"),
    ("a10", "llama.cpp", "cuda"): Fit(
        {"compute_efficiency": 0.233}, UNKNOWN_BOX, "as rtx-a6000", "assumed"),
    ("blackwell", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.87, "overhead_s": 0.70e-3, "linear_layer_s": 7.8e-5,
        "expert_layer_s": 2.25e-5, "compute_efficiency": 0.237, "kquant_compute_share": 0.944,
        "expert_half_tokens": 119.0,
    }, Spread(0.29, 0.60, 0.40, 0.70, 0.60, 0.71),
        "q38mtp, q38swp, misc7, scorebd: RTX 5090; share of peak as on Ada"),
    ("rtx-pro-6000-ws", "llama.cpp", "cuda"): Fit({
        "compute_efficiency": 0.228, "kquant_compute_share": 1.03, "fp4_compute_share": 1.42,
    }, Spread(0.29, 0.32, 0.40, 0.50, 0.45, 0.60), "pr19053, pro6kw, prp6k: 52 rows, 7 models"),
    ("rtx-pro-6000-maxq", "llama.cpp", "cuda"): Fit({
        "compute_efficiency": 0.228, "kquant_compute_share": 1.03, "fp4_compute_share": 1.42,
    }, Spread(0.29, 0.32, 0.40, 0.50, 0.45, 0.60), "pr19053, pro6kw, prp6k: 52 rows, 7 models"),
    ("xe2", "llama.cpp", "vulkan"): Fit({
        "bandwidth_efficiency": 0.778, "overhead_s": 17.7e-3, "compute_efficiency": 0.146,
        "kquant_compute_share": 0.787, "bits16_compute_share": 0.46, "fp4_compute_share": 1.09,
        "attention_efficiency": 0.0132, "expert_half_tokens": 62.3, "expert_16bit_layer_s": 0.0,
        "expert_16bit_compute_share": 1.0,
    }, Spread(0.70, 0.40, 0.70, 0.60, 0.36, 0.40), "kyb70, arc: Arc Pro B70, 45 rows, 10 models"),
    ("xe2", "llama.cpp", "sycl"): Fit({
        "bandwidth_efficiency": 0.675, "kquant_bandwidth_share": 0.839,
        "bits16_bandwidth_share": 0.21, "expert_bandwidth_share": 0.209, "overhead_s": 0.45e-3,
        "linear_layer_s": 9.6e-5, "expert_layer_s": 1.2e-5, "compute_efficiency": 0.211,
        "kquant_compute_share": 0.962, "bits16_compute_share": 0.401, "fp4_compute_share": 1.15,
        "attention_efficiency": 0.0195, "expert_half_tokens": 287.0,
    }, Spread(0.28, 0.45, 0.45, 0.8, 0.42, 0.35),
        "b70cb, kyb70: Arc Pro B70, 92 rows; three models in BF16 decode at a fifth of the rate"),
    ("hopper", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.646, "overhead_s": 2.88e-3, "compute_efficiency": 0.0965,
        "attention_efficiency": 0.0511,
    }, Spread(0.31, 0.40, 0.40, 0.50, 0.35, 0.50), "xj24: H100 PCIe, Llama 3 in builds of 2024"),
    ("a100-80", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.583, "overhead_s": 2.43e-3, "compute_efficiency": 0.127,
        "kquant_compute_share": 1.2, "attention_efficiency": 0.14,
    }, Spread(0.32, 0.40, 0.45, 0.50, 0.35, 0.50), "xj24: A100, Llama 3 in builds of 2024"),
    ("a100-40", "llama.cpp", "cuda"): Fit({
        "bandwidth_efficiency": 0.583, "overhead_s": 2.43e-3, "compute_efficiency": 0.127,
        "attention_efficiency": 0.14,
    }, UNKNOWN_BOX, "as a100-80", "assumed"),
    ("cpu-2core", "llama.cpp", "cpu"): Fit({
        "bandwidth_efficiency": 0.42, "compute_efficiency": 0.45, "overhead_s": 2.0e-3,
    }, Spread(0.30, 0.50, 0.40, 0.55, 0.40, 0.70),
        "SmolLM2-135M Q4_1 on two AVX2 cores, 50 to 70 tok/s"),
    ("gb10", "vllm", "cuda"): Fit({
        "bandwidth_efficiency": 0.808, "expert_bandwidth_share": 1.02, "overhead_s": 0.00209,
        "expert_layer_s": 7.03e-05, "compute_efficiency": 0.406, "bits16_compute_share": 1.11,
        "fp4_compute_share": 1.03, "attention_efficiency": 0.521, "expert_16bit_share": 1.15,
        "bits8_compute_share": 0.9, "linear_token_s": 8e-07, "narrow_expert_width": 800.0,
    }, Spread(0.16, 0.30, 0.46, 0.44, 0.46, 0.42, handling_s=0.15),
        "dj, jvr: vLLM 0.23 to 0.26, 327 rows, 16 models"),
    ("apple", "mlx", "metal"): Fit({
    }, Spread(0.42, 0.45, 0.45, 0.55, 0.70, 0.80),
        "llmfit (M4 Pro) a third faster than this, atomg (M2 Ultra) as fast: no one fit holds both",
        "assumed"),
    ("ampere", "vllm", "cuda"): Fit({
        "compute_efficiency": 0.537, "attention_efficiency": 0.25,
    }, Spread(0.40, 0.50, 0.50, 0.55, 0.35, 0.60), "lot3090: one RTX 3090 at 220 W, 12 rows"),
}
# fmt: on
"""(box or architecture, family of runtimes, backend) -> what its rows told."""
