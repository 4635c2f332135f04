"""Several runs of the same thing as one: their records side by side, their figures with spread."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import steady
from headroom_bench.results.twins import twins

_MOMENTS = ("started_at_s", "sent_s", "first_byte_s", "end_s")


@dataclass(frozen=True, slots=True)
class Repeat:
    """One of them. Life seconds on its own clock."""

    number: int
    """1-based."""
    summary: Mapping[str, Any]
    measured: Sequence[RequestRecord]
    predicted: Sequence[RequestRecord]

    @property
    def window_s(self) -> tuple[float, float]:
        return self.summary["warmup_s"], self.summary["duration_s"]


def pooled(repeats: Iterable[Repeat], world: str) -> tuple[list[RequestRecord], float]:
    """The records of all measured windows, laid end to end on one clock, and the clock's end.

    Ids begin with the repeat's number, so that no two conversations are taken for one.
    """
    found: list[RequestRecord] = []
    at_s = 0.0
    for repeat in repeats:
        warmup_s, ended_s = repeat.window_s
        records = steady(repeat.measured, warmup_s, ended_s)
        if world == "predicted":
            records = twins(repeat.predicted, records)
        found += [_moved(record, at_s - warmup_s, repeat) for record in records]
        at_s += max(0.0, ended_s - warmup_s)
    return found, at_s


def _moved(record: RequestRecord, by_s: float, repeat: Repeat) -> RequestRecord:
    moments: dict[str, Any] = {
        name: None if (moment := getattr(record, name)) is None else moment + by_s
        for name in _MOMENTS
    }
    return replace(
        record,
        request_id=f"{repeat.number}/{record.request_id}",
        conversation_id=f"{repeat.number}/{record.conversation_id}",
        **moments,
    )


def between(values: Iterable[float | None]) -> dict[str, Any]:
    """How a figure differs from repeat to repeat: `{values, mean, stdev, n}`; the standard
    deviation from two known values on."""
    listed = list(values)
    known = [value for value in listed if value is not None]
    return {
        "values": listed,
        "mean": statistics.fmean(known) if known else None,
        "stdev": statistics.stdev(known) if len(known) > 1 else None,
        "n": len(known),
    }


def mean_totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """Throughput over several windows: each repeat's by how long its was; None where one of them
    does not know it."""
    names = ("prompt_tok_s", "completion_tok_s", "requests_per_s", "concurrency_mean")
    means = {name: mean_over_windows(rows, name) for name in names}
    return {**means, "window_s": math.fsum(row["window_s"] for row in rows)}


def mean_over_windows(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """The mean of a figure over windows (`window_s`), each by how long it was; None where one of
    them does not know it. One without any length (stopped within its warm-up) says nothing."""
    known = [(row.get(name), row["window_s"]) for row in rows if row["window_s"]]
    if not known or any(value is None for value, _ in known):
        return None
    whole_s = math.fsum(length_s for _, length_s in known)
    return math.fsum(value * length_s for value, length_s in known) / whole_s
