"""A deployment for a reader: what it is, and whether it can be at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom_bench.designs import design_of
from headroom_bench.errors import UserError
from headroom_bench.experiments.memory_check import why_it_does_not_fit
from headroom_bench.units import counted

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment
    from headroom_bench.target import ServerSpec


def in_words(deployment: Deployment, server: ServerSpec | None) -> str:
    """What runs where, in one line."""
    return (
        f"{deployment.hardware.name}: {deployment.model.name} {deployment.quant.name}, "
        f"{deployment.runtime.name} on {deployment.backend}, {_room(deployment, server)}"
    )


def _room(deployment: Deployment, server: ServerSpec | None) -> str:
    """How many sequences of what length it holds, by its memory's design."""
    try:
        design = design_of(deployment, server)
    except UserError:  # it does not fit: `memory_complaint` says so
        return f"{counted(deployment.slots, 'slot')} of {deployment.ctx:,} tokens"
    if design.memory == "split_slots":
        return f"{counted(design.parallel, 'slot')} of {design.ctx:,} tokens"
    together = "" if design.pool_tokens is None else f", {design.pool_tokens:,} together"
    return f"up to {design.parallel} sequences of {design.ctx:,} tokens{together}"


def beyond_training(deployment: Deployment, longest_tokens: int) -> str | None:
    """What is wrong with a context of so many tokens; None where nothing is."""
    trained = deployment.model.max_context
    if not trained or longest_tokens <= trained:
        return None
    return (
        f"contexts of {longest_tokens:,} tokens are beyond the model's own of {trained:,}: "
        "servers refuse or cut them, unless told otherwise, and what is written there is bad"
    )


def memory_complaint(deployment: Deployment, server: ServerSpec | None) -> str | None:
    """Why the box cannot hold what it is said to run; None where it can."""
    why = why_it_does_not_fit(deployment, server)
    if why is None:
        return None
    return (
        f"this does not fit into {deployment.hardware.name}: it {why}; the figures are what they "
        "would be if it started (`headroom-bench inspect MODEL --hardware BOX --quant QUANT` says "
        "what would fit)"
    )
