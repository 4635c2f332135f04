"""From a table of plain facts to frozen records, and from what a user types to one of them."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from headroom_bench.errors import UserError, unknown_name, unshowable

T = TypeVar("T")
Facts = Mapping[str, Any]
"""An open table of facts that no equation reads."""

_DATA = Path(__file__).parent / "data"
_REQUIRED = dataclasses.MISSING
_MOST_TOML_BYTES = 1 << 20


@functools.cache
def read_data(file: str) -> dict[str, Any]:
    """One of the package's own data files, parsed once."""
    data: dict[str, Any] = json.loads((_DATA / file).read_text("utf-8"))
    return data


def read_toml(path: Path) -> dict[str, Any]:
    """A user's own entry. Raises `UserError` where the file cannot be read as TOML."""
    import tomllib  # few commands read a user's own file

    try:
        if path.stat().st_size > _MOST_TOML_BYTES:
            raise UserError(f"{path}: is too large for an entry of the catalogue")
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{path}: cannot be read as TOML: it is nested too deep") from None
    except ValueError as error:  # not UTF-8, not TOML, or a number of thousands of digits
        raise UserError(f"{path}: cannot be read as TOML: {error!s:.120}") from None


def build(cls: type[T], facts: Facts, where: str) -> T:
    """The record `cls` made of `facts`.

    Raises `UserError`, naming `where` and the field, for a field that is unknown, missing, of the
    wrong type, negative or not finite.
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
        raise UserError(f"{where} must be a list, not {value!r}")
    return tuple(converter(item, where) for item in value)


def _whole(value: Any, where: str) -> int:
    if type(value) is not int or value < 0:
        raise UserError(f"{where} must be a whole number of 0 or more, not {value!r}")
    return value


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise UserError(f"{where} must be a number of 0 or more, not {value!r}")
    return float(value)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{where} must be text, not {value!r}")
    mark = unshowable(value)
    if mark is not None:
        raise UserError(f"{where} holds {mark!r}, which no terminal can show")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{where} must be true or false, not {value!r}")
    return value


def _table(value: Any, where: str) -> Facts:
    if not isinstance(value, dict):
        raise UserError(f"{where} must be a table, not {value!r}")
    return value


def require_positive(entry: Any, where: str, *fields: str) -> None:
    """Raises `UserError` where one of the numeric fields is zero."""
    for field in fields:
        if not getattr(entry, field) > 0:
            raise UserError(f"{where}: {field} must be above 0")


# ---- names --------------------------------------------------------------------------------------

_VENDOR_WORDS = re.compile(r"\b(nvidia|geforce|amd|apple|intel|meta)\b")
_OWNER = re.compile(r"^[\w.-]+/")
_PARTS = {"hardware": "hardware", "quantization": "quants"}
"""What `headroom-bench catalog` calls them, where it is not the plain plural."""
_CHAT_SUFFIX = re.compile(r"(instruct|chat|it|gguf)$")


def squash(name: str) -> str:
    """A name without case, punctuation, spaces, vendor words and the `owner/` in front."""
    short = _OWNER.sub("", name.lower().strip())
    plain = re.sub(r"[^a-z0-9]", "", _VENDOR_WORDS.sub("", short))
    return plain or re.sub(r"[^a-z0-9]", "", short)


def slug(name: str) -> str:
    """The form that is offered to a user: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9.+_]+", "-", name.lower()).strip("-")


class Names:
    """Finds one entry by any of its names, or by a part of a name that only one entry has."""

    def __init__(self, what: str, names: Mapping[str, Iterable[str]]) -> None:
        """`names`: for each entry's id the other names that it goes by."""
        self._what = what
        self._exact: dict[str, str] = {}
        stripped: dict[str, str] = {}
        for key, others in names.items():
            for name in (key, *others):
                plain = squash(name)
                self._exact.setdefault(plain, key)
                stripped.setdefault(_CHAT_SUFFIX.sub("", plain), key)
        self._exact = {**stripped, **self._exact}
        self._ids = list(names)

    def find(self, name: str) -> str:
        """The id of the entry meant. Raises `UserError` for no entry or several."""
        wanted = squash(name)
        for form in (wanted, _CHAT_SUFFIX.sub("", wanted)):
            if form in self._exact:
                return self._exact[form]
        fits = {key for plain, key in self._exact.items() if len(wanted) > 1 and wanted in plain}
        if len(fits) == 1:
            return fits.pop()
        if fits:
            offer = ", ".join(sorted(fits)[:8])
            raise UserError(f"{self._what} {name!r} fits several; name one of {offer}")
        part = _PARTS.get(self._what, f"{self._what}s")
        hint = f" (headroom-bench catalog {part} lists them)"
        raise unknown_name(self._what, name, self._ids, hint)


def own_entry(name: str) -> Path | None:
    """The path that a user typed instead of a name; None for a name.

    Raises `UserError` where it looks like a path and there is no such file.
    """
    if not name.lower().endswith(".toml"):
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise UserError(f"file {name!r} does not exist")
    return path
