"""The server's journal during a run: followed from its start, joined at its end."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

from headroom_bench.experiments.serving import STARTED
from headroom_bench.journal.join import JoinReport, ServerTimings, join
from headroom_bench.journal.sources import parse_source
from headroom_bench.journal.tail import JournalTail
from headroom_bench.judge.verdict import Load
from headroom_bench.records import JournalRecord, JournalSample, RequestRecord
from headroom_bench.results.reading import read_rows
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.results.statistics import busy_seconds, seconds_at_level

Row = TypeVar("Row", JournalRecord, JournalSample)

SETTLE_S = 2.0
"""How long a server's log may lag behind its answers."""


@dataclass(frozen=True, slots=True)
class EarlierJournal:
    """What a former part of a run wrote down of the server's journal, not joined to anything."""

    records: list[JournalRecord] = field(default_factory=list)
    samples: list[JournalSample] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path) -> EarlierJournal:
        """Raises `UserError` for files that cannot be read."""
        records = _rows_of(JournalRecord, folder / "journal.jsonl")
        for record in records:
            record.request_id, record.join_method, record.ambiguous = None, "none", False
        return cls(records, _rows_of(JournalSample, folder / "journal_samples.jsonl"))


def _rows_of(kind: type[Row], path: Path) -> list[Row]:
    known = {each.name for each in fields(kind)}
    rows = read_rows(path) if path.exists() else ()
    return [kind(**{key: value for key, value in row.items() if key in known}) for row in rows]


@dataclass(slots=True)
class JournalWatch:
    """A journal that is being followed; `conclude` after `close`."""

    tail: JournalTail
    records: list[JournalRecord] = field(default_factory=list)
    samples: list[JournalSample] = field(default_factory=list)
    earlier: EarlierJournal = field(default_factory=lambda: EarlierJournal())

    @classmethod
    def open(
        cls,
        source: str | None,
        started_log: Path | None,
        warn: Callable[[str], None],
        earlier: EarlierJournal,
    ) -> JournalWatch | None:
        """Follows a source; None without one, or when `started` names no server of ours.

        `earlier` is what was read of it in a former part of the run; the log of a server of ours is
        read from its beginning anyway.

        Raises:
            UserError: the source is not one that can be read.
        """
        if source is None:
            return None
        if source == STARTED:
            if started_log is None:
                warn("the journal `started` needs a server that the run starts; none is read")
                return None
            path, from_end = started_log, False
        else:
            path, from_end = parse_source(source), True
        tail = JournalTail(path, source, from_end=from_end)
        tail.start()
        return cls(tail, earlier=EarlierJournal() if source == STARTED else earlier)

    def close(self, expected: int) -> None:
        """Waits until the journal has told of `expected` answers (or long enough), and ends."""
        records, samples = self.tail.stop(expected=expected, settle_s=SETTLE_S)
        before = self.earlier
        lives = 1 + max((record.instance for record in before.records), default=-1)
        self.records = [
            *before.records, *(replace(each, instance=each.instance + lives) for each in records)
        ]  # fmt: skip
        self.samples = [
            *before.samples, *(replace(each, instance=each.instance + lives) for each in samples)
        ]  # fmt: skip

    def conclude(
        self,
        requests: Sequence[RequestRecord],
        folder: RunFolder,
        window_s: tuple[float, float],
        slots: int | None,
        warn: Callable[[str], None],
    ) -> Load:
        """Joins, writes journal.jsonl, and returns how busy the server's own clock says it was
        between two moments of the run's clock. `slots`: how many the server says that it has."""
        asked = [timings for record in requests if (timings := server_timings(record))]
        report = join(self.records, asked)
        folder.write_rows("journal.jsonl", self.records)
        if self.samples:
            folder.write_rows("journal_samples.jsonl", self.samples)
        folder.write_json("journal_join.json", _as_row(report))
        if not report.may_print_server_rates and asked:
            warn(
                f"only {report.matched} of {report.requests} requests were found in the journal: "
                "the server's own figures are not used"
            )
            return Load()
        return load_within(self.records, requests, *window_s, slots)


def server_timings(record: RequestRecord) -> ServerTimings | None:
    """The exact key of an answer that carried the server's final `timings`.

    One that was cut off has the running ones of its last event at best: no key.
    """
    if not record.ok:
        return None
    prompt, cached = record.prompt_tokens, record.cached_tokens
    prefill_s, decode_s = record.server_prefill_s, record.server_decode_s
    if prompt is None or cached is None or prefill_s is None or decode_s is None:
        return None
    return ServerTimings(
        request_id=record.request_id,
        prompt_n=prompt - cached,
        cache_n=cached,
        prompt_ms=prefill_s * 1e3,
        predicted_n=record.completion_tokens or 0,
        predicted_ms=decode_s * 1e3,
    )


def _as_row(report: JoinReport) -> dict[str, object]:
    return {
        "requests": report.requests,
        "matched": report.matched,
        "matched_share": report.matched_share,
        "ambiguous": report.ambiguous,
        "unmatched_requests": list(report.unmatched_requests),
        "records": report.records,
        "unmatched_records": report.unmatched_records,
        "unmatched_token_share": report.unmatched_token_share,
    }


def load_within(
    journal: Iterable[JournalRecord],
    requests: Iterable[RequestRecord],
    from_s: float,
    to_s: float,
    slots: int | None = None,
) -> Load:
    """How busy the server was between two moments of the run's clock, and how long all of its slots
    were taken, where it says how many it has.

    Joined records tell how far each life of the server's clock is from the run's; lives without any
    are left out, and nothing is known where there is none.
    """
    spans = [
        (each, each.t_launch_s, each.t_server_s)
        for each in journal
        if each.t_launch_s is not None and each.t_server_s is not None
    ]
    ends = {request.request_id: request.end_s for request in requests}
    shifts: dict[int, list[float]] = {}
    for each, _, ended_s in spans:
        end_s = ends.get(each.request_id or "")
        if end_s is not None:
            shifts.setdefault(each.instance, []).append(end_s - ended_s)
    if not shifts or to_s <= from_s:
        return Load()
    by = {instance: statistics.median(known) for instance, known in shifts.items()}
    within = [
        (max(from_s, began_s + by[each.instance]), min(to_s, ended_s + by[each.instance]))
        for each, began_s, ended_s in spans
        if each.instance in by
    ]
    within = [(low, high) for low, high in within if low < high]
    window_s = to_s - from_s
    return Load(
        busy_share=min(1.0, busy_seconds(within) / window_s),
        all_slots_share=min(1.0, seconds_at_level(within, slots) / window_s) if slots else None,
    )
