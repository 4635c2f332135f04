"""What others measured of the very case that is predicted, to stand beside the prediction."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from headroom_bench.catalog.published import (
    DECODE,
    PREFILL,
    PublishedRow,
    published_rows,
    series_source,
    series_trust,
)
from headroom_bench.roofline.coefficients import coefficients
from headroom_bench.roofline.deployment import Deployment, default_ubatch
from headroom_bench.roofline.iteration import Coefficients
from headroom_bench.roofline.passes import Roofline
from headroom_bench.roofline.published import build_of, predicted_tok_s

NEAR = 1.1
"""A row is near where its depth or length alone moves the predicted rate by less than this factor:
two series that measure one case lie 11 % apart at the 90th percentile."""
_LENGTHS = 4
"""Prompts longer or shorter by more than this are not looked at, whatever their rate."""
_MOST_LENGTHS = 2
"""Of prompts, nearest first, that are looked at: each takes time to price."""
_OTHER_DRIVERS = ("amdvlk",)
"""Drivers that no constants are fitted to: AMDVLK reads prompts up to ten times slower than RADV
(ky26feb), and its maker has given it up."""


def published_decode(
    roofline: Roofline, build: str | None, users: int, tok_s: float
) -> dict[str, Any] | None:
    """Rows of the same model, format, box, runtime and number of users near a prediction of so many
    tokens a second for all users together; None where nobody published any.

    `build` is the llama.cpp build asked for, None for the newest.
    """
    found = [
        row
        for row in _same_setup(roofline.deployment, build)
        if row.kind == DECODE and row.users == users
    ]
    return _beside(roofline, found, tok_s)


def published_prefill(
    roofline: Roofline, build: str | None, prompt_tokens: int, tok_s: float
) -> dict[str, Any] | None:
    """Rows of a prompt read from the start, in pieces of the same size; else as above."""
    deployment = roofline.deployment
    usual = default_ubatch(deployment.runtime, deployment.hardware)
    found = [
        row
        for row in _same_setup(deployment, build)
        if row.kind == PREFILL
        and row.depth_tokens == 0
        and prompt_tokens / _LENGTHS <= row.prompt_tokens <= _LENGTHS * prompt_tokens
        and (row.ubatch or usual) == deployment.ubatch
    ]
    lengths = sorted({row.prompt_tokens for row in found}, key=lambda n: _apart(n, prompt_tokens))
    nearest = lengths[:_MOST_LENGTHS]
    return _beside(roofline, [row for row in found if row.prompt_tokens in nearest], tok_s)


def _apart(tokens: int, others: int) -> float:
    return abs(math.log(tokens / others))


def _same_setup(deployment: Deployment, build: str | None) -> Sequence[PublishedRow]:
    """Rows of what is served, whose build the rule holds to be like the one asked for."""
    if deployment.boxes > 1 or deployment.drafter or deployment.model.stored:
        return ()
    return _rows(
        deployment.hardware.id, deployment.model.id, deployment.quant.name, deployment.runtime.id,
        deployment.backend, deployment.kv_k, deployment.kv_v, build,
    )  # fmt: skip


@functools.lru_cache(maxsize=256)
def _rows(
    hardware: str,
    model: str,
    quant: str,
    runtime: str,
    backend: str,
    kv_k: str,
    kv_v: str,
    build: str | None,
) -> tuple[PublishedRow, ...]:
    setup = (quant, runtime, backend, kv_k, kv_v)
    found = [
        row
        for row in published_rows(hardware, model)
        if (row.quant, row.runtime, row.backend, row.kv_k, row.kv_v) == setup
        and row.driver not in _OTHER_DRIVERS
    ]

    @functools.cache
    def kernels(of: str | None) -> Coefficients:
        return coefficients(
            Deployment.named(
                model=model, hardware=hardware, quant=quant, runtime=runtime, backend=backend,
                kv_k=kv_k, kv_v=kv_v, build=of,
            )
        )  # fmt: skip

    return tuple(row for row in found if kernels(build_of(row)) == kernels(build))


def _beside(roofline: Roofline, rows: Sequence[PublishedRow], here: float) -> dict[str, Any] | None:
    """The best of the near rows, with how many there are and how far apart they lie."""
    rates: dict[tuple[int, float], float] = {}
    near = []
    for row in rows:
        conditions = (row.prompt_tokens, row.context_tokens)
        if conditions not in rates:
            rates[conditions] = predicted_tok_s(roofline, row)
        if here / NEAR < rates[conditions] < here * NEAR:
            near.append((row, rates[conditions]))
    if not near:
        return None
    row, rate = min(near, key=lambda pair: _order(pair[0], pair[1], here))
    return {
        "id": row.id,
        "tok_s": row.tok_s,
        "predicted_tok_s": rate,
        "deviation": rate / row.tok_s - 1,
        "users": row.users,
        "prompt_tokens": row.prompt_tokens or None,
        "depth_tokens": row.depth_tokens,
        "generated_tokens": row.generated_tokens or None,
        "build": row.build or None,
        "driver": row.driver or None,
        "date": row.date,
        "trust": series_trust(row.series),
        "source": series_source(row.series),
        "rows": len(near),
        "low": min(each.tok_s for each, _ in near),
        "high": max(each.tok_s for each, _ in near),
    }


def _order(row: PublishedRow, rate: float, here: float) -> tuple[bool, float, list[int]]:
    """Careful series first, then the nearest conditions, then the newest month."""
    month = [-int(part) for part in row.date.split("-") if part.isdecimal()]
    return series_trust(row.series) == "C", round(abs(math.log(rate / here)), 2), month
