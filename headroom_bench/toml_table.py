"""TOML files read so that a mistake is told with its file, line and field."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from headroom_bench.errors import UserError, unshowable
from headroom_bench.units import shown, spelled

T = TypeVar("T")
Check = Callable[[str], object]
"""Looks a name up. Raises `UserError` for one that does not exist."""
LARGEST = 1e12
"""No number of a file means anything beyond it, and what is computed with it stays finite."""

_MOST_BYTES = 2**20
"""Of a file: nobody writes so much by hand."""

Key = tuple[str | int, ...]
"""Where a value stands: names of fields and tables, and places in arrays (0-based)."""
Places = Mapping[Key, tuple[Path, int]]
"""File and line of every key."""


class Table:
    """One table of a TOML file. Getters check types; `done()` refuses fields nobody asked for.

    Getters take `default`; without one the field must be there. All raise UserError.
    """

    def __init__(
        self, data: Mapping[str, Any], path: Path, places: Places, own: Key = (), label: str = ""
    ) -> None:
        self._data = dict(data)
        self._path = path
        self._places = places
        self._own = own
        self._label = label
        self._used: set[str] = set()

    @property
    def path(self) -> Path:
        return self._path

    def as_dict(self) -> dict[str, Any]:
        return dict(self._data)

    def __contains__(self, field: str) -> bool:
        return field in self._data

    def error(self, field: str, problem: str) -> UserError:
        """A `UserError` that says where `field` stands."""
        return UserError(f"{self.place(field)}: {problem}")

    def told(self, field: str, look: Callable[[], T]) -> T:
        """What `look` finds; what it finds wrong is told with the place of `field`."""
        try:
            return look()
        except UserError as why:
            raise self.error(field, str(why)) from None

    def place(self, field: str) -> str:
        """File, line and name of a field, for a reader; the line of its table where the field is
        missing."""
        key: Key = (*self._own, field)
        while key and key not in self._places:
            key = key[:-1]
        path, line = self._places.get(key, (self._path, 0))
        where = f"{path}:{line}" if line else str(path)
        return f"{where}: {self._label}{field}"

    def overlaid(self, over: Table, deep: Iterable[str]) -> Table:
        """This root table with the fields of `over` in place of its own; tables named in `deep` are
        merged field by field. Errors tell the file that a field came from."""
        deep = set(deep)
        data = self.as_dict()
        places = dict(self._places)
        for field, value in over.as_dict().items():
            mine = data.get(field)
            if field in deep and isinstance(value, dict) and isinstance(mine, dict):
                data[field] = {**mine, **value}
            else:
                data[field] = value
                places = {key: place for key, place in places.items() if key[:1] != (field,)}
        depth = len(over._own)
        for key, place in over._places.items():
            if key[:depth] == over._own and len(key) > depth:
                places[key[depth:]] = place
        return Table(data, self._path, places)

    def _get(self, field: str, kinds: tuple[type, ...], wanted: str, default: Any) -> Any:
        self._used.add(field)
        if field not in self._data:
            if default is ...:
                raise self.error(field, f"is missing; give {wanted}")
            return default
        value = self._data[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(field, f"{shown(value)} is not {wanted}")
        return value

    def text(self, field: str, default: Any = ..., *, empty: bool = False) -> Any:
        """A text that can be shown; `empty`: it may hold nothing."""
        value = self._get(field, (str,), "a text in quotes", default)
        if value is default:
            return value
        if not empty and not value.strip():
            raise self.error(field, "is empty; leave it out where nothing is meant")
        mark = unshowable(value)
        if mark is not None:
            raise self.error(field, f"holds {mark!r}, which no terminal can show")
        return value

    def name(self, field: str, check: Check | None) -> str | None:
        """A name, where there is one, that `check` knows."""
        value: str | None = self.text(field, None)
        if value is not None and check is not None:
            self.told(field, partial(check, value))
        return value

    def flag(self, field: str, default: Any = ...) -> Any:
        return self._get(field, (bool,), "true or false", default)

    def number(
        self, field: str, default: Any = ..., *, least: float = 0.0, most: float = LARGEST
    ) -> Any:
        """A number within the bounds."""
        value = self._get(field, (int, float), "a number", default)
        self._check_range(field, value, default, least, most)
        return value

    def whole(
        self, field: str, default: Any = ..., *, least: int = 0, most: float = LARGEST
    ) -> Any:
        value = self._get(field, (int,), "a whole number", default)
        self._check_range(field, value, default, least, most)
        return value

    def _check_range(self, field: str, value: Any, default: Any, least: float, most: float) -> None:
        if value is default or least <= value <= most:
            return
        open_ended = most == LARGEST and not value > most
        low, high = spelled(least), spelled(most)
        bounds = f"at least {low}" if open_ended else f"{low} to {high}"
        raise self.error(field, f"{shown(value)} is out of range; it must be {bounds}")

    def choice(self, field: str, options: Iterable[str], default: Any = ...) -> Any:
        allowed = tuple(options)
        value = self._get(field, (str,), f"one of {', '.join(allowed)}", default)
        if value is not default and value not in allowed:
            raise self.error(field, f"{shown(value)} is not one of {', '.join(allowed)}")
        return value

    def texts(self, field: str, default: Any = ...) -> Any:
        value = self._get(field, (list,), "a list of texts", default)
        if value is not default and not all(isinstance(item, str) for item in value):
            raise self.error(field, f"{shown(value)} is not a list of texts")
        return value

    def table(self, field: str) -> Table | None:
        """The table in `field`; None where there is none."""
        value = self._get(field, (dict,), "a table", None)
        return None if value is None else self._below(value, field)

    def tables(self, field: str) -> Iterator[Table]:
        """The tables of an array; nothing where there is none."""
        value = self._get(field, (list,), f"tables headed [[{field}]]", [])
        for number, item in enumerate(value):
            if not isinstance(item, dict):
                raise self.error(field, f"{shown(item)} is not a table headed [[{field}]]")
            yield self._below(item, field, number)

    def _below(self, data: Mapping[str, Any], *key: str | int) -> Table:
        label = f"{self._label}{key[0]}."
        return Table(data, self._path, self._places, (*self._own, *key), label)

    def raw(self, field: str) -> Any:
        """The value as it stands, for fields whose shape the caller checks."""
        self._used.add(field)
        return self._data.get(field)

    def done(self) -> None:
        """Refuses fields that nobody read: they are most likely misspelt."""
        for field in self._data:
            if field not in self._used:
                known = ", ".join(sorted(self._used))
                raise self.error(field, f"is not a field here; known are {known}")


def read_toml(path: Path) -> Table:
    """The root table of a TOML file.

    Raises:
        UserError: unreadable, too large, not UTF-8, or not TOML (with its line).
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path}: is larger than {_MOST_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as why:
        raise UserError(f"{path}: cannot be read: {why.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None
    return parse_toml(text, path)


def parse_toml(text: str, path: Path) -> Table:
    """The root table of a TOML text; `path` names it in errors."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{path}: is not valid TOML: nested too deep") from None
    except ValueError as why:  # its own error, or a number of thousands of digits
        told = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(why), re.DOTALL)
        last = text.count("\n") + 1
        line, problem = (told[2], told[1]) if told else (last, str(why))
        raise UserError(f"{path}:{line}: is not valid TOML: {problem}") from None
    return Table(data, path, {key: (path, line) for key, line in _Lines(text).found.items()})


_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r]+|\#[^\n]*)
    |(?P<quoted>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<mark>[\[\]{}=,.\n])
    |(?P<bare>[^\s\[\]{}=,.\#"']+)""",
    re.DOTALL | re.VERBOSE,
)


class _Lines:
    """The line of every key of a TOML text that is known to be valid: `tomllib` tells none."""

    def __init__(self, text: str) -> None:
        self.found: dict[Key, int] = {}
        self._tokens: list[tuple[str, int]] = []
        line = 1
        for match in _TOKEN.finditer(text):
            if match.lastgroup != "skip":
                self._tokens.append((match[0], line))
            line += match[0].count("\n")
        self._at = 0
        self._read()

    def _peek(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _note(self, key: Key) -> Key:
        self.found.setdefault(key, self._tokens[self._at][1])
        return key

    def _read(self) -> None:
        table: Key = ()
        arrays: Counter[Key] = Counter()
        while (token := self._peek()) != "":
            if token == "\n":
                self._at += 1
            elif token == "[":
                table = self._header(arrays)
            else:
                self._pair(table)

    def _header(self, arrays: Counter[Key]) -> Key:
        start = self._at
        many = self._tokens[start + 1][0] == "["
        self._at += 2 if many else 1
        names = self._names("]")
        after, self._at = self._at + (2 if many else 1), start
        key: Key = ()
        for depth, name in enumerate(names):
            key = self._note((*key, name))
            if many and depth == len(names) - 1:
                arrays[key] += 1
            if key in arrays:
                key = self._note((*key, arrays[key] - 1))
        self._at = after
        return key

    def _names(self, end: str) -> list[str]:
        """The parts of a dotted key; stops at `end`."""
        names = []
        while (token := self._peek()) != end:
            if token != ".":
                names.append(
                    str(tomllib.loads(f"k = {token}")["k"]) if token[0] in "\"'" else token
                )
            self._at += 1
        return names

    def _pair(self, table: Key) -> None:
        start = self._at
        names = self._names("=")
        after, self._at = self._at + 1, start
        key = table
        for name in names:
            key = self._note((*key, name))
        self._at = after
        self._value(key)

    def _value(self, key: Key) -> None:
        opening = self._peek()
        if opening not in ("[", "{"):
            while self._peek() not in ("", "\n", ",", "]", "}"):
                self._at += 1
            return
        self._at += 1
        number = 0
        while (token := self._peek()) not in ("]", "}"):
            if token in (",", "\n"):
                self._at += 1
            elif opening == "{":
                self._pair(key)
            else:
                self._value(self._note((*key, number)))
                number += 1
        self._at += 1
