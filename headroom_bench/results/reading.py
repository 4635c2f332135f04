"""Reading runs back, finished or not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headroom_bench.errors import UserError
from headroom_bench.records import REQUEST_COLUMNS, RequestRecord

if TYPE_CHECKING:
    import pandas as pd

_decode = msgspec.json.Decoder().decode


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
        read = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as why:
        raise UserError(f"{path} cannot be read: {why}") from None
    if not isinstance(read, dict):
        raise UserError(f"{path} cannot be read: it is not a JSON object")
    return read


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a JSON Lines file; a last line that was cut short is left out.

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
            row = _parsed(line)
        except ValueError:
            if number == len(lines):  # no newline after it: the run was killed while writing
                return
            row = None
        if not isinstance(row, dict):
            raise UserError(f"{path}:{number}: is not a JSON record")
        yield row


def _parsed(line: bytes) -> Any:
    """Raises ValueError for what is no JSON."""
    try:
        return _decode(line)
    except ValueError:  # perhaps for what only Python takes: half of a surrogate pair, NaN
        return json.loads(line)


def read_requests(run: Path, world: str = "measured") -> list[RequestRecord]:
    """The request records of a run, in the order in which they ended.

    Columns of a later version are left out. Raises UserError for a row that is no request record.
    """
    path = run / ("requests.jsonl" if world == "measured" else "predicted.jsonl")
    known = set(REQUEST_COLUMNS)
    records: list[RequestRecord] = []
    for row in read_rows(path):
        try:
            if not row.keys() <= known:
                row = {key: value for key, value in row.items() if key in known}
            record = RequestRecord(**row)
        except TypeError:
            raise UserError(f"{path}: record {len(records) + 1} lacks columns") from None
        records.append(record)
    return records


def requests_frame(run: Path, world: str = "measured") -> pd.DataFrame:
    """The same as a frame: one row a request, columns `REQUEST_COLUMNS`."""
    import pandas as pd

    rows = [record.as_row() for record in read_requests(run, world)]
    return pd.DataFrame(rows, columns=list(REQUEST_COLUMNS))
