"""What drafting costs: a draft model's own passes, or those of a model's own prediction head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headroom_bench.roofline.coefficients import coefficients
from headroom_bench.roofline.iteration import woken_experts
from headroom_bench.roofline.pricer import Batch, Chunk

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

HEAD_LAUNCH_S = 0.2e-3
"""Fixed time of one pass of a prediction head: a layer's launches and sampling (assumed)."""
HEAD_READ_S = 0.19
"""Fixed time that handing a pass of prompt to the head adds. Fitted to four prompts of one server
(Tuning article: Gemma 4 26B-A4B with its head on a DGX Spark, 76 to 13,516 tokens)."""


@dataclass(frozen=True, slots=True)
class DraftCost:
    """What one drafting pass takes; seconds may overlap."""

    weights_s: float
    kv_s: float
    compute_s: float
    weight_bytes: float
    kv_bytes: float
    flops: float


class Drafter(Protocol):
    """Prices one drafting pass."""

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        """Seconds for one drafted token in each of so many sequences of that mean context."""
        ...

    def cost(self, sequences: int, context_tokens: float) -> DraftCost:
        """The same pass by what takes the time; the rest of it is overhead."""
        ...

    def read_s(self, chunks: tuple[Chunk, ...]) -> float:
        """Seconds for reading what a pass reads of prompts."""
        ...


class _DraftModel:
    def __init__(self, deployment: Deployment) -> None:
        from headroom_bench.roofline.passes import Roofline

        self._roofline = Roofline(deployment)

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        return self._roofline.pass_s(self._batch(sequences, context_tokens))

    def cost(self, sequences: int, context_tokens: float) -> DraftCost:
        told = self._roofline.breakdown(self._batch(sequences, context_tokens))
        return DraftCost(
            told.t_weights_s, told.t_kv_s, told.t_compute_s,
            told.weight_bytes, told.kv_bytes, told.flops,
        )  # fmt: skip

    def _batch(self, sequences: int, context_tokens: float) -> Batch:
        inside = _inside(context_tokens, self._roofline.window)
        return Batch(sequences, round(sequences * context_tokens), round(sequences * inside), 0)

    def read_s(self, chunks: tuple[Chunk, ...]) -> float:
        return self._roofline.pass_s(Batch(0, 0, 0, 0, chunks))


class _PredictionHead:
    """One layer like the model's own, and its output matrix, for each drafted token."""

    def __init__(self, deployment: Deployment) -> None:
        self._c = coefficients(deployment)
        self._window = deployment.kv().window_tokens
        self._stored, self._cache = deployment.weights(), deployment.kv()
        self._params = deployment.model.params()
        self._layers = deployment.model.n_layers
        self._head_share = self._stored.head / self._stored.always_read

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        told = self.cost(sequences, context_tokens)
        return told.weights_s + told.kv_s + HEAD_LAUNCH_S

    def cost(self, sequences: int, context_tokens: float) -> DraftCost:
        c, stored, cache = self._c, self._stored, self._cache
        woken = float(woken_experts(sequences, c.experts, c.experts_per_token, c.expert_exponent))
        body_s = c.always_s * (1 - self._head_share) + c.expert_s * woken
        body = stored.always_read - stored.head + stored.one_expert * stored.moe_layers * woken
        inside = _inside(context_tokens, self._window)
        flops = self._params.body_active / self._layers + self._params.output
        return DraftCost(
            weights_s=float(c.always_s * self._head_share + body_s / self._layers),
            kv_s=float((c.kv_s * context_tokens + c.window_s * inside) * sequences / self._layers),
            compute_s=0.0,  # of so few tokens, less than a hundredth of the reading
            weight_bytes=stored.head + body / self._layers,
            kv_bytes=(cache.full_read * context_tokens + cache.window_read * inside)
            * sequences / self._layers,
            flops=2 * flops * sequences,
        )  # fmt: skip

    def read_s(self, chunks: tuple[Chunk, ...]) -> float:
        tokens = sum(chunk.tokens for chunk in chunks)
        return HEAD_READ_S + tokens * float(self._c.body_s / self._layers + self._c.head_s)


def _inside(context_tokens: float, window: int | None) -> float:
    """What a layer that keeps a window reads of a context."""
    return context_tokens if window is None else min(context_tokens, window)


def drafter_of(deployment: Deployment) -> Drafter | None:
    """The drafter that a deployment names, if it names one.

    Raises `UserError` for a draft model of unknown shape.
    """
    if deployment.drafter is None:
        return None
    beside = deployment.draft_model
    return _DraftModel(beside) if beside else _PredictionHead(deployment)
