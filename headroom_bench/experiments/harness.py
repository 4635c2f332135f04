"""Whether the client itself can be believed: its lateness, its load, how far it is from full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headroom_bench.live.lag import HarnessHealth
from headroom_bench.plain import from_plain
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import busy_seconds, spread
from headroom_bench.units import counted

VALID_SHARE = 0.95
FULL_CPU_SHARE = 0.9
"""Above this share of its core a client measures itself, whatever its lateness says."""

SLIP_ALLOWED_SHARE = 0.02
"""Of the time in which it was asked, the mock's clock may slip by this without a word: all that is
measured is longer by about as much, and smaller differences are hardly seen in a ratio."""


@dataclass(slots=True)
class Harness:
    """What the harness saw of itself."""

    health: HarnessHealth | None = None
    writer_lag_max_s: float | None = None
    """Longest that a record waited to be with the operating system."""
    connections_opened: int | None = None
    in_flight_peak: int | None = None
    transport: str = "httptools"


def harness_told(row: Any, where: str) -> Harness:
    """What `harness_figures` made figures of, but for those that are of records. Raises `UserError`
    where it is not what that writes; `where` is named."""
    told = from_plain(dict[str, Any], row, where)
    lag_ms = told.get("writer_lag_max_ms")
    found = from_plain(Harness, {**told, "health": None, "writer_lag_max_s": lag_ms}, where)
    found.health = from_plain(HarnessHealth, told, where)
    if found.writer_lag_max_s is not None:
        found.writer_lag_max_s /= 1e3
    return found


def harness_figures(
    harness: Harness, records: Sequence[RequestRecord], time_scale: float
) -> dict[str, Any]:
    """The `harness` object of summary.json. Milliseconds are wall time.

    `headroom_times`: how many times this load would fill the core that the client runs on.
    """
    health = harness.health
    ended = [record for record in records if record.error_kind != "interrupted"]
    share = sum(record.valid for record in ended) / len(ended) if ended else None
    cpu = health.cpu_share if health is not None else None
    empty = dict.fromkeys(("lag_p50_ms", "lag_p99_ms", "lag_max_ms", "cpu_share"))
    return {
        **(asdict(health) if health is not None else empty),
        "dispatch_late_p99_ms": _dispatch_late_ms(ended, time_scale),
        "writer_lag_max_ms": _ms(harness.writer_lag_max_s),
        "connections_opened": harness.connections_opened,
        "in_flight_peak": harness.in_flight_peak,
        "transport": harness.transport,
        "headroom_times": 1.0 / cpu if cpu else None,
        "valid_share": share,
        "valid": (share is None or share >= VALID_SHARE) and (cpu is None or cpu < FULL_CPU_SHARE),
    }


def _dispatch_late_ms(records: Sequence[RequestRecord], time_scale: float) -> float | None:
    """From wanting to ask to having asked, less the time to connect: the 99th percentile where
    there are enough requests, else the 95th, else the median."""
    late = spread(
        (record.sent_s - record.started_at_s - (record.connect_s or 0.0)) / time_scale
        for record in records
        if record.sent_s is not None
    )
    return _ms(next((late[q] for q in ("p99", "p95", "p50") if late[q] is not None), None))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def slip_complaint(slip_s: float, records: Sequence[RequestRecord]) -> str | None:
    """What to say where the bundled mock was late for its own times by `slip_s` life seconds in
    all. Its clock cannot slip while nobody asks, so idle time excuses nothing."""
    asked_s = busy_seconds(
        (r.sent_s, r.end_s) for r in records if r.sent_s is not None and r.end_s is not None
    )
    if slip_s <= SLIP_ALLOWED_SHARE * asked_s:
        return None
    return (
        f"the mock server was late by {slip_s:.2f} s of the {asked_s:.1f} s in which it was asked: "
        "this machine is too busy for it, and what is measured is slower than the box is"
    )


def harness_complaints(figures: dict[str, Any], records: Sequence[RequestRecord]) -> list[str]:
    """What the reader has to know of the client before believing the figures, which are of these
    `records`."""
    found = []
    spoilt = sum(1 for r in records if not r.valid and r.error_kind != "interrupted")
    if spoilt:
        found.append(
            f"left out of the figures: {spoilt} of {counted(len(records), 'request')}, which this "
            "machine was too late to measure"
        )
    cpu = figures["cpu_share"]
    if cpu is not None and cpu >= FULL_CPU_SHARE:
        found.append(
            f"the client used {cpu:.0%} of its core: it was the bottleneck, and no capacity of the "
            "server can be told from this run"
        )
    suspects: dict[str, int] = {}
    for record in records:
        if record.suspect is not None:
            suspects[record.suspect] = suspects.get(record.suspect, 0) + 1
    found += [
        f"{counted(count, 'answer')} cannot be right: {what}" for what, count in suspects.items()
    ]
    return found
