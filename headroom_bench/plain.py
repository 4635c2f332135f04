"""Frozen data to plain JSON values and back, so that a run's settings can be read again."""

from __future__ import annotations

import dataclasses
import math
import sys
import types
import typing
from typing import Any, TypeVar

from headroom_bench.errors import UserError

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses as objects of their fields, tuples as lists, infinity as the text `inf`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def from_plain(kind: type[T], value: Any, where: str) -> T:
    """What `to_plain` made of a `kind`: dataclasses of dataclasses, tuples, lists, dicts, literals,
    numbers, texts, and None where the type allows it. Unknown fields are left out.

    Raises:
        UserError: the value has another shape; `where` and the path in it are named.
    """
    made: T = _read(kind, value, where)
    return made


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        return _read(next(arm for arm in inside if arm is not type(None)), value, where)
    if origin is typing.Literal:
        if value in inside:
            return value
    elif origin is tuple and isinstance(value, list):
        kinds = [inside[0]] * len(value) if inside[-1] is ... else list(inside)
        if len(kinds) == len(value):
            pairs = enumerate(zip(kinds, value, strict=True))
            return tuple(_read(each, item, f"{where}[{at}]") for at, (each, item) in pairs)
    elif origin is list and isinstance(value, list):
        return [_read(inside[0], item, f"{where}[{at}]") for at, item in enumerate(value)]
    elif origin is dict and isinstance(value, dict):
        return {key: _read(inside[1], item, f"{where}.{key}") for key, item in value.items()}
    elif dataclasses.is_dataclass(kind) and isinstance(value, dict):
        return _read_fields(kind, value, where)
    elif kind is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        if value in ("inf", "-inf") or (not isinstance(value, str) and _is_finite(value)):
            return float(value)
    elif isinstance(kind, type) and type(value) is kind:
        return value
    raise UserError(f"{where}: {value!r:.80} is not what a run writes there")


def _is_finite(value: float) -> bool:
    return -sys.float_info.max <= value <= sys.float_info.max


def _read_fields(kind: Any, value: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    given = {}
    for field in dataclasses.fields(kind):
        if field.name in value:
            read = _read(hints[field.name], value[field.name], f"{where}.{field.name}")
            given[field.name] = read
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UserError(f"{where}: {field.name} is missing")
    return kind(**given)
