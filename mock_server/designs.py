"""Which memory a dialect's server has."""

from __future__ import annotations

from headroom_bench.box import BoxDesign, typical_speculation
from headroom_bench.errors import UserError
from mock_server.options import MockOptions

MLX_CHUNK_TOKENS = 2048
"""mlx_lm.server's prefill step."""


def design_of(options: MockOptions) -> BoxDesign:
    """Raises `UserError` for sizes that cannot be."""
    if options.slots < 1 or options.ctx < options.slots:
        raise UserError(f"{options.slots} slots cannot share a context of {options.ctx} tokens")
    if options.draft < 0:
        raise UserError("--draft must not be below 0")
    if options.pool is not None and options.dialect not in ("vllm", "sglang"):
        raise UserError(f"--pool is for vllm and sglang; {options.dialect} shares no pages")
    try:
        return _design(options)
    except ValueError as why:
        raise UserError(f"a server of that kind cannot be: {why}") from None


def _design(options: MockOptions) -> BoxDesign:
    drafts = typical_speculation(options.draft) if options.draft else None
    ctx, slots, room = options.ctx_per_slot, options.slots, options.room_tokens
    if options.dialect == "vllm":
        return BoxDesign("paged", ctx, slots, pool_tokens=room, speculation=drafts)
    if options.dialect == "sglang":
        return BoxDesign(
            "paged",
            ctx,
            slots,
            pool_tokens=room,
            page_tokens=1,
            mixed=False,
            speculation=drafts,
        )
    if options.dialect == "mlx":
        chunk = MLX_CHUNK_TOKENS
        return BoxDesign(
            "dynamic_batch", ctx, slots, chunk_tokens=chunk, mixed=False, speculation=drafts
        )
    if options.kv_unified:
        return BoxDesign("unified_slots", ctx, slots, pool_tokens=room, speculation=drafts)
    return BoxDesign("split_slots", ctx, slots, speculation=drafts)
