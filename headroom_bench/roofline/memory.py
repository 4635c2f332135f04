"""What has to be in memory, and whether it fits. GB are 10^9 bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from headroom_bench.catalog import Hardware, Runtime
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.kv import KvBytes

OVERHEAD_GB = 0.8
"""Framework and device context (Methodology page, section 1)."""
_SHARES = {"vllm": "gpu_memory_utilization", "tensorrt-llm": "free_gpu_memory_fraction"}
"""The defaults of runtimes' entries that say how much of the memory they take."""
_SHARES_WHAT_IS_FREE = "tensorrt-llm"
"""Its share is of what weights leave; that of the others is of all."""
_SGLANG_SHARE = 0.85
"""mem_fraction_static is computed at start, about 0.80 to 0.90: the middle."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A deployment's memory."""

    weights_gb: float
    """Of the model, and of a draft model beside it."""
    kv_gb: float
    """Caches of both."""
    overhead_gb: float
    usable_gb: float
    max_context_tokens: int
    """The longest context a sequence with all slots in use, or of one pool that they share;
    capped at the model's own limit."""
    max_users: int
    """Sequences with the deployment's context each."""

    @property
    def total_gb(self) -> float:
        """Weights, cache and overhead."""
        return self.weights_gb + self.kv_gb + self.overhead_gb

    @property
    def fits(self) -> bool:
        """Whether it all fits into the usable memory."""
        return self.total_gb <= self.usable_gb


def taken_share(runtime: Runtime) -> float:
    """How much of a box's memory, or of what weights leave of it, a runtime takes unless it is told
    otherwise: those that reserve one pool of pages at their start leave some; 1 of all others."""
    share = runtime.defaults.get(_SHARES.get(runtime.id, ""))
    if isinstance(share, int | float):
        return float(share)
    return _SGLANG_SHARE if runtime.id == "sglang" else 1.0


def shared_memory(runtime: Runtime) -> str:
    """What that share is of, in words."""
    return "what the weights leave" if runtime.id == _SHARES_WHAT_IS_FREE else "the memory"


def usable_gb(box: Hardware, runtime: Runtime, held_gb: Any) -> Any:
    """Memory of one box that a runtime uses where weights and overhead hold `held_gb` of it (a
    float or an array): its share of all, or, of TensorRT-LLM, of what they leave."""
    share = taken_share(runtime)
    if runtime.id == _SHARES_WHAT_IS_FREE:
        return box.usable_memory_gb - (1 - share) * np.maximum(box.usable_memory_gb - held_gb, 0.0)
    return min(box.memory_gb * share, box.usable_memory_gb) + 0.0 * held_gb  # of its shape


def usable_of(deployment: Deployment) -> float:
    """GB that a deployment's runtime uses of all its boxes."""
    held = loaded_gb(deployment) / deployment.boxes + OVERHEAD_GB
    return float(usable_gb(deployment.hardware, deployment.runtime, held)) * deployment.boxes


def weights_gb(params_b: float, bits_per_weight: float) -> float:
    """Weights of `params_b` 10^9 parameters: P bits / 8 (Methodology page, section 1)."""
    return params_b * bits_per_weight / 8


def kv_gb(deployment: Deployment, slots: int, ctx: int) -> float:
    """Cache of `slots` sequences of `ctx` tokens each, and their recurrent states; a draft model
    keeps its own of the same lengths."""
    return slots * _per_slot_bytes(deployment, ctx) / 1e9


def cache_gb(deployment: Deployment) -> float:
    """Cache of all sequences of a deployment, each with its own or all in one pool; window layers
    and recurrent states are each sequence's own in a pool too."""
    if deployment.pool_tokens is None:
        return kv_gb(deployment, deployment.slots, deployment.ctx)
    return _pool_bytes(deployment, deployment.pool_tokens, deployment.ctx) / 1e9


def _pool_bytes(deployment: Deployment, tokens: int, ctx: int) -> float:
    kv, beside = deployment.kv(), deployment.draft_model
    own = sequence_bytes(kv, ctx, deployment.ubatch) - kv.full * ctx
    more = _pool_bytes(beside, tokens, ctx) if beside else 0.0
    return kv.full * tokens + deployment.slots * own + more


def loaded_gb(deployment: Deployment) -> float:
    """Weights in memory: the model's, and those of a draft model beside it."""
    beside = deployment.draft_model
    more = beside.weights().total if beside else 0.0
    return (deployment.weights().total + more) / 1e9


def fit(deployment: Deployment) -> Fit:
    """Whether a deployment fits. Raises `UserError` for a model of unknown shape."""
    weights = loaded_gb(deployment)
    overhead = OVERHEAD_GB * deployment.boxes
    usable = usable_of(deployment)
    free = usable - weights - overhead
    each = kv_gb(deployment, 1, deployment.ctx)
    return Fit(
        weights_gb=weights,
        kv_gb=cache_gb(deployment),
        overhead_gb=overhead,
        usable_gb=usable,
        max_context_tokens=_longest_context(deployment, free),
        max_users=max(math.floor(free / each), 0) if each else 0,
    )


def sequence_bytes(kv: KvBytes, ctx: int, ubatch: int) -> float:
    """Cache and state of one sequence of `ctx` tokens.

    Window layers keep the window and one ubatch, as llama.cpp allocates them.
    """
    inside = min(ctx, (kv.window_tokens or 0) + ubatch)
    return kv.full * ctx + kv.window * inside + kv.state


def _per_slot_bytes(deployment: Deployment, ctx: int) -> float:
    beside = deployment.draft_model
    more = _per_slot_bytes(beside, ctx) if beside else 0.0
    return sequence_bytes(deployment.kv(), ctx, deployment.ubatch) + more


def _longest_context(deployment: Deployment, room_gb: float) -> int:
    def fits(ctx: int) -> bool:
        if deployment.pool_tokens is None:
            return deployment.slots * _per_slot_bytes(deployment, ctx) <= room_gb * 1e9
        return _pool_bytes(deployment, ctx, ctx) <= room_gb * 1e9

    limit = deployment.model.max_context or 1 << 24
    if fits(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low
