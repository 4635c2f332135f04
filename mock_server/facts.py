"""What a mock says about its model."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.roofline.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Sizes from the catalogue."""

    parameters: int
    weight_bytes: int
    width: int
    """Of the hidden state."""
    trained_ctx: int
    """Tokens."""
    quant: str


def facts_of(deployment: Deployment) -> ModelFacts:
    """Raises `UserError` for a partly published shape."""
    model = deployment.model
    return ModelFacts(
        parameters=int(model.params().total),
        weight_bytes=int(deployment.weights().total),
        width=model.hidden_size,
        trained_ctx=model.max_context,
        quant=deployment.quant.name,
    )
