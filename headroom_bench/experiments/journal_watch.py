"""The server's journal during a run: followed from its start, joined at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from headroom_bench.experiments.server_clock import fill_queues, load_within
from headroom_bench.experiments.serving import STARTED
from headroom_bench.journal.join import JoinReport, ServerTimings, join
from headroom_bench.journal.sources import parse_source
from headroom_bench.journal.tail import JournalTail
from headroom_bench.judge.verdict import Load
from headroom_bench.records import JournalRecord, JournalSample, RequestRecord
from headroom_bench.results.reading import typed_rows
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.units import counted

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
    return list(typed_rows(path, kind)) if path.exists() else []


@dataclass(slots=True)
class JournalWatch:
    """A journal that is being followed; `conclude` after `close`."""

    tail: JournalTail
    records: list[JournalRecord] = field(default_factory=list)
    samples: list[JournalSample] = field(default_factory=list)
    earlier: EarlierJournal = field(default_factory=EarlierJournal)

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
        round_trip_s: float,
        warn: Callable[[str], None],
    ) -> Load:
        """Joins, writes journal.jsonl, and returns how busy the server's own clock says it was
        between two moments of the run's clock. What only the journal knows of a request (its queue,
        whether it was cut) is set there. `slots`: how many the server says that it has;
        `round_trip_s`: life seconds."""
        asked = [timings for record in requests if (timings := server_timings(record))]
        report = join(self.records, asked)
        mark_truncated(self.records, requests)
        folder.write_rows("journal.jsonl", self.records)
        if self.samples:
            folder.write_rows("journal_samples.jsonl", self.samples)
        folder.write_json("journal_join.json", _as_row(report))
        if self.tail.failure is not None:
            warn(
                f"the journal could not be followed to the end: {self.tail.failure}; "
                "what came after is not known"
            )
        if self.records and not asked and any(record.ok for record in requests):
            warn(
                f"the journal's {counted(len(self.records), 'answer')} cannot be told apart: what "
                "this server answers carries no times of its own to find them by"
            )
        if not report.may_print_server_rates and asked:
            other = self.records and all(r.gen_tokens is None for r in self.records)
            why = " (it has none of the lines that llama.cpp writes from b9305 on)" if other else ""
            warn(
                f"only {report.matched} of {report.requests} requests were found in the journal: "
                f"the server's own figures are not used{why}"
            )
            return Load(slots=slots)
        fill_queues(self.records, requests, round_trip_s)
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


def mark_truncated(journal: Iterable[JournalRecord], requests: Iterable[RequestRecord]) -> None:
    """Takes over what only the server's journal may tell, where it was joined."""
    cut = {each.request_id for each in journal if each.truncated and each.request_id is not None}
    for request in requests:
        if request.request_id in cut:
            request.truncated = True


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
