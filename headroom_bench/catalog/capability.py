"""A coarse, estimated tier of what a model can be trusted with, at a quantization."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.catalog._entries import read_data
from headroom_bench.catalog.model import Model
from headroom_bench.catalog.models import twin
from headroom_bench.catalog.quant import Quant


@dataclass(frozen=True, slots=True)
class Tier:
    """From 1 (single phrases) to 6 (the best that is open). Coarse and estimated, always."""

    tier: int
    words: str


def tier_of(model: Model, quant: Quant) -> Tier | None:
    """The tier by the catalogue's table, less what few bits a weight lose; None where the model is
    not in it.

    A model of one's own is taken for the catalogue's entry of the same shape.
    """
    table = read_data("capability.json")
    known = table["models"]
    name = model.name
    if name not in known:
        same = twin(model)
        name = same.name if same else name
    if name not in known:
        return None
    lost = max(
        (
            rule["tiers_lost"]
            for rule in table["quants"]
            if quant.bits_per_weight < rule["below_bits"]
        ),
        default=0,
    )
    tier = max(1, known[name] - lost)
    words = {entry["tier"]: entry["words"] for entry in table["tiers"]}
    return Tier(tier, words[tier])
