"""What drafting costs: a draft model's own passes, or those of a model's own prediction head."""

from __future__ import annotations

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


class Drafter(Protocol):
    """Prices one drafting pass."""

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        """Seconds for one drafted token in each of so many sequences of that mean context."""
        ...

    def read_s(self, chunks: tuple[Chunk, ...]) -> float:
        """Seconds for reading what a pass reads of prompts."""
        ...


class _DraftModel:
    def __init__(self, deployment: Deployment) -> None:
        from headroom_bench.roofline.passes import Roofline

        self._roofline = Roofline(deployment)

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        inside = _inside(context_tokens, self._roofline.window)
        return self._roofline.pass_s(
            Batch(sequences, round(sequences * context_tokens), round(sequences * inside), 0)
        )

    def read_s(self, chunks: tuple[Chunk, ...]) -> float:
        return self._roofline.pass_s(Batch(0, 0, 0, 0, chunks))


class _PredictionHead:
    """One layer like the model's own, and its output matrix, for each drafted token."""

    def __init__(self, deployment: Deployment) -> None:
        self._c = coefficients(deployment)
        self._window = deployment.kv().window_tokens
        stored = deployment.weights()
        self._layers = deployment.model.n_layers
        self._head_share = stored.head / stored.always_read

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        c = self._c
        woken = woken_experts(sequences, c.experts, c.experts_per_token, c.expert_exponent)
        body = c.always_s * (1 - self._head_share) + c.expert_s * woken
        inside = _inside(context_tokens, self._window)
        cache = (c.kv_s * context_tokens + c.window_s * inside) * sequences
        head = c.always_s * self._head_share
        return float(head + (body + cache) / self._layers + HEAD_LAUNCH_S)

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
