"""Weights that do not fit: computed by the CPU from host memory, next to the card's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headroom_bench.roofline.links import LAYER_SPLIT

if TYPE_CHECKING:
    from headroom_bench.catalog import Hardware
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

    @property
    def in_words(self) -> str:
        """As `67% of the experts and 3% of the other weights`, or `44% of the weights` of a model
        without experts; empty where nothing is there."""
        rest = "the other weights" if self.experts else "the weights"
        parts = ((self.experts, "the experts"), (self.always, rest))
        return " and ".join(f"{share:.0%} of {what}" for share, what in parts if share)


NOTHING = HostShare()


def host_share(deployment: Deployment) -> HostShare:
    """What llama.cpp's runtimes leave in host memory where a card is too small.

    Experts go first, as its own fitting does; then other weights in proportion. On a box whose CPU
    and GPU share the memory there is no second tier, and other runtimes refuse to start: both have
    nothing here, and `fit` says that they do not fit.
    """
    box = deployment.hardware
    if not has_second_tier(box, deployment.runtime.id):
        return NOTHING
    from headroom_bench.roofline.memory import fit

    need, weights = fit(deployment), deployment.weights()
    missing = (need.total_gb - need.usable_gb) * 1e9
    if missing <= 0:
        return NOTHING
    always, experts = spilled(missing, weights.routed, weights.always_read)
    return HostShare(float(always), float(experts), host_byte_s(box))


def spilled(missing: Any, routed: Any, always_read: Any) -> tuple[Any, Any]:
    """Shares of the always read weights and of the experts that `missing` bytes are, experts first.

    Floats or arrays.
    """
    missing = np.maximum(missing, 0.0)
    experts = np.minimum(missing / np.maximum(routed, 1.0), 1.0) * (routed > 0)
    rest = missing - experts * routed
    return np.minimum(rest / always_read, 1.0), experts


def host_byte_s(box: Hardware) -> float:
    """Seconds a byte from the host's memory."""
    return 1 / ((box.host_bandwidth_gb_s or HOST_GB_S) * 1e9 * HOST_EFFICIENCY)


def has_second_tier(box: Hardware, runtime: str) -> bool:
    """Whether this runtime (its id) leaves in host memory what the box cannot hold."""
    one_memory = box.unified or box.architecture.startswith("cpu")
    return not one_memory and runtime in LAYER_SPLIT
