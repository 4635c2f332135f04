"""Fitted and assumed constants of the iteration rule, each with its status and source.

Row ids such as `ggspark26` name series of the published measurements that the accuracy page uses.
A value marked `fitted` was solved from the rows named; `assumed` says where the guess is from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from headroom_bench.catalog import Hardware


@dataclass(frozen=True, slots=True)
class Constant:
    """One number that no data sheet gives."""

    value: float
    unit: str
    status: str
    """fitted or assumed."""
    source: str


@dataclass(frozen=True, slots=True)
class Constants:
    """What the iteration rule needs beside shapes and data sheets."""

    bandwidth_efficiency: Constant
    """Share of the vendor's memory bandwidth that streaming weights reach."""
    kquant_bandwidth_share: Constant
    """Bandwidth of streaming K-quants over that of simpler blocks: unpacking them costs time."""
    kv_bandwidth_share: Constant
    """Bandwidth of reading the KV cache over that of reading weights."""
    compute_efficiency: Constant
    """Share of the dense 16-bit peak that large matrix products reach."""
    overhead_s: Constant
    """Fixed time a pass: launches, graph, sampling."""
    expert_launch_s: Constant
    """Time for each expert that is woken in each layer, where engines start kernels for it."""
    expert_batch_s: Constant
    """Time a MoE layer once a pass has two tokens or more: sorting tokens by expert."""
    expert_half_tokens: Constant
    """Prompt tokens an expert at which its matrix products reach half of the dense efficiency."""
    overlap_p: Constant
    """Exponent of the p-norm of memory and compute time: 1 adds, infinity overlaps wholly."""

    def items(self) -> Iterator[tuple[str, Constant]]:
        """(name, constant), in the order above."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))


def _fit(value: float, unit: str, source: str) -> Constant:
    return Constant(value, unit, "fitted", source)


def _guess(value: float, unit: str, source: str) -> Constant:
    return Constant(value, unit, "assumed", source)


_Table = Mapping[tuple[str, str], Constant]
_ANY = "*"

_METHODOLOGY = "Methodology page, its table of assumptions"

_BANDWIDTH: _Table = {
    ("gb10", _ANY): _fit(0.835, "1", "ggspark25, ggspark26: 7B Q8_0 and gpt-oss decode at depth 0"),
    ("rdna3.5", "vulkan"): _fit(0.83, "1", "ky26feb: Llama 2 7B Q4_0 and Ministral 14B BF16"),
    ("rdna3.5", "rocm"): _fit(0.87, "1", "ky26feb: Llama 2 7B Q4_0 and Ministral 14B BF16"),
    ("ada", _ANY): _fit(0.93, "1", "Methodology page, 12 rows; agrees with xj24-0039 and 0045"),
    ("ampere", _ANY): _fit(0.89, "1", "xj24: RTX 3090, 8B at Q4_K_M and F16"),
    ("a100-80", _ANY): _fit(0.49, "1", "xj24: A100 PCIe, 8B at Q4_K_M and F16"),
    ("a100-40", _ANY): _guess(0.49, "1", "as a100-80"),
    ("hopper", _ANY): _fit(0.65, "1", "xj24: H100 PCIe, 8B at Q4_K_M and F16"),
    ("blackwell", _ANY): _guess(0.85, "1", f"{_METHODOLOGY}; one RTX 5090 row is 11 % slower"),
    ("apple", _ANY): _fit(0.905, "1", "xj24 and ggm2u: M2 Ultra; the M3 Max rows are slower"),
    ("rdna3", _ANY): _fit(0.77, "1", "RX 7900 XTX: 8B and 27B at Q4_K_M (q38mtp-0009)"),
    ("rdna4", _ANY): _fit(0.89, "1", "kyr9700: Ministral 8B BF16 and gpt-oss-20b"),
    ("xe2", _ANY): _guess(0.80, "1", "kyb70: one dense BF16 row under Vulkan"),
    ("cpu-x86", _ANY): _fit(0.55, "1", "ikcpu-0015: 7950X, 8B Q4_0"),
    ("cpu-2core", _ANY): _fit(0.42, "1", "SmolLM2-135M Q4_1 on two AVX2 cores, 50 to 70 tok/s"),
    (_ANY, _ANY): _guess(0.70, "1", f"{_METHODOLOGY}, mean of its architectures"),
}
_KQUANT: _Table = {
    ("gb10", "cuda"): _fit(0.87, "1", "llmfit-0237 to 0302: 7B, 8B and 27B Q4_K_M, wall rates"),
    (_ANY, _ANY): _guess(1.0, "1", "xj24 and ky26feb: Q4_K_M shows no loss on RTX and Strix Halo"),
}
_KV_SHARE: _Table = {
    ("gb10", _ANY): _fit(0.84, "1", "ggspark26: 7B Q8_0 and gpt-oss-120b, depth 0 against 32k"),
    (_ANY, _ANY): _guess(0.84, "1", "as on gb10"),
}
_COMPUTE: _Table = {
    ("gb10", _ANY): _fit(0.27, "1", "ggspark25, ggspark26: 7B Q8_0 prompts of 512 to 8192"),
    ("rdna3.5", "vulkan"): _fit(0.31, "1", "ky26feb: Llama 2 7B Q4_0 pp512"),
    ("rdna3.5", "rocm"): _fit(0.375, "1", "ky26feb: Llama 2 7B Q4_0 pp512"),
    ("ada", _ANY): _fit(0.65, "1", "xj24-0043: RTX 4090, 8B Q4_K_M pp512"),
    ("ampere", _ANY): _fit(0.85, "1", "xj24: RTX 3090, 8B Q4_K_M pp512"),
    ("a100-80", _ANY): _fit(0.29, "1", "xj24: A100 PCIe, 8B Q4_K_M pp512"),
    ("a100-40", _ANY): _guess(0.29, "1", "as a100-80"),
    ("hopper", _ANY): _fit(0.17, "1", "xj24: H100 PCIe, 8B Q4_K_M pp512"),
    ("blackwell", _ANY): _guess(0.25, "1", "one RTX PRO 6000 row, Qwen3-30B-A3B pp512"),
    ("apple", _ANY): _fit(0.78, "1", "ggm2u: M2 Ultra, 7B Q8_0 pp2048"),
    ("rdna3", _ANY): _fit(0.39, "1", "RX 7900 XTX, 8B Q4_K_M pp2048"),
    ("rdna4", "rocm"): _fit(0.47, "1", "kyr9700: Ministral 8B BF16 pp512"),
    ("rdna4", _ANY): _fit(0.14, "1", "kyr9700: Ministral 8B BF16 pp512 under Vulkan"),
    ("xe2", _ANY): _guess(0.10, "1", "kyb70: between its dense BF16 and MoE rows"),
    ("cpu-2core", _ANY): _fit(
        0.45, "1", "SmolLM2-135M Q4_1 on two AVX2 cores: decode, short prompts"
    ),
    (_ANY, "cpu"): _guess(0.50, "1", "half of the vector units' peak"),
    (_ANY, _ANY): _guess(0.35, "1", "middle of the fitted boxes"),
}
_OVERHEAD: _Table = {
    ("gb10", "cuda"): _fit(1.1e-3, "s", "ggspark25, ggspark26: decode of 7B against gpt-oss"),
    ("blackwell", "cuda"): _fit(1.1e-3, "s", "gpt-oss-20b on RTX PRO 6000, 353 to 391 tok/s"),
    ("ampere", "cuda"): _fit(3.0e-3, "s", "xj24: RTX 3090, builds of 2024"),
    ("rdna3.5", "vulkan"): _fit(1.0e-3, "s", "ky26feb: gpt-oss, Gemma 3 4B, Llama 2 7B"),
    ("rdna3.5", "rocm"): _fit(2.5e-3, "s", "ky26feb: gpt-oss and Llama 2 7B"),
    ("rdna3", "vulkan"): _fit(3.2e-3, "s", "RX 7900 XTX: 8B and 27B at Q4_K_M"),
    ("rdna4", _ANY): _fit(2.5e-3, "s", "kyr9700: Ministral 8B BF16 and gpt-oss-20b"),
    ("apple", "metal"): _fit(2.2e-3, "s", "ggm2u: M2 Ultra, 7B Q8_0"),
    ("cpu-2core", "cpu"): _fit(2.0e-3, "s", "SmolLM2-135M Q4_1 on two AVX2 cores"),
    (_ANY, "cuda"): _fit(2.25e-3, "s", "Methodology page"),
    (_ANY, "rocm"): _guess(3.5e-3, "s", _METHODOLOGY),
    (_ANY, "metal"): _guess(3.0e-3, "s", _METHODOLOGY),
    (_ANY, "vulkan"): _guess(4.0e-3, "s", _METHODOLOGY),
    (_ANY, "cpu"): _guess(5.0e-3, "s", _METHODOLOGY),
    (_ANY, _ANY): _guess(4.0e-3, "s", f"{_METHODOLOGY}, its slowest GPU backend"),
}
_LAUNCH: _Table = {
    (_ANY, "cuda"): _fit(1.5e-6, "s", "ggspark26: gpt-oss and Qwen3-Coder-30B decode, b7941"),
    ("rdna3.5", "vulkan"): _fit(3.0e-6, "s", "ky26feb: Qwen3-Coder-30B against gpt-oss-120b"),
    ("rdna3.5", "rocm"): _fit(6.0e-6, "s", "ky26feb: Qwen3-Coder-30B against gpt-oss-120b"),
    ("apple", "metal"): _fit(18e-6, "s", "ggm2u: gpt-oss and Qwen3-Coder-30B on M2 Ultra"),
    (_ANY, "cpu"): _guess(0.0, "s", "no kernel starts on a CPU"),
    (_ANY, _ANY): _guess(4.0e-6, "s", "between CUDA and ROCm"),
}
_EXPERT_BATCH: _Table = {
    (_ANY, "cuda"): _fit(0.22e-3, "s", "ggspark25: gpt-oss-120b from 1 to 2 sequences, b6989"),
    (_ANY, "cpu"): _guess(0.0, "s", "no kernel starts on a CPU"),
    (_ANY, _ANY): _guess(0.10e-3, "s", "half of CUDA's; no rows with several users"),
}
_HALF_TOKENS: _Table = {
    ("gb10", _ANY): _fit(40.0, "tokens", "ggspark25: gpt-oss-120b pp2048"),
    ("rdna3.5", _ANY): _fit(32.0, "tokens", "ky26feb: gpt-oss-120b pp512, both backends"),
    ("apple", _ANY): _fit(18.0, "tokens", "ggm2u: gpt-oss-120b pp2048"),
    (_ANY, _ANY): _guess(40.0, "tokens", "as on gb10"),
}
_NO_OVERLAP: _Table = {
    (_ANY, _ANY): _fit(1.0, "1", "7B Q8_0 on gb10 from 1 to 32 sequences: the terms add"),
}

_FUSED = _guess(0.0, "s", "experts run in one fused kernel a layer")
_OF_PEAK = "usual share of peak in a tuned engine; no row fitted"
_RUNTIME: Mapping[str, Mapping[str, Constant]] = {
    "mlx": {"overlap_p": _guess(1.0, "1", "as llama.cpp")},
    "vllm": {
        "overlap_p": _guess(1.5, "1", "between adding and overlapping"),
        "expert_launch_s": _FUSED,
        "expert_batch_s": _FUSED,
    },
    "sglang": {
        "overlap_p": _guess(1.5, "1", "as vLLM"),
        "expert_launch_s": _FUSED,
        "expert_batch_s": _FUSED,
    },
    "tensorrt-llm": {
        "overlap_p": _guess(2.5, "1", "8B on H100: time hardly grows from 8 to 128 sequences"),
        "expert_launch_s": _FUSED,
        "expert_batch_s": _FUSED,
    },
}
_TUNED_COMPUTE = {arch: _guess(0.5, "1", _OF_PEAK) for arch in ("hopper", "a100-80", "a100-40")}


def constants_for(hardware: Hardware, runtime: str, backend: str) -> Constants:
    """The constants of a box under a runtime (its id) and a backend (cuda, vulkan, rocm …).

    The box's own value is taken before its architecture's, and that before the backend's.
    """

    def look(table: _Table) -> Constant:
        for box in (hardware.id, hardware.architecture, _ANY):
            for name in (backend, _ANY):
                if (box, name) in table:
                    return table[box, name]
        raise KeyError(backend)

    own = dict(_RUNTIME.get(runtime, {}))
    if "overlap_p" in own and own["overlap_p"].value > 1:
        tuned = _TUNED_COMPUTE.get(hardware.id) or _TUNED_COMPUTE.get(hardware.architecture)
        own |= {"compute_efficiency": tuned} if tuned else {}
    found = {
        "bandwidth_efficiency": look(_BANDWIDTH),
        "kquant_bandwidth_share": look(_KQUANT),
        "kv_bandwidth_share": look(_KV_SHARE),
        "compute_efficiency": look(_COMPUTE),
        "overhead_s": look(_OVERHEAD),
        "expert_launch_s": look(_LAUNCH),
        "expert_batch_s": look(_EXPERT_BATCH),
        "expert_half_tokens": look(_HALF_TOKENS),
        "overlap_p": look(_NO_OVERLAP),
    }
    return Constants(**(found | own))


_BACKENDS = {"gb10": "cuda", "thor": "cuda", "orin": "cuda", "apple": "metal", "cdna": "rocm"}
_BACKENDS |= dict.fromkeys(("turing", "ampere", "ada", "blackwell", "hopper"), "cuda")
_BACKENDS |= {"pascal": "cuda", "volta": "cuda", "xe": "vulkan", "xe2": "vulkan"}
_BACKENDS |= dict.fromkeys(("rdna3", "rdna3.5", "rdna4"), "vulkan")
_SLOT_SERVERS = ("llama.cpp", "ollama", "lm-studio")


def default_backend(hardware: Hardware, runtime: str) -> str:
    """What the runtime uses on this box unless told otherwise."""
    if hardware.architecture.startswith("cpu"):
        return "cpu"
    backend = _BACKENDS.get(hardware.architecture, "cuda")
    if backend == "vulkan" and runtime not in _SLOT_SERVERS:
        return "xpu" if hardware.architecture.startswith("xe") else "rocm"
    return backend


BACKENDS = ("cuda", "rocm", "vulkan", "metal", "sycl", "xpu", "cpu")
"""Names that a user may give."""
