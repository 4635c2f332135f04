"""Reads a calibration file: what one box's own measurements gave for the model's constants.

schema_version = 1
sources = ["results/2026-11-30-spark"]

[key]
hardware = "dgx-spark"
runtime = "llama.cpp"
backend = "cuda"
model = "gpt-oss-120b"          # or "any"
quant = "MXFP4"                 # may be left out
context_tokens = [512, 32768]   # measured from … to; may be left out, as users
users = [1, 8]

[constants]
bandwidth_efficiency = { value = 0.86, unit = "1", stderr = 0.01, n = 12, status = "fitted" }

[error.decode]                  # several and prefill likewise
before = 0.09                   # 85th percentile of |predicted / measured - 1|
after = 0.03
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from headroom_bench.catalog import (
    Hardware,
    Model,
    Runtime,
    find_hardware,
    find_model,
    find_quant,
    find_runtime,
)
from headroom_bench.roofline.backends import BACKENDS
from headroom_bench.roofline.calibration import (
    EXPERT_EXPONENT,
    Calibration,
    FitError,
    FittedConstant,
)
from headroom_bench.roofline.constants import Constants
from headroom_bench.roofline.fitted import COMMON
from headroom_bench.toml_table import LARGEST, Table, read_toml
from headroom_bench.units import MOST_SEQUENCE_TOKENS, shown, spelled

SCHEMA_VERSION = 1
ANY = "any"
_MOST_ERROR = 100.0
"""Of a share; what is so far off was not measured on that box."""
_UNITS = {name: unit for name, (_, unit, _, _) in COMMON.items()} | {EXPERT_EXPONENT: "1"}
_DIVISORS = ("efficiency", "share", "overlap_p", "tile_tokens")
"""What the names of those end with by which something is divided."""
_FACTORS = ("token_share", "fp4_half_share")
"""Shares that a time is multiplied by, not divided: 0 is none."""
_NAMES = (*(f.name for f in dataclasses.fields(Constants) if f.name != "spread"), EXPERT_EXPONENT)


def read_calibration(path: Path) -> Calibration:
    """The calibration in a file.

    Raises `UserError`, naming file, line and field: not readable, another schema, unknown names,
    numbers out of range.
    """
    root = read_toml(path)
    version = root.whole("schema_version", least=1)
    if version != SCHEMA_VERSION:
        raise root.error("schema_version", f"{version} is not {SCHEMA_VERSION}, which is read here")
    key = _table(root, "key")
    sources = tuple(root.texts("sources"))
    constants = _constants(_table(root, "constants"))
    if not constants:
        raise root.error("constants", "is empty; a calibration changes at least one constant")
    errors = root.table("error")
    kinds = {kind: _error(errors, kind) for kind in ("decode", "several", "prefill")}
    if errors is not None:
        errors.done()
    found = _keyed(key, path, constants, sources, kinds)
    key.done()
    root.done()
    return found


def _keyed(
    key: Table,
    path: Path,
    constants: tuple[FittedConstant, ...],
    sources: tuple[str, ...],
    errors: dict[str, FitError | None],
) -> Calibration:
    model = None if key.text("model") == ANY else _named(key, "model", find_model)
    quant = key.text("quant", None)
    exponent = any(each.name == EXPERT_EXPONENT for each in constants)
    if exponent and model is None:
        raise key.error("model", f"{EXPERT_EXPONENT} belongs to a model: name it")
    return Calibration(
        name=path.name,
        hardware=_named(key, "hardware", find_hardware),
        runtime=_named(key, "runtime", find_runtime),
        backend=key.choice("backend", BACKENDS),
        constants=constants,
        sources=sources,
        model=model,
        quant=None if quant is None else key.told("quant", lambda: find_quant(quant).name),
        context_tokens=_span(key, "context_tokens"),
        users=_span(key, "users"),
        **errors,
    )


def _constants(table: Table) -> tuple[FittedConstant, ...]:
    found = []
    for name in table.as_dict():
        if name not in _NAMES:
            raise table.error(name, f"is no constant of the model; it has {', '.join(_NAMES)}")
        each = _table(table, name)
        unit = each.choice("unit", (_UNITS[name],))
        told = FittedConstant(
            name=name,
            value=float(each.number("value")),
            unit=unit,
            status=each.choice("status", ("fitted", "assumed")),
            stderr=each.number("stderr", None, most=_MOST_ERROR),
            n=each.whole("n", None),
        )
        if told.value == 0 and name.endswith(_DIVISORS) and name not in _FACTORS:
            raise each.error("value", "must be above 0: the model divides by it")
        if told.value > 1 and name.endswith("efficiency"):
            raise each.error(
                "value",
                f"{spelled(told.value)} is above 1: nothing goes beyond the data sheet's peak",
            )
        least, most = _bounds(name)
        if told.value and not least <= told.value <= most:
            bounds = f"from {spelled(least)} to {spelled(most)}"
            raise each.error("value", f"{spelled(told.value)} is not {bounds}")
        each.done()
        found.append(told)
    return tuple(found)


def _bounds(name: str) -> tuple[float, float]:
    """Between which a constant that is not 0 can lie on any box: what is computed with it has to
    stay a number."""
    if name.endswith("_p"):  # of a norm: its powers are taken of seconds
        return 0.5, 16.0
    if name.endswith(("efficiency", "share")):
        return 1e-3, 1e2
    if name == EXPERT_EXPONENT:
        return 1e-3, 2.0
    if name == "narrow_expert_width":  # beside those of experts' FFNs
        return 1.0, 1e6
    return {"s": (1e-12, 1e3), "tokens": (1e-3, MOST_SEQUENCE_TOKENS)}.get(
        _UNITS[name], (1e-6, 1e2)
    )


def _error(errors: Table | None, kind: str) -> FitError | None:
    table = errors.table(kind) if errors is not None else None
    if table is None:
        return None
    before, after = (table.number(name, most=_MOST_ERROR) for name in ("before", "after"))
    found = FitError(float(before), float(after))
    table.done()
    return found


def _span(key: Table, field: str) -> tuple[int, int] | None:
    value = key.raw(field)
    if value is None:
        return None
    whole = isinstance(value, list) and all(
        type(each) is int and 0 <= each <= LARGEST for each in value
    )
    if not whole or len(value) != 2 or value[0] > value[1]:
        raise key.error(field, f"{shown(value)} is not [least, most] in whole numbers")
    return value[0], value[1]


def _named(key: Table, field: str, find: Callable[[str], Hardware | Model | Runtime]) -> str:
    """The catalogue's id of what the key names."""
    name = key.text(field)
    return key.told(field, lambda: find(name).id)


def _table(root: Table, field: str) -> Table:
    found = root.table(field)
    if found is None:
        raise root.error(field, "is missing; give a table")
    return found
