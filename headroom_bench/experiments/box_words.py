"""A deployment for a reader: what it is, and whether it can be at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


def in_words(deployment: Deployment) -> str:
    """What runs where, in one line."""
    return (
        f"{deployment.hardware.name}: {deployment.model.name} {deployment.quant.name}, "
        f"{deployment.runtime.name} on {deployment.backend}, "
        f"{deployment.slots} slots of {deployment.ctx:,} tokens"
    )


def memory_complaint(deployment: Deployment) -> str | None:
    """Why the box cannot hold what it is said to run; None where it can."""
    from headroom_bench.roofline.memory import fit

    needs = fit(deployment)
    if needs.fits:
        return None
    return (
        f"this does not fit: {needs.total_gb:.1f} GB (weights {needs.weights_gb:.1f}, cache "
        f"{needs.kv_gb:.1f}, overhead {needs.overhead_gb:.1f}) into the {needs.usable_gb:.1f} GB "
        f"that {deployment.hardware.name} can use; the figures are of a box that had the memory "
        "(`headroom-bench inspect MODEL --hardware BOX --quant QUANT` says what would fit)"
    )
