"""What if it were another box, model, runtime, quantization, number of slots: a redline each."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headroom_bench.catalog import find_hardware, find_model, find_runtime
from headroom_bench.catalog.capability import tier_of
from headroom_bench.designs import context_of_all, context_of_each, memory_kind
from headroom_bench.errors import UserError
from headroom_bench.experiments.deployment import name_checks
from headroom_bench.experiments.differences import differences
from headroom_bench.experiments.redline import OnTrial, RedlineOptions, redline, with_target
from headroom_bench.roofline.deployment import quant_of
from headroom_bench.target import ServerSpec, Target, with_overrides
from headroom_bench.units import MOST_SLOTS, parse_size, parse_whole

AXES = ("hardware", "model", "runtime", "backend", "quant", "slots", "ctx", "kv_k", "kv_v")
"""What may differ, as the fields of a target's [server] are called."""
COLUMNS = (
    *AXES, "ctx_each", "people", "fails_at", "verdict", "persona", "limit", "evidence", "price_usd",
    "usd_per_person", "tier", "tier_words", "took_s", "error",
)  # fmt: skip
"""Of a grid's rows. `ctx_each`: tokens of each sequence's context. `tier` is coarse and
estimated (`catalog/data/capability.json`)."""

Change = Mapping[str, str]


def axes_of(words: Sequence[str]) -> dict[str, list[str]]:
    """`hardware=a,b`, `slots=4,8`: the values of each axis. Raises `UserError`."""
    axes: dict[str, list[str]] = {}
    for text in words:
        key, equals, values = text.partition("=")
        name = key.strip().replace("-", "_")
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if name not in AXES or not equals or not listed:
            raise UserError(f"--over {text!r}: write KEY=VALUE,VALUE with {', '.join(AXES)}")
        axes.setdefault(name, []).extend(listed)
    return axes


def changed(target: Target, change: Change) -> Target:
    """The target with another [server]; a new box or runtime brings its own backend. Raises
    `UserError`."""
    fields: dict[str, Any] = dict(change)
    if "slots" in change:
        fields["slots"] = parse_whole(change["slots"], "slots", MOST_SLOTS)
    if "ctx" in change:
        fields["ctx"] = parse_size(change["ctx"], "ctx")
    checks = name_checks()
    for axis, name in change.items():
        if axis in checks:  # a wrong one stops a grid before it begins, not in its middle
            checks[axis](name)
    after = with_overrides(target, fields)
    return after if "ctx" in change else with_same_sequence(target, after)


def with_same_sequence(before: Target, after: Target) -> Target:
    """Where the runtime is another one: `after` with the setting that gives each sequence as much
    context as the other runtime would with as many slots: slots may divide what is given for all.
    Slots that share one cache get one that holds as much for all of them.

    Raises `UserError`: an unknown runtime.
    """
    ctx = before.server.ctx
    if ctx is None or before.runtime == after.runtime:
        return after
    told = dataclasses.replace(before.server, slots=after.server.slots)
    each = context_of_each(find_runtime(before.runtime), told, ctx)
    runtime, slots = find_runtime(after.runtime), after.server.slots
    whole = context_of_all(runtime, after.server, each)
    if memory_kind(runtime, after.server) == "unified_slots" and slots is not None:
        whole = each * slots
    return dataclasses.replace(after, server=dataclasses.replace(after.server, ctx=whole))


def combinations(axes: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Every combination, the last axis running fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def grid(
    options: RedlineOptions, axes: Mapping[str, Sequence[str]], on_trial: OnTrial
) -> tuple[int, Iterator[dict[str, Any]]]:
    """A redline for every combination: how many there will be, and their rows of `COLUMNS`, one by
    one as they are found.

    One that cannot be (a format that its model has not, a context beyond its memory) holds `error`.
    Raises `UserError` at once for a name that does not exist.
    """
    targets = [changed(options.target, change) for change in combinations(axes)]
    rows = (_row(with_target(options, target), on_trial) for target in targets)
    return len(targets), rows


def _row(options: RedlineOptions, on_trial: OnTrial) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    server = options.target.server
    row |= {axis: getattr(server, axis) for axis in AXES}
    row["model"] = server.model or options.target.model
    try:
        found = redline(options, on_trial)
    except UserError as why:
        return row | {"error": str(why)}
    broke = found["broke"] or {}
    row |= {name: found[name] for name in (*AXES, "ctx_each") if name in found}
    row |= {
        "people": _people(found["redline"]),
        "fails_at": found["redline"]["fails"],
        "verdict": found["verdict"],
        "persona": broke.get("persona"),
        "limit": broke.get("limit"),
        "evidence": broke.get("evidence"),
        "took_s": found["took_s"],
    }
    return row | cost(found["hardware"], row["people"]) | capability(server, found)


def _people(redline: Mapping[str, Any]) -> int | None:
    """How many pass; None where the most that lost nothing could not be judged."""
    if redline["passes"] is None and any(n != redline["fails"] for n in redline["unjudged"]):
        return None
    return redline["passes"] or 0


def cost(hardware: str, people: int | None) -> dict[str, Any]:
    """What the box cost at its launch, and that a person; None where no price is known."""
    price = find_hardware(hardware).launch_price_usd
    each = price / people if price and people else None
    return {"price_usd": price, "usd_per_person": each}


def capability(server: ServerSpec, found: Mapping[str, Any]) -> dict[str, Any]:
    """The coarse tier of what runs there."""
    model = find_model(server.model or found["model"])
    tier = tier_of(model, quant_of(model, server.quant, find_runtime(found["runtime"])))
    return {"tier": tier.tier if tier else None, "tier_words": tier.words if tier else None}


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows with a header line; empty cells where nothing is known."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(row[name]) for name in COLUMNS} for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value


def versus(
    options: RedlineOptions, others: Sequence[str], on_trial: OnTrial
) -> Iterator[dict[str, Any]]:
    """The redline of what differs, for each of `--vs`. Raises `UserError`."""
    for text in others:
        target = changed(options.target, differences(text, AXES))
        yield {"vs": text, **redline(with_target(options, target), on_trial)}
