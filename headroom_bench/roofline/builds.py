"""Builds of llama.cpp: what older ones did differently, and which nobody measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headroom_bench.errors import UserError

NEWEST_BUILD = 10_851
"""llama.cpp's newest build that anybody published a row of (seed1)."""
_OLD_BUILDS = ((6200, 0.70), (7000, 0.30))
"""Builds before which (August, October of 2025) more changed than `_CHANGES` tells, and the log
half-widths that it adds: ky25aug, lhl25; ky25sep, ky25oct."""
_BUILD = re.compile(r"b(\d{3,6})")


@dataclass(frozen=True, slots=True)
class BuildChange:
    """What older builds of llama.cpp did differently."""

    before: int
    """The first build that does as today."""
    backends: tuple[str, ...]
    factors: Mapping[str, float]
    source: str
    architecture: str | None = None
    """Whose rows told it; None: it holds wherever the backend runs."""


_CHANGES: tuple[BuildChange, ...] = (
    BuildChange(
        7200,
        ("cuda", "rocm", "vulkan", "metal"),
        {"linear_layer_s": 2.2},
        "ky25nov: Qwen3-Next at 22 tok/s on Strix Halo; on top of the next change",
    ),
    BuildChange(
        8100,
        ("cuda", "rocm", "vulkan", "metal"),
        {"linear_layer_s": 2.1},
        "ky25dec to ky26feb: Qwen3-Next at 25 to 30 tok/s on Strix Halo",
    ),
    BuildChange(
        7500,
        ("cuda",),
        {"fp4_compute_share": 0.78, "expert_batch_s": 3.5},
        "ggspark25, lhlvs against ggspark26: gpt-oss prompts, and from 1 to 2 sequences",
    ),
    BuildChange(
        7600,
        ("vulkan",),
        {"compute_efficiency": 0.8},
        "ky25sep to ky25dec against ky26feb on Strix Halo: prompts at depth 0",
        "rdna3.5",
    ),
    BuildChange(
        7900,
        ("vulkan",),
        {"attention_efficiency": 0.45},
        "ky25nov to ky26jan against ky26feb on Strix Halo: prompts at 16k and 32k",
        "rdna3.5",
    ),
    BuildChange(
        7300,
        ("rocm",),
        {"compute_efficiency": 0.75},
        "ky25sep to ky25nov against ky25dec on Strix Halo: prompts at depth 0",
        "rdna3.5",
    ),
    BuildChange(
        7900,
        ("rocm",),
        {"attention_efficiency": 0.8},
        "ky25nov to ky26jan against ky26feb on Strix Halo: prompts at 16k and 32k",
        "rdna3.5",
    ),
    BuildChange(
        10_000,
        ("cuda",),
        {"latent_attention_efficiency": 0.095},
        "ggspark26 (b7941) against seed1 (b10851): GLM-4.7-Flash at depth; where between is open",
    ),
)


def build_number(build: str | None) -> int | None:
    """6989 of `b6989`; None, for the newest, of None. Raises `UserError` for another form."""
    if build is None:
        return None
    match = _BUILD.fullmatch(build.strip().lower())
    if match is None:
        raise UserError(f"build {build!r} is not a llama.cpp build; write it as b6989")
    return int(match[1])


def newer_than_known(build: str | None) -> bool:
    """Whether nobody published a row of so new a build. Raises `UserError` as above."""
    return (build_number(build) or 0) > NEWEST_BUILD


def changes_since(build: int, backend: str, architecture: str) -> Iterator[BuildChange]:
    """What changed after a build, on a backend and a box's architecture."""
    for change in _CHANGES:
        here = change.architecture in (None, architecture)
        if here and build < change.before and backend in change.backends:
            yield change


def wider_before(build: int) -> float:
    """Log half-width for what else changed after a build."""
    return next((wide for before, wide in _OLD_BUILDS if build < before), 0.0)
