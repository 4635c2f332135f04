"""Constants of the iteration rule for one box under one runtime, backend and build.

What each is, and which value holds where; the numbers themselves are in `fitted`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace

from headroom_bench.catalog import Hardware
from headroom_bench.roofline.builds import build_number, changes_since, wider_before
from headroom_bench.roofline.fitted import (
    ADDED_BY_RUNTIME,
    BOXES,
    COMMON,
    OF_BACKEND,
    OF_RUNTIME,
    UNKNOWN_BOX,
    Spread,
)


@dataclass(frozen=True, slots=True)
class Constant:
    """One number that no data sheet gives."""

    value: float
    unit: str
    status: str
    """fitted (to published rows of this kind of box) or assumed."""
    source: str


@dataclass(frozen=True, slots=True)
class Constants:
    """What the iteration rule needs beside shapes and data sheets."""

    bandwidth_efficiency: Constant
    """Share of the vendor's memory bandwidth that streaming weights reaches."""
    kquant_bandwidth_share: Constant
    """Bandwidth of streaming K- and I-quants over that of simpler blocks: unpacking costs time."""
    bits16_bandwidth_share: Constant
    """The same for weights in 16 bits: below 1 where the backend has no fast product for them."""
    expert_bandwidth_share: Constant
    """Bandwidth of streaming a few experts over that of streaming a whole matrix."""
    expert_16bit_share: Constant
    """On top of that, for experts in 16 bits."""
    expert_16bit_compute_share: Constant
    """Products of experts in 16 bits over those of other matrices in 16 bits."""
    kv_bandwidth_share: Constant
    """Bandwidth of reading the KV cache over that of reading weights."""
    decode_attention_efficiency: Constant
    """Share of the 16-bit peak that attention of one query reaches."""
    latent_attention_efficiency: Constant
    """The same for latent attention in its absorbed form (MLA)."""
    attention_efficiency: Constant
    """Share of the 16-bit peak that attention of a prompt reaches."""
    ungrouped_attention_share: Constant
    """Of it, where a KV head's query heads are no multiple of 8: kernels that pack them cannot."""
    compute_efficiency: Constant
    """Share of the dense peak that large products of plain 4-bit weights reach: of 8-bit units
    where they use those (`int8_products`), else of 16-bit ones."""
    int8_products: Constant
    """1 where products of quantized weights run in 8-bit integer units (llama.cpp's MMQ on CUDA).
    """
    kquant_compute_share: Constant
    """The same for K- and I-quants, over plain 4-bit weights."""
    bits8_compute_share: Constant
    bits16_compute_share: Constant
    fp4_compute_share: Constant
    """For MXFP4 and NVFP4."""
    expert_half_tokens: Constant
    """Prompt tokens an expert at which its matrix products reach half of the dense efficiency."""
    overhead_s: Constant
    """Fixed time a pass: graph, sampling."""
    layer_s: Constant
    """Launches a layer."""
    linear_layer_s: Constant
    """More for a layer with a recurrent state."""
    linear_token_s: Constant
    """Updating the state of such a layer with one token of a prompt."""
    latent_layer_s: Constant
    """More for a layer with latent attention."""
    expert_layer_s: Constant
    """More for a layer with routed experts."""
    batch_layer_s: Constant
    """More for a layer once two sequences decode together."""
    expert_16bit_layer_s: Constant
    """More for a layer whose experts are stored in 16 bits."""
    expert_batch_s: Constant
    """More for a MoE layer once a pass has two tokens or more: sorting tokens by expert."""
    token_share: Constant
    """Weight-reading time that each further token adds while vector kernels are used."""
    vector_tokens: Constant
    """Tokens a pass up to which vector kernels are used; 0 where there are none."""
    tile_tokens: Constant
    """Tokens that a matrix kernel takes at once: fewer cost the same."""
    expert_tiles: Constant
    """1 where matrix kernels pad the tokens of every woken expert when decoding, too."""
    graph_tokens: Constant
    """Batches are padded up to multiples of it (and 1, 2, 4): captured CUDA graphs. 0: never."""
    kv_copy: Constant
    """1 where reading a quantized cache costs more than its bytes (`kernels`)."""
    narrow_expert_width: Constant
    """Products of routed experts of width f take (1 + w / f) / (1 + w / 2048) times as long."""
    fp4_half_share: Constant
    """Share of `expert_half_tokens` that holds for MXFP4 and NVFP4."""
    fp4_prompt_p: Constant
    """As `overlap_p`, for reading prompts with such weights; `overlap_p` where that is larger."""
    overlap_p: Constant
    """Exponent of the p-norm of memory and compute time: 1 adds, infinity overlaps wholly."""

    spread: Spread
    """How far published rows of held-out models lie from what these constants give."""

    def items(self) -> Iterator[tuple[str, Constant]]:
        """(name, constant), in the order above."""
        return (
            (field.name, getattr(self, field.name))
            for field in fields(self)
            if field.name != "spread"
        )


