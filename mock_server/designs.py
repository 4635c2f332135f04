"""The box that a mock's options describe: its price, and how it serves."""

from __future__ import annotations

from dataclasses import replace

from headroom_bench.box import BoxDesign, typical_speculation
from headroom_bench.designs import design_of, with_room_of
from headroom_bench.errors import UserError
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.target import MOST_DRAFTED_TOKENS, RUNTIMES, ServerSpec
from headroom_bench.units import (
    MOST_PEOPLE,
    MOST_SEQUENCE_TOKENS,
    MOST_SLOTS,
    MOST_TOKENS,
    shown,
)
from mock_server.options import MockOptions


def box_of(options: MockOptions) -> tuple[Deployment, BoxDesign]:
    """Raises `UserError` for what the catalogue does not know, and sizes that cannot be."""
    _check(options)
    deployment = Deployment.named(
        model=options.model,
        hardware=options.hardware,
        quant=options.quant,
        runtime=options.runtime or RUNTIMES[options.dialect],
        backend=options.backend,
        kv_k=options.kv_k,
        kv_v=options.kv_v,
        ubatch=options.ubatch,
        slots=options.slots,
        ctx=options.ctx,
        swa_full=options.swa_full,
        draft=options.draft,
    )
    told = ServerSpec(
        slots=options.slots,
        ctx=options.ctx,
        kv_unified=options.kv_unified,
        draft=options.draft,
    )
    design = design_of(deployment, told)
    try:
        design = _as_told(design, options)
    except ValueError as why:
        raise UserError(f"a server of that kind cannot be: {why}") from None
    return with_room_of(deployment, design), design


def room_of(design: BoxDesign) -> int:
    """Tokens that all sequences can hold together."""
    return design.pool_tokens or design.parallel * design.ctx


def _check(options: MockOptions) -> None:
    for name, most in (
        ("slots", MOST_SLOTS),
        ("ctx", MOST_TOKENS),
        ("pool", MOST_TOKENS),
        ("ubatch", MOST_SEQUENCE_TOKENS),
        ("max_queue", MOST_PEOPLE),
    ):
        value = getattr(options, name)
        if value is not None and not 1 <= value <= most:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} must be from 1 to {most:,}, not {shown(value)}")
    if options.draft_tokens is not None and not 1 <= options.draft_tokens <= MOST_DRAFTED_TOKENS:
        raise UserError(f"--draft-tokens must be 1 to {MOST_DRAFTED_TOKENS}")


def _as_told(design: BoxDesign, options: MockOptions) -> BoxDesign:
    """What is not the runtime's to say. Raises ValueError."""
    if options.pool is not None:
        if design.memory != "paged":
            raise ValueError(f"--pool is for paged memory (vllm, sglang), not {design.memory}")
        design = replace(design, pool_tokens=options.pool)
    if options.max_queue is not None:
        design = replace(design, max_queue=options.max_queue)
    if options.draft_tokens is not None:
        design = replace(design, speculation=typical_speculation(options.draft_tokens))
    return design
