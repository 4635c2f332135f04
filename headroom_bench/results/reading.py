"""Reading runs back, finished or not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headroom_bench.errors import UserError
from headroom_bench.records import JournalRecord, JournalSample, RequestRecord

_decode = msgspec.json.Decoder().decode

Record = TypeVar("Record", RequestRecord, JournalRecord, JournalSample)
_MOST_DIGITS = 18
_MOST_SHOWN_DIGITS = 1000
"""Python refuses to read some thousands."""
_LONG_NUMBER = re.compile(rb"\d{%d}" % (_MOST_DIGITS + 1))


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of a run folder.

    Raises:
        UserError: the folder holds none, or it is not readable.
    """
    path = run / "manifest.json"
    if not path.exists():
        raise UserError(f"{run} is not a run: it holds no manifest.json")
    return read_json(path)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises `UserError` where it is none."""
    try:
        read = json.loads(
            path.read_bytes(), parse_float=_finite, parse_int=_int, parse_constant=_refused
        )
    except (OSError, ValueError, RecursionError) as why:
        raise UserError(f"{path} cannot be read: {why}") from None
    if not isinstance(read, dict):
        raise UserError(f"{path} cannot be read: it is not a JSON object")
    return read


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON Lines file; a last line that was cut short is left out. What is no finite
    number (NaN, as other programs write it) is None: not known.

    Raises:
        UserError: unreadable, or a line before the last is not JSON.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as why:
        raise UserError(f"{path} cannot be read: {why.strerror}") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = _loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):  # no newline after it: the run was killed while writing
                return
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}:{number}: is not a JSON record")
        yield row


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number that is too large")
    return value


def _int(text: str) -> int:
    if len(text) > _MOST_SHOWN_DIGITS:
        raise ValueError("a number of too many digits")
    return int(text)


def _whole(text: str) -> float:
    """No count of ours has so many digits: as a float it is refused where a count is wanted."""
    return int(text) if len(text) <= _MOST_DIGITS else _finite(text)


def _refused(text: str) -> None:
    raise ValueError(f"{text} is no number")


def _unknown(_: str) -> None:
    """NaN and infinities."""


def _loads(line: bytes) -> Any:
    """Raises ValueError for what is no JSON."""
    if _LONG_NUMBER.search(line) is None:
        try:
            return _decode(line)
        except ValueError:  # perhaps for what only Python takes: half of a surrogate pair, NaN
            pass
    return json.loads(line, parse_float=_finite, parse_int=_whole, parse_constant=_unknown)


def typed_rows(path: Path, kind: type[Record]) -> Iterator[Record]:
    """The rows of a JSON Lines file as records of a kind; columns of a later version are left out.

    Raises:
        UserError: as `read_rows` does, or a row lacks a column or holds a value of another type.
    """
    for number, row in enumerate(read_rows(path), start=1):
        try:
            yield msgspec.convert(row, kind)
        except msgspec.ValidationError as why:
            told, _, where = str(why).partition(" - at ")
            column = where.strip("`").removeprefix("$.")
            raise UserError(
                f"{path}: record {number}: {f'{column}: ' if column else ''}{told}"
            ) from None


def read_requests(run: Path, world: str = "measured") -> list[RequestRecord]:
    """The request records of a run, in the order in which they ended. Raises as `typed_rows`."""
    name = "requests.jsonl" if world == "measured" else "predicted.jsonl"
    return list(typed_rows(run / name, RequestRecord))
