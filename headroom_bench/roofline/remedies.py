"""What would make a deployment fit that does not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from headroom_bench.catalog import Quant, quants
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.memory import OVERHEAD_GB, fit, usable_of
from headroom_bench.units import counted

_LEAST_CONTEXT = 1024
"""A shorter context is no remedy: a chat's system prompt fills it."""
_TRAINED_IN = ("ternary",)
"""Kinds that a model has to be trained in; others are made from any weights."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """One change (or two together) after which everything fits. GB are 10^9 bytes."""

    change: str
    total_gb: float
    usable_gb: float


def remedies(deployment: Deployment) -> tuple[Remedy, ...]:
    """Changes that would do, each alone: the largest smaller quantization, a smaller cache type,
    less context, fewer slots, no draft model, a second box. Where none does, a quantization and a
    context together.

    Empty where the deployment fits, or where nothing would help.
    """
    if fit(deployment).fits:
        return ()
    single = (
        _smaller_quant(deployment),
        _smaller_cache(deployment),
        _less_context(deployment),
        _fewer_slots(deployment),
        _without_drafter(deployment),
        _second_box(deployment),
    )
    found = tuple(remedy for remedy in single if remedy)
    both = None if found else _quant_and_context(deployment)
    return (both,) if both else found


def _remedy(change: str, changed: Deployment) -> Remedy:
    need = fit(changed)
    return Remedy(change, need.total_gb, need.usable_gb)


def _requantized(deployment: Deployment) -> list[tuple[Quant, Deployment]]:
    """The deployment in every smaller format of its own kind of file, largest first."""
    plain = dataclasses.replace(deployment.model, stored=None)
    if plain.partial:
        return []
    now = deployment.weights().total
    smaller = []
    for quant in quants():
        if quant.format != deployment.quant.format or quant.kind in _TRAINED_IN or quant.estimated:
            continue
        changed = dataclasses.replace(deployment, model=plain, quant=quant)
        if changed.weights().total < now:
            smaller.append((quant, changed))
    return sorted(smaller, key=lambda pair: -pair[1].weights().total)


def _smaller_quant(deployment: Deployment) -> Remedy | None:
    for quant, changed in _requantized(deployment):
        if fit(changed).fits:
            return _remedy(f"quantization {quant.name}", changed)
    return None


def _smaller_cache(deployment: Deployment) -> Remedy | None:
    changed = dataclasses.replace(deployment, kv_k="q8_0", kv_v="q8_0")
    if fit(changed).kv_gb < fit(deployment).kv_gb and fit(changed).fits:
        return _remedy("KV cache in q8_0", changed)
    return None


def _less_context(deployment: Deployment) -> Remedy | None:
    longest = fit(deployment).max_context_tokens
    if not _LEAST_CONTEXT <= longest < deployment.ctx:
        return None
    return _remedy(f"a context of {_each(deployment, longest)}", _of_context(deployment, longest))


def _of_context(deployment: Deployment, tokens: int) -> Deployment:
    """The deployment with a shorter context; one pool is as long as a sequence may be."""
    pool = None if deployment.pool_tokens is None else tokens
    return dataclasses.replace(deployment, ctx=tokens, pool_tokens=pool)


def _each(deployment: Deployment, tokens: int) -> str:
    return f"{tokens:,} tokens" + (" a slot" if deployment.pool_tokens is None else "")


def _fewer_slots(deployment: Deployment) -> Remedy | None:
    most = fit(deployment).max_users
    if not 1 <= most < deployment.slots:
        return None
    changed = dataclasses.replace(deployment, slots=most)
    if not fit(changed).fits:  # a pool is no smaller with fewer
        return None
    return _remedy(f"{counted(most, 'slot')} instead of {deployment.slots}", changed)


def _without_drafter(deployment: Deployment) -> Remedy | None:
    alone = dataclasses.replace(deployment, drafter=None)
    if deployment.draft_model is None or not fit(alone).fits:
        return None
    return _remedy("no draft model", alone)


def _second_box(deployment: Deployment) -> Remedy | None:
    """Weights and cache over two of the same; each has its own framework in memory."""
    total = fit(deployment).total_gb + OVERHEAD_GB
    usable = usable_of(dataclasses.replace(deployment, boxes=2))
    if total > usable:
        return None
    link = deployment.hardware.second_box_link
    how = f" over {link.kind}" if link else ""
    return Remedy(f"a second {deployment.hardware.name}{how}", total, usable)


def _quant_and_context(deployment: Deployment) -> Remedy | None:
    for quant, changed in _requantized(deployment):
        longest = min(fit(changed).max_context_tokens, deployment.ctx)
        if longest >= _LEAST_CONTEXT:
            change = f"quantization {quant.name} and {_each(changed, longest)}"
            return _remedy(change, _of_context(changed, longest))
    return None
