"""From what a target says about its box to a deployment that can be priced."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headroom_bench.box import Box
from headroom_bench.designs import LLAMA_CPP_SLOTS, context_of_all, design_of, with_room
from headroom_bench.errors import UserError, unknown_name
from headroom_bench.target import ServerSpec, Target, draft_of
from headroom_bench.toml_table import Check

if TYPE_CHECKING:
    from headroom_bench.catalog import Runtime
    from headroom_bench.roofline.deployment import Deployment

DEFAULT_SLOTS = LLAMA_CPP_SLOTS
DEFAULT_CTX_PER_SLOT = 8192
"""Where nobody tells, and the runtime's default does not fit."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the live server told of itself, where it did: it beats what the target file says."""

    slots: int | None = None
    ctx_per_slot: int | None = None


def missing_for_prediction(server: ServerSpec, model: str | None) -> list[str]:
    """The flags that would have to be given before a prediction is possible. `model`: the name that
    the server has for it, which may tell how its weights are stored."""
    needed = {"--hardware": server.hardware, "--quant": _quant(server, model)}
    missing = [flag for flag, value in needed.items() if value is None]
    return missing if server.model or model else [*missing, "--model"]


def _quant(server: ServerSpec, model: str | None) -> str | None:
    if server.quant is not None or model is None:
        return server.quant
    from headroom_bench.catalog.served import served_quant

    return served_quant(model)


def name_checks() -> dict[str, Check]:
    """How what a target names of its box, and of the way to it, is looked up, by field."""
    from headroom_bench.catalog import find_hardware, find_model, find_quant, find_runtime
    from headroom_bench.network import link_named

    return {
        "hardware": find_hardware,
        "model": find_model,
        "quant": find_quant,
        "runtime": find_runtime,
        "draft": _find_drafter,
        "link": link_named,
    }


def _find_drafter(text: str) -> None:
    from headroom_bench.catalog import find_model

    name, _ = draft_of(text)
    if name != "mtp":
        find_model(name)


def check_names(target: Target) -> None:
    """Looks up what the user named of the box and of the way to it; the server's own name of its
    model may be any.

    Raises:
        UserError: the catalogue does not know a name, or the parts do not go together.
    """
    server = target.server
    for field, check in name_checks().items():
        name = target.link if field == "link" else getattr(server, field)
        if name is not None:
            check(name)
    if server.backend is not None:
        _check_backend(target, server.backend)
    if server.model is not None and not missing_for_prediction(server, target.model):
        deployment_of(target)


def _check_backend(target: Target, asked: str) -> None:
    from headroom_bench.catalog import find_hardware, find_runtime
    from headroom_bench.roofline.backends import BACKENDS, backend_of

    if target.server.hardware is not None:
        backend_of(find_hardware(target.server.hardware), find_runtime(target.runtime), asked)
    elif asked not in BACKENDS:
        raise unknown_name("backend", asked, BACKENDS)


def named_way_s(target: Target) -> float:
    """One way over the link that the target's file names; 0 where it names none. Raises `UserError`
    for one that cannot be."""
    from headroom_bench.network import link_named

    return 0.0 if target.link is None else link_named(target.link).one_way_s


def deployment_of(target: Target, told: Told = Told()) -> Deployment:
    """The target's box as the roofline sees it, with as many sequences and as much context as the
    server told, else the target, else as the runtime does by default.

    Raises:
        UserError: a name is unknown, or what is needed was not told.
    """
    from headroom_bench.catalog.served import served_model
    from headroom_bench.roofline.deployment import Deployment

    server = target.server
    missing = missing_for_prediction(server, target.model)
    if missing or server.hardware is None:
        raise UserError(f"{target.name} does not say what runs there: give {', '.join(missing)}")
    deployment = Deployment.named(
        model=server.model or served_model(target.model or ""),
        hardware=server.hardware,
        quant=_quant(server, target.model),
        runtime=target.runtime,
        backend=server.backend,
        kv_k=server.kv_k or "f16",
        kv_v=server.kv_v or "f16",
        ubatch=server.ubatch,
        draft=draft_of(server.draft)[0] if server.draft else None,
        slots=told.slots or server.slots or DEFAULT_SLOTS,
        ctx=told.ctx_per_slot or DEFAULT_CTX_PER_SLOT,
    )
    return with_room(deployment, settings(server, told, deployment.runtime))


def settings(server: ServerSpec, told: Told, runtime: Runtime) -> ServerSpec:
    """What is known of the server's settings: what it told of itself, else what the target says."""
    known = replace(server, slots=told.slots or server.slots)
    if told.ctx_per_slot is None:
        return known
    return replace(known, ctx=context_of_all(runtime, known, told.ctx_per_slot))


def assumed(target: Target, known: ServerSpec, deployment: Deployment) -> str | None:
    """A warning of what is taken to be so because nobody told; None where all is known.

    `target` has the dialect that the server speaks, `known` are its `settings`.
    """
    taken = []
    if target.server.runtime is None and target.dialect == "openai":
        taken.append(f"{deployment.runtime.name} as the server (--runtime)")
    if known.slots is None:
        many = f"up to {deployment.slots:,} sequences" if deployment.slots > 1 else "one sequence"
        taken.append(f"{many} at once (--slots)")
    if known.ctx is None:
        taken.append(f"{deployment.ctx:,} tokens for each (--ctx)")
    if not taken:
        return None
    return (
        f"the prediction assumes what neither the server nor an option told, by "
        f"{deployment.runtime.name}'s defaults: {', '.join(taken)}"
    )


def box_of(deployment: Deployment, server: ServerSpec | None = None) -> Box:
    """A fresh virtual box of the runtime's own design. `server`: what is told of its settings; None
    where the deployment's slots and context are the server's own.

    Raises UserError where no sequence fits into its memory.
    """
    return Box.of(deployment.pricer(), design_of(deployment, server))
