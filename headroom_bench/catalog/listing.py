"""The catalogue as plain facts: lists, filters, one entry."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from headroom_bench.catalog.boxes import find_hardware, hardware
from headroom_bench.catalog.model import Model
from headroom_bench.catalog.models import find_model, models
from headroom_bench.catalog.network import find_network, networks
from headroom_bench.catalog.quant import Quant, find_quant, quants
from headroom_bench.catalog.runtime import find_runtime, runtimes
from headroom_bench.errors import UserError, unknown_name
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import read_toml

Entry = Mapping[str, Any]
_FOUND: dict[str, tuple[Callable[[], Iterable[Any]], Callable[[str], Any]]] = {
    "models": (models, find_model),
    "hardware": (hardware, find_hardware),
    "quants": (quants, find_quant),
    "runtimes": (runtimes, find_runtime),
    "networks": (networks, find_network),
}
_SHIPPED: dict[str, tuple[Literal["personas", "targets"], str]] = {
    "personas": ("personas", "."),
    "crowds": ("personas", "crowds"),
    "targets": ("targets", "."),
}
KINDS = (*_FOUND, *_SHIPPED)
_CONDITION = re.compile(r"^([\w.]+)\s*(<=|>=|!=|=|<|>|~)\s*(.+)$")
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt,
    ">=": operator.ge, "~": operator.contains,
}  # fmt: skip


def list_entries(kind: str, search: str = "", where: Iterable[str] = ()) -> list[Entry]:
    """The entries of a kind, as facts; those that hold `search` and meet every condition.

    A condition is FIELD, an operator (= != < <= > >=, ~ for contains) and a value; a field of a
    table inside is written with a dot. An entry without the field does not meet it.
    Raises `UserError`: unknown kind or field, or no condition at all.
    """
    found = _all(_known(kind))
    if search:
        wanted = search.casefold()
        found = [entry for entry in found if wanted in repr(tuple(_texts(entry))).casefold()]
    for text in where:
        found = _meeting(found, text, kind)
    return found


def one_entry(kind: str, name: str) -> Entry:
    """The facts of one entry, by name or by the path of a file of one's own. Raises `UserError`."""
    if _known(kind) in _FOUND:
        return _facts(_FOUND[kind][1](name))
    what = kind.removesuffix("s")
    return _shipped_facts(find_file(what, name, _folder(kind)))


def _known(kind: str) -> str:
    if kind not in KINDS:
        raise unknown_name("part of the catalogue", kind, KINDS)
    return kind


def _all(kind: str) -> list[Entry]:
    if kind in _FOUND:
        return [_facts(entry) for entry in _FOUND[kind][0]()]
    return [_shipped_facts(path) for path in sorted(_folder(kind).glob("*.toml"))]


def _folder(kind: str) -> Path:
    place, inside = _SHIPPED[kind]
    return shipped_dir(place) / inside


def _shipped_facts(path: Path) -> Entry:
    return {"id": path.stem, **read_toml(path).as_dict()}


def _facts(entry: Any) -> Entry:
    """What is known of an entry; what is not is left out."""
    facts = {"id": entry.name if isinstance(entry, Quant) else entry.id}
    facts |= _without_blanks(dataclasses.asdict(entry))
    if isinstance(entry, Model):
        facts |= _derived(entry)
    return facts


def _derived(model: Model) -> dict[str, Any]:
    kv = model.kv()
    derived: dict[str, Any] = {
        "kv_bytes_per_token": kv.full_bytes(),
        "kv_window_bytes_per_token": kv.window_bytes(),
        "kv_provenance": "exact" if model.kv_exact else "estimated",
    }
    if not model.partial:
        derived["computed_total_b"] = model.params().total / 1e9
    return derived


def _without_blanks(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_blanks(value) if isinstance(value, dict) else value
        for key, value in facts.items()
        if value not in (None, "", (), {}, False)
    }


def _texts(entry: Mapping[str, Any]) -> Iterable[Any]:
    for value in entry.values():
        if isinstance(value, Mapping):
            yield from _texts(value)
        else:
            yield value


def _meeting(entries: list[Entry], text: str, kind: str) -> list[Entry]:
    match = _CONDITION.match(text.strip())
    if match is None:
        raise UserError(f"--where {text!r} is no condition; write memory_gb>=96 or family=qwen3")
    field, sign, wanted = match.groups()
    values = [_value(entry, field) for entry in entries]
    if all(value is None for value in values):
        fields = sorted({key for entry in _all(kind) for key in entry})
        if field.split(".")[0] not in fields:
            raise unknown_name(f"field of {kind}", field, fields)
    return [e for e, value in zip(entries, values, strict=True) if _holds(value, sign, wanted)]


def _value(entry: Entry, field: str) -> Any:
    value: Any = entry
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _holds(value: Any, sign: str, wanted: str) -> bool:
    if value is None:
        return False
    if isinstance(value, bool):
        return _COMPARISONS[sign](str(value).lower(), wanted.lower())
    if isinstance(value, int | float) and sign != "~":
        try:
            return _COMPARISONS[sign](value, float(wanted))
        except ValueError:
            raise UserError(f"--where: {wanted!r} is not a number, {value!r} is one") from None
    return _COMPARISONS[sign](str(value).casefold(), wanted.casefold())
