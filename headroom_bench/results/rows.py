"""Rows as lines of JSON Lines files.

The text is strict JSON: keys in the order of the columns, floats with the fewest digits that read
back as the same number, no NaN or infinity, UTF-8.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Protocol

import msgspec

from headroom_bench.records import JournalRecord, JournalSample, RequestRecord
from headroom_bench.redaction import holds_secret, redacted


class Row(Protocol):
    """What makes a line of a JSON Lines file."""

    def as_row(self) -> dict[str, Any]: ...


_VALUES_OF: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    kind: attrgetter(*(field.name for field in fields(kind)))
    for kind in (RequestRecord, JournalRecord, JournalSample)
}
"""All values of rows whose fields are their columns: to make a mapping of them takes longer than
the line itself."""

_encode = msgspec.json.Encoder().encode
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def line_of(row: Row) -> bytes:
    """A row with its line end, without secrets that a server may have quoted.

    Raises:
        ValueError: a value is NaN or infinite. TypeError: one is no JSON.
    """
    try:
        if values_of := _VALUES_OF.get(type(row)):
            line, values = _encode(row), values_of(row)
        else:
            columns = row.as_row()
            line, values = _encode(columns), tuple(columns.values())
    except (UnicodeEncodeError, TypeError):  # half a surrogate pair; a number of NumPy's
        return _careful_line(row)
    # NaN and infinity come out as null, too. So may be what a text holds: then it takes a look.
    if line.count(b"null") != values.count(None) or holds_secret(line):
        return _careful_line(row)
    return line + b"\n"


def _careful_line(row: Row) -> bytes:
    """The same for every row that there may be, at five times the cost."""
    return encoded(compact_json(redacted(row.as_row())) + "\n")


def compact_json(row: Mapping[str, Any]) -> str:
    return _compact.encode(row)


def encoded(text: str) -> bytes:
    """UTF-8; half of a surrogate pair, which a server may send, as the escape that JSON has."""
    return text.encode("utf-8", "backslashreplace")
