"""Several boxes as one: what a split saves and what its link costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headroom_bench.catalog import BoxLink, Hardware, find_network
from headroom_bench.errors import UserError

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

EXCHANGE_S = 72e-6
"""Of one all-reduce beside the link's latency: 70 to 80 µs in all over 200 GbE RoCE (vLLM on two
DGX Sparks, gpt-oss-120b and Gemma 4)."""
EXCHANGES_A_LAYER = 2
SHARE_OF_TWO = 0.8
"""Of the ideal speed-up that splitting the matrices gives; the rest is skew (same rows)."""
HOP_S = 4.0e-3
"""Handing a pass to the next box of a layer split (llama.cpp RPC): gpt-oss-120b on two Strix Halos
33.5 -> 28.9 tok/s; assumed for other links."""
LAYER_SPLIT = ("llama.cpp", "ollama", "lm-studio")
"""Runtimes that give each box whole layers."""


@dataclass(frozen=True, slots=True)
class Split:
    """A deployment's boxes. The defaults are one box."""

    work_boxes: Any = 1.0
    """By what the time of weights and products is divided."""
    cache_boxes: Any = 1.0
    """By what the time of the cache is divided."""
    fixed_s: Any = 0.0
    token_s: Any = 0.0
    """Sending one token's activations, all exchanges of a pass."""


ONE_BOX = Split()


def split_of(deployment: Deployment) -> Split:
    """How a deployment's boxes share a pass.

    Tensor parallel (vLLM, SGLang, TensorRT-LLM, MLX): each box reads its part of every layer, and
    two exchanges a layer cross the link. Layer split (llama.cpp RPC): twice the memory, one pass
    after another, no faster for one user.
    """
    boxes, link = deployment.boxes, deployment.link
    if boxes == 1 or link is None:
        return ONE_BOX
    token_bytes = deployment.model.hidden_size * 2.0
    if deployment.runtime.id in LAYER_SPLIT:
        hops = boxes - 1
        token_s = 2 * token_bytes / (link.bandwidth_gb_s * 1e9)
        return Split(fixed_s=hops * (HOP_S + link.latency_us * 1e-6), token_s=hops * token_s)
    exchanges = EXCHANGES_A_LAYER * deployment.model.n_layers
    return Split(
        work_boxes=max(boxes * SHARE_OF_TWO, 1.0),
        cache_boxes=float(boxes),
        fixed_s=exchanges * (EXCHANGE_S + link.latency_us * 1e-6),
        token_s=exchanges * token_bytes / (link.bandwidth_gb_s * 1e9),
    )


def link_of(hardware: Hardware, name: str | None) -> BoxLink:
    """The link between boxes: by a network's name, else the box's own.

    Raises `UserError`: an unknown network, one without a rate, or a box without a link.
    """
    if name is None:
        if hardware.second_box_link is None:
            raise UserError(f"how a second {hardware.name} is reached is not known; give --link")
        return hardware.second_box_link
    network = find_network(name)
    rates = [rate for rate in (network.up_mbit_s, network.down_mbit_s) if rate]
    if not rates:
        raise UserError(f"link {name!r} has no rate in the catalogue; name another network")
    return BoxLink(network.name, min(rates) / 8e3, (network.rtt_ms or 0.0) * 500.0)
