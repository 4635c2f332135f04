"""Which memory a dialect's server has."""

from __future__ import annotations

from headroom_bench.box import BoxDesign, split_slots, typical_speculation
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
    drafts = typical_speculation(options.draft) if options.draft else None
    ctx, slots, pool = options.ctx_per_slot, options.slots, options.ctx
    try:
        if options.dialect == "vllm":
            pool = max(pool, slots) if options.max_len else ctx * slots
            return BoxDesign("paged", ctx, slots, pool_tokens=pool, speculation=drafts)
        if options.dialect == "sglang":
            pool = max(pool, slots) if options.max_len else ctx * slots
            return BoxDesign(
                "paged",
                ctx,
                slots,
                pool_tokens=pool,
                page_tokens=1,
                mixed=False,
                speculation=drafts,
            )
        if options.dialect == "mlx":
            return BoxDesign(
                "dynamic_batch",
                ctx,
                slots,
                chunk_tokens=MLX_CHUNK_TOKENS,
                mixed=False,
                speculation=drafts,
            )
        if options.kv_unified:
            return BoxDesign("unified_slots", ctx, slots, pool_tokens=pool, speculation=drafts)
        if drafts is None:
            return split_slots(slots, ctx)
        return BoxDesign("split_slots", ctx, slots, speculation=drafts)
    except ValueError as why:
        raise UserError(f"a server of that kind cannot be: {why}") from None
