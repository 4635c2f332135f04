"""What the iteration rule says of a published measurement, under its own conditions."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from headroom_bench.catalog.published import PREFILL, PublishedRow
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.pricer import Batch, Chunk

if TYPE_CHECKING:
    from headroom_bench.roofline.passes import Roofline

_LLAMA_BUILD = re.compile(r"b\d{4,6}")


def build_of(row: PublishedRow) -> str | None:
    """The llama.cpp build that the rule knows older kernels by; None for the newest and others."""
    known = row.runtime == "llama.cpp" and _LLAMA_BUILD.fullmatch(row.build)
    return row.build if known else None


def roofline_of(row: PublishedRow) -> Roofline:
    """The pricer of a row's own setup. Raises `UserError` where it cannot be priced."""
    return _roofline(
        row.model, row.hardware, row.quant, row.runtime, row.backend, build_of(row), row.kv_k,
        row.kv_v, row.ubatch,
    )  # fmt: skip


@functools.lru_cache(maxsize=512)
def _roofline(
    model: str,
    hardware: str,
    quant: str,
    runtime: str,
    backend: str,
    build: str | None,
    kv_k: str,
    kv_v: str,
    ubatch: int | None,
) -> Roofline:
    return Deployment.named(
        model=model, hardware=hardware, quant=quant, runtime=runtime, backend=backend, build=build,
        kv_k=kv_k, kv_v=kv_v, ubatch=ubatch,
    ).pricer()  # fmt: skip


def batch_of(row: PublishedRow, window: int | None) -> Batch:
    """A row's work: its prompt, or its sequences at the mean depth of their timed tokens."""
    if row.kind == PREFILL:
        return Batch(0, 0, 0, 0, (Chunk(row.prompt_tokens, row.depth_tokens),))
    context = row.context_tokens
    inside = min(context, window or context)
    return Batch(row.users, round(row.users * context), round(row.users * inside), row.users)


def predicted_tok_s(roofline: Roofline, row: PublishedRow) -> float:
    """The rate that the rule gives for a row, of all its users together, in tokens a second."""
    seconds = roofline.pass_s(batch_of(row, roofline.window))
    return (row.prompt_tokens if row.kind == PREFILL else row.users) / seconds
