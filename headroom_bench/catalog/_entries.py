"""From a table of plain facts to frozen records."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headroom_bench.errors import UserError, unknown_name, unshowable
from headroom_bench.toml_table import LARGEST
from headroom_bench.units import shown, spelled

T = TypeVar("T")
Facts = Mapping[str, Any]
"""An open table of facts that no equation reads."""

_DATA = Path(__file__).parent / "data"
_REQUIRED = dataclasses.MISSING
_BOUNDS = f"from 0 to {spelled(LARGEST)}"


@functools.cache
def read_data(file: str) -> dict[str, Any]:
    """One of the package's own data files, parsed once."""
    data: dict[str, Any] = json.loads((_DATA / file).read_text("utf-8"))
    return data


def build(cls: type[T], facts: Facts, where: str) -> T:
    """The record `cls` made of `facts`.

    Raises `UserError`, naming `where` and the field, for a field that is unknown, missing, of the
    wrong type, negative or beyond `LARGEST`.
    """
    converters: dict[str, tuple[_Converter, bool]] = _converters(cls)  # type: ignore[arg-type]
    values = {}
    for name, value in facts.items():
        if name not in converters:
            raise unknown_name(f"field in {where}:", name, converters)
        values[name] = converters[name][0](value, f"{where}: {name}")
    for name, (_, required) in converters.items():
        if required and name not in values:
            raise UserError(f"{where}: field {name} is missing; add it")
    return cls(**values)


_Converter = Callable[[Any, str], Any]


@functools.cache
def _converters(cls: type[Any]) -> dict[str, tuple[_Converter, bool]]:
    hints = typing.get_type_hints(cls)
    return {
        f.name: (
            _converter(hints[f.name]),
            f.default is _REQUIRED and f.default_factory is _REQUIRED,
        )
        for f in dataclasses.fields(cls)
    }


def _converter(hint: Any) -> _Converter:
    if isinstance(hint, types.UnionType):
        return _converter(next(arg for arg in typing.get_args(hint) if arg is not type(None)))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return functools.partial(_nested, hint)
    origin = typing.get_origin(hint)
    if origin is tuple:
        return functools.partial(_items, _converter(typing.get_args(hint)[0]))
    return {int: _whole, float: _number, str: _text, bool: _flag}.get(hint, _table)


def _nested(cls: type[Any], value: Any, where: str) -> Any:
    return build(cls, _table(value, where), where)


def _items(converter: _Converter, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise UserError(f"{where} must be a list, not {shown(value)}")
    return tuple(converter(item, where) for item in value)


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST:
        raise UserError(f"{where} must be a whole number {_BOUNDS}, not {shown(value)}")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value <= LARGEST:
        raise UserError(f"{where} must be a number {_BOUNDS}, not {shown(value)}")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{where} must be text, not {shown(value)}")
    mark = unshowable(value)
    if mark is not None:
        raise UserError(f"{where} holds {mark!r}, which no terminal can show")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{where} must be true or false, not {shown(value)}")
    return value


def _table(value: Any, where: str) -> Facts:
    if not isinstance(value, dict):
        raise UserError(f"{where} must be a table, not {shown(value)}")
    return value


def require_positive(entry: Any, where: str, *fields: str) -> None:
    """Raises `UserError` where one of the numeric fields is zero."""
    for field in fields:
        if not getattr(entry, field) > 0:
            raise UserError(f"{where}: {field} must be above 0")
