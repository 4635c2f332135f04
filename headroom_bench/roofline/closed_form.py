"""The Methodology page's closed forms: a second, simpler view of one user on one box.

    t_token = (W_active + KV) / (BW eta) + W_offloaded / (BW_host eta_host) + t_fixed

Its constants are the page's own, with its own flags. It has no batch, no prompt length, no kernels:
where those do not matter it should agree with the iteration rule, and a test holds it to that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.roofline.offload import host_share

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


@dataclass(frozen=True, slots=True)
class PageConstant:
    """One of the page's constants, with its flag."""

    value: float
    status: str


ETA = {
    "blackwell": PageConstant(0.850, "assumed"),
    "gb10": PageConstant(0.850, "assumed"),
    "ada": PageConstant(0.927, "fitted"),
    "ampere": PageConstant(0.622, "fitted"),
    "hopper": PageConstant(0.850, "assumed"),
    "rdna4": PageConstant(0.700, "assumed"),
    "rdna3": PageConstant(0.650, "assumed"),
    "rdna3.5": PageConstant(0.650, "assumed"),
    "xe2": PageConstant(0.600, "assumed"),
    "apple": PageConstant(0.548, "fitted"),
    "custom": PageConstant(0.750, "assumed"),
    "cpu": PageConstant(0.350, "assumed"),
}
"""Share of the bandwidth that decoding sustains (the page's section 3; fitted to 12, 1 and 1
measurements)."""

T_FIXED_S = {
    "cuda": PageConstant(2.25e-3, "fitted"),
    "rocm": PageConstant(3.50e-3, "assumed"),
    "metal": PageConstant(3.00e-3, "assumed"),
    "vulkan": PageConstant(4.00e-3, "assumed"),
    "cpu": PageConstant(5.00e-3, "assumed"),
}
"""Fixed time a token (the page's section 4)."""

R_ADA = 72.8
"""Prefill over decode on an RTX 4090, three figures (the page's section 7). Other architectures
inherit it, which the page calls a rough guide."""


@dataclass(frozen=True, slots=True)
class SimpleView:
    """What the page would say. Rates in tokens a second."""

    decode_tok_s: float
    prefill_tok_s: float
    status: str
    """fitted where both constants are, else assumed."""
    prefill_status: str
    """fitted on Ada only."""


def simple_view(deployment: Deployment, context_tokens: int) -> SimpleView:
    """One user at a context, by the page. Raises `UserError` for a model of unknown shape."""
    box, model = deployment.hardware, deployment.model
    architecture = "cpu" if deployment.backend == "cpu" else box.architecture
    eta = ETA.get(architecture, ETA["custom"])
    fixed = T_FIXED_S.get(deployment.backend, T_FIXED_S["vulkan"])
    weights, kv, moe = deployment.weights(), deployment.kv(), model.moe
    woken = moe.experts_per_token * weights.one_expert * weights.moe_layers if moe else 0.0
    host = host_share(deployment)
    away = weights.always_read * host.always + woken * host.experts
    inside = context_tokens if kv.window_tokens is None else min(context_tokens, kv.window_tokens)
    cache = kv.full_read * context_tokens + kv.window_read * inside + kv.state
    stream = box.bandwidth_gb_s * 1e9 * eta.value
    seconds = (weights.always_read + woken - away + cache) / stream
    seconds += away * host.byte_s + fixed.value
    params = model.params()
    return SimpleView(
        decode_tok_s=1 / seconds,
        prefill_tok_s=R_ADA * params.active / params.total / seconds,
        status="fitted" if eta.status == fixed.status == "fitted" else "assumed",
        prefill_status="fitted" if architecture == "ada" else "assumed",
    )