def constants_for(
    hardware: Hardware, runtime: str, backend: str, build: str | None = None
) -> Constants:
    """The constants of a box under a runtime (its id), a backend (cuda, vulkan …) and a build.

    The box's own values come before its architecture's; what no row of either tells comes
    from the backend, the runtime and what the fitted boxes have in common. `build` is a llama.cpp
    build such as b6989; None means the newest. Raises `UserError` for a build of another form.
    """
    return _constants(hardware.id, hardware.architecture, runtime, backend, build_number(build))


@functools.cache
def _constants(
    box: str, architecture: str, runtime: str, backend: str, build: int | None
) -> Constants:
    family = family_of(runtime)
    found = {name: Constant(*entry) for name, entry in COMMON.items()}

    def take(values: Mapping[str, float], status: str, source: str) -> None:
        for name, value in values.items():
            found[name] = replace(found[name], value=value, status=status, source=source)

    take(*OF_RUNTIME[family])
    if family == "llama.cpp" and backend in OF_BACKEND:
        take(*OF_BACKEND[backend])
    spread = UNKNOWN_BOX
    for name in (architecture, box):
        if fit := BOXES.get((name, family, backend)):
            take(fit.values, fit.status, fit.source)
            spread = fit.spread
    if runtime in ADDED_BY_RUNTIME:
        more, status, source = ADDED_BY_RUNTIME[runtime]
        take({name: found[name].value + value for name, value in more.items()}, status, source)
    if runtime in _BORROWERS:
        spread = _wider(spread, _BORROWED)
    if family == "llama.cpp" and build is not None:
        spread = _wider(spread, wider_before(build))
        for change in changes_since(build, backend, architecture):
            scaled = {n: found[n].value * f for n, f in change.factors.items()}
            take(scaled, "fitted", change.source)
    return Constants(**found, spread=spread)


_FAMILIES = {
    "ollama": "llama.cpp", "lm-studio": "llama.cpp", "mlx": "mlx", "exo": "mlx",
    "vllm": "vllm", "sglang": "vllm", "tensorrt-llm": "tensorrt-llm",
}  # fmt: skip
"""Runtimes that share their kernels."""


def family_of(runtime: str) -> str:
    """Whose kernels a runtime (its id) uses; llama.cpp's where nobody told."""
    return _FAMILIES.get(runtime, "llama.cpp")


_BORROWERS = ("ollama", "lm-studio", "sglang")
"""Runtimes whose boxes were measured under another of their family."""
_BORROWED = 0.15


def _wider(spread: Spread, more: float) -> Spread:
    """Every half-width with so much more, added as squares."""
    names = [f.name for f in fields(spread) if f.name not in ("attention", "handling_s")]
    return replace(spread, **{name: math.hypot(getattr(spread, name), more) for name in names})
