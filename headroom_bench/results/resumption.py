"""An unfinished run folder made fit to go on with: torn ends cut, unfinished talks set aside."""

from __future__ import annotations

import json
from collections.abc import Container
from dataclasses import replace
from pathlib import Path

from headroom_bench.errors import UserError
from headroom_bench.records import RequestRecord
from headroom_bench.results import token_times
from headroom_bench.results.reading import read_requests, typed_rows
from headroom_bench.results.run_folder import RunFolder

REQUESTS = "requests.jsonl"
UNFINISHED = "requests.unfinished.jsonl"
"""Where records of conversations that are held again go: they were measured, and their ids come
again."""

Talk = tuple[str, int, str]
"""Persona, user, conversation id."""


def talk_of(record: RequestRecord) -> Talk:
    return record.persona, record.user, record.conversation_id


def mend(folder: RunFolder) -> list[RequestRecord]:
    """Cuts what a kill left half written off the ends of all files; returns the whole records.

    Raises:
        UserError: a file cannot be read or written, or is damaged elsewhere than at its end.
    """
    requests, tokens = folder.path / REQUESTS, folder.path / "tokens.bin"
    try:
        for rows in (requests, folder.path / UNFINISHED):
            if rows.exists():
                _end_line(rows)
        if tokens.exists():
            _cut(tokens, token_times.whole_bytes(tokens.read_bytes()))
    except OSError as why:
        raise UserError(f"{folder.path} cannot be mended: {why.strerror}") from None
    except ValueError:
        raise token_times.damaged(tokens) from None
    return read_requests(folder.path) if requests.exists() else []


def without_twins(folder: RunFolder, records: list[RequestRecord]) -> list[RequestRecord]:
    """The records, each request's once; the file too, if one stood there twice.

    Raises:
        UserError: the file cannot be written.
    """
    first: dict[str, RequestRecord] = {}
    for record in records:
        first.setdefault(record.request_id, record)
    if len(first) < len(records):
        folder.write_rows(REQUESTS, first.values())
    return list(first.values())


def _end_line(path: Path) -> None:
    """Cuts a torn last line off; one that lacks but its end gets it."""
    data = path.read_bytes()
    last = data[data.rfind(b"\n") + 1 :]
    if not last:
        return
    try:
        json.loads(last)
    except ValueError:
        _cut(path, len(data) - len(last))
    else:
        with path.open("ab") as out:
            out.write(b"\n")


def _cut(path: Path, size: int) -> None:
    with path.open("r+b") as out:
        out.truncate(size)


def set_aside(
    folder: RunFolder, records: list[RequestRecord], unfinished: Container[Talk]
) -> list[RequestRecord]:
    """Moves the records of unfinished conversations to `requests.unfinished.jsonl` and drops their
    token times; returns the others. Whatever interrupts it, no record is lost.

    Raises:
        UserError: a file cannot be read or written.
    """
    aside = [record for record in records if talk_of(record) in unfinished]
    kept = [record for record in records if talk_of(record) not in unfinished]
    if not aside:
        return kept
    tokens = folder.path / "tokens.bin"
    names = {record.request_id for record in aside}
    folder.append_rows(UNFINISHED, aside)
    try:
        if tokens.exists():
            left = [
                token_times.encode(name, times)
                for name, times in token_times.read(tokens)
                if name not in names
            ]
            half = tokens.with_suffix(".bin.new")
            half.write_bytes(b"".join([token_times.MAGIC, *left]))
            half.replace(tokens)
    except OSError as why:
        raise UserError(f"{folder.path} cannot be taken up: {why.strerror}") from None
    folder.write_rows(REQUESTS, kept)
    return kept


def all_set_aside(folder: RunFolder, kept: list[RequestRecord]) -> list[RequestRecord]:
    """What `set_aside` moved away, now and at former resumptions. The server worked on it in the
    run's time; an id is followed by `/N`, since it came again. A resumption that was killed may
    have left a record here twice, or among the `kept` too: each counts once.

    Raises:
        UserError: the file cannot be read.
    """
    path = folder.path / UNFINISHED
    rows = typed_rows(path, RequestRecord) if path.exists() else ()
    found = {_asked(record): record for record in rows}
    for record in kept:
        found.pop(_asked(record), None)
    return [
        replace(record, request_id=f"{record.request_id}/{n}")
        for n, record in enumerate(found.values())
    ]


def _asked(record: RequestRecord) -> tuple[str, float]:
    """Tells a request from the one that came again under its id."""
    return record.request_id, record.started_at_s


def latest_s(records: list[RequestRecord]) -> float:
    """When the last of them ended, on the run's clock, life seconds; 0 without any."""
    ends = (r.started_at_s if r.end_s is None else r.end_s for r in records)
    return max(ends, default=0.0)
