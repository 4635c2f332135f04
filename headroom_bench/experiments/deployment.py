"""From what a target says about its box to a deployment that can be priced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.box import Box, context_per_slot
from headroom_bench.designs import design_of
from headroom_bench.errors import UserError
from headroom_bench.target import ServerSpec, Target

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

DEFAULT_SLOTS = 4
"""llama.cpp's own default since 2026."""
DEFAULT_CTX_PER_SLOT = 8192


@dataclass(frozen=True, slots=True)
class Probed:
    """What the live server told of itself, where it did: it beats what the target file says."""

    slots: int | None = None
    ctx_per_slot: int | None = None


def missing_for_prediction(server: ServerSpec, model: str | None) -> list[str]:
    """The flags that would have to be given before a prediction is possible."""
    needed = {"--hardware": server.hardware, "--quant": server.quant}
    missing = [flag for flag, value in needed.items() if value is None]
    return missing if server.model or model else [*missing, "--model"]


def deployment_of(target: Target, probed: Probed | None = None) -> Deployment:
    """The target's box as the roofline sees it.

    Raises:
        UserError: a name is unknown, or what is needed was not told.
    """
    from headroom_bench.roofline.deployment import Deployment

    server, told = target.server, probed or Probed()
    model = server.model or target.model
    missing = missing_for_prediction(server, target.model)
    if missing or model is None or server.hardware is None or server.quant is None:
        raise UserError(f"{target.name} does not say what runs there: give {', '.join(missing)}")
    slots = told.slots or server.slots or DEFAULT_SLOTS
    return Deployment.named(
        model=model,
        hardware=server.hardware,
        quant=server.quant,
        runtime=target.runtime,
        backend=server.backend,
        kv_k=server.kv_k or "f16",
        kv_v=server.kv_v or "f16",
        ubatch=server.ubatch,
        draft=server.draft,
        slots=slots,
        ctx=told.ctx_per_slot or _ctx_per_slot(server, slots),
    )


def _ctx_per_slot(server: ServerSpec, slots: int) -> int:
    if server.ctx is None:
        return DEFAULT_CTX_PER_SLOT
    return context_per_slot(server.ctx, 1 if server.kv_unified else slots)


def box_of(deployment: Deployment, server: ServerSpec | None = None) -> Box:
    """A fresh virtual box of the runtime's own design. `server`: what is told of its settings; None
    where the deployment's slots and context are the server's own.

    Raises UserError where no sequence fits into its memory.
    """
    return Box.of(deployment.pricer(), design_of(deployment, server))
