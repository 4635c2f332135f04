"""What drafting costs: a draft model's own passes, or those of a model's own prediction head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headroom_bench.roofline.coefficients import coefficients

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

HEAD_LAUNCH_S = 0.2e-3
"""Fixed time of one pass of a prediction head: a layer's launches and sampling (assumed)."""


class Drafter(Protocol):
    """Prices one drafting pass."""

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        """Seconds for one drafted token in each of so many sequences of that mean context."""
        ...


class _DraftModel:
    def __init__(self, deployment: Deployment) -> None:
        from headroom_bench.roofline.passes import Roofline

        self._roofline = Roofline(deployment)

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        from headroom_bench.roofline.pricer import Batch

        window = self._roofline.window
        inside = context_tokens if window is None else min(context_tokens, window)
        return self._roofline.pass_s(
            Batch(sequences, round(sequences * context_tokens), round(sequences * inside), 0)
        )


class _PredictionHead:
    """One layer like the model's own, and its output matrix, for each drafted token."""

    def __init__(self, deployment: Deployment) -> None:
        from headroom_bench.roofline.iteration import token_table

        self._table, self._c = token_table, coefficients(deployment)
        stored, layers = deployment.weights(), deployment.model.n_layers
        self._layers = layers
        self._head_share = stored.head / stored.always_read

    def pass_s(self, sequences: int, context_tokens: float) -> float:
        c = self._c
        woken, _, _, _ = self._table(c, float(sequences))
        body = c.always_s * (1 - self._head_share) + c.expert_s * float(woken)
        cache = (c.kv_s + c.window_s) * context_tokens * sequences
        return float(c.always_s * self._head_share + (body + cache) / self._layers + HEAD_LAUNCH_S)


def drafter_of(deployment: Deployment) -> Drafter | None:
    """The drafter that a deployment names, if it names one.

    Raises `UserError` for a draft model of unknown shape.
    """
    if deployment.drafter is None:
        return None
    if deployment.drafter.model == deployment.model:
        return _PredictionHead(deployment)
    return _DraftModel(deployment.drafter)
