"""Whether what a target says fits into its box at all, weights and cache together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom_bench.designs import design_of
from headroom_bench.errors import UserError
from headroom_bench.roofline.memory import OVERHEAD_GB, kv_gb, loaded_gb, usable_of
from headroom_bench.roofline.offload import host_share
from headroom_bench.target import ServerSpec

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


def why_it_does_not_fit(deployment: Deployment, server: ServerSpec | None) -> str | None:
    """One line, or None where it fits. Slots' caches are allocated in full when a server starts."""
    try:
        design = design_of(deployment, server)
    except UserError as why:
        return str(why)
    weights = loaded_gb(deployment)
    usable = usable_of(deployment)
    if design.memory == "split_slots":
        cache = kv_gb(deployment, design.parallel, design.ctx)
    else:  # one pool, or caches that grow as needed: one sequence has to fit
        cache = kv_gb(deployment, 1, design.ctx)
    needed = weights + cache + OVERHEAD_GB * deployment.boxes
    if needed <= usable:
        return None
    away = host_share(deployment).in_words
    return (
        f"needs {needed:.1f} GB ({weights:.1f} weights, {cache:.1f} cache), "
        f"{usable:.1f} GB are usable" + (f", so {away} stay in host memory" if away else "")
    )
