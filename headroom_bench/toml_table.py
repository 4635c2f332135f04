"""TOML files read so that a mistake is told with its file, line and field."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headroom_bench.errors import UserError


class Table:
    """One table of a TOML file. Getters check types; `done()` refuses fields nobody asked for."""

    def __init__(self, data: Mapping[str, Any], path: Path, text: str, prefix: str = "") -> None:
        self._data = dict(data)
        self._path = path
        self._text = text
        self._prefix = prefix
        self._used: set[str] = set()

    @property
    def path(self) -> Path:
        return self._path

    @property
    def source_text(self) -> str:
        """The whole file, for finding lines."""
        return self._text

    def as_dict(self) -> dict[str, Any]:
        return dict(self._data)

    def __contains__(self, field: str) -> bool:
        return field in self._data

    def error(self, field: str, problem: str) -> UserError:
        """A `UserError` that says where `field` stands."""
        line = self._line_of(field)
        where = f"{self._path}:{line}" if line else str(self._path)
        return UserError(f"{where}: {self._prefix}{field}: {problem}")

    def _line_of(self, field: str) -> int | None:
        pattern = re.compile(rf"(?:^|[{{,\s.\"']){re.escape(field)}[\"']?\s*=")
        header = re.compile(rf"^\s*\[+\s*{re.escape(self._prefix + field)}\s*\]+")
        opened = re.compile(rf"^\s*\[+\s*{re.escape(self._prefix.rstrip('.'))}\s*\]+")
        inside = not self._prefix
        for number, line in enumerate(self._text.splitlines(), start=1):
            if header.search(line):
                return number
            inside = inside or bool(opened.search(line)) or self._prefix.rstrip(".") in line
            if inside and pattern.search(line):
                return number
        return None

    def _get(self, field: str, kinds: tuple[type, ...], wanted: str, default: Any) -> Any:
        self._used.add(field)
        if field not in self._data:
            if default is ...:
                raise self.error(field, f"is missing; give {wanted}")
            return default
        value = self._data[field]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.error(field, f"{value!r} is not {wanted}")
        return value

    def text(self, field: str, default: Any = ...) -> Any:
        return self._get(field, (str,), "a text in quotes", default)

    def flag(self, field: str, default: Any = ...) -> Any:
        return self._get(field, (bool,), "true or false", default)

    def number(
        self, field: str, default: Any = ..., *, least: float = 0.0, most: float = float("inf")
    ) -> Any:
        value = self._get(field, (int, float), "a number", default)
        if value is not default and not least <= value <= most:
            bounds = f"at least {least:g}" if most == float("inf") else f"{least:g} to {most:g}"
            raise self.error(field, f"{value!r} is out of range; it must be {bounds}")
        return value

    def whole(self, field: str, default: Any = ..., *, least: int = 0) -> Any:
        value = self._get(field, (int,), "a whole number", default)
        if value is not default and value < least:
            raise self.error(field, f"{value!r} is out of range; it must be at least {least}")
        return value

    def choice(self, field: str, options: Iterable[str], default: Any = ...) -> Any:
        allowed = tuple(options)
        value = self._get(field, (str,), f"one of {', '.join(allowed)}", default)
        if value is not default and value not in allowed:
            raise self.error(field, f"{value!r} is not one of {', '.join(allowed)}")
        return value

    def texts(self, field: str, default: Any = ...) -> Any:
        value = self._get(field, (list,), "a list of texts", default)
        if value is not default and not all(isinstance(item, str) for item in value):
            raise self.error(field, f"{value!r} is not a list of texts")
        return value

    def table(self, field: str) -> Table | None:
        value = self._get(field, (dict,), "a table", None)
        if value is None:
            return None
        return Table(value, self._path, self._text, f"{self._prefix}{field}.")

    def tables(self, field: str) -> Iterator[Table]:
        value = self._get(field, (list,), f"tables headed [[{field}]]", [])
        for item in value:
            if not isinstance(item, dict):
                raise self.error(field, f"{item!r} is not a table headed [[{field}]]")
            yield Table(item, self._path, self._text, f"{self._prefix}{field}.")

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
        UserError: unreadable, not UTF-8, or not TOML (with line and column).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as why:
        raise UserError(f"{path}: cannot be read: {why.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path}: is not UTF-8 text") from None
    return parse_toml(text, path)


def parse_toml(text: str, path: Path) -> Table:
    """The root table of a TOML text; `path` names it in errors."""
    try:
        return Table(tomllib.loads(text), path, text)
    except tomllib.TOMLDecodeError as why:
        raise UserError(f"{path}: is not valid TOML: {why}") from None
