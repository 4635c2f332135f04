"""Weights that do not fit: computed by the CPU from host memory, next to the card's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headroom_bench.roofline.links import LAYER_SPLIT

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

HOST_EFFICIENCY = 0.35
"""Share of the host's memory bandwidth (Methodology page, an assumption; no row fitted)."""
HOST_GB_S = 89.6
"""Dual-channel DDR5-5600 (the page's assumption), where the box says nothing."""


@dataclass(frozen=True, slots=True)
class HostShare:
    """What of the weights lies in host memory. The default is nothing."""

    always: Any = 0.0
    """Share of the weights that every pass reads."""
    experts: Any = 0.0
    """Share of the routed experts."""
    byte_s: Any = 0.0


NOTHING = HostShare()


def host_share(deployment: Deployment) -> HostShare:
    """What llama.cpp's runtimes leave in host memory where a card is too small.

    Experts go first, as its own fitting does; then other weights in proportion. On a box whose CPU
    and GPU share the memory there is no second tier, and other runtimes refuse to start: both have
    nothing here, and `fit` says that they do not fit.
    """
    box = deployment.hardware
    if (
        box.unified
        or deployment.runtime.id not in LAYER_SPLIT
        or box.architecture.startswith("cpu")
    ):
        return NOTHING
    from headroom_bench.roofline.memory import fit

    need = fit(deployment)
    missing = (need.total_gb - need.usable_gb) * 1e9
    if missing <= 0:
        return NOTHING
    weights = deployment.weights()
    experts = min(missing / weights.routed, 1.0) if weights.routed else 0.0
    rest = max(missing - weights.routed * experts, 0.0)
    host = (box.host_bandwidth_gb_s or HOST_GB_S) * 1e9 * HOST_EFFICIENCY
    return HostShare(min(rest / weights.always_read, 1.0), experts, 1 / host)
