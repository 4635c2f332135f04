"""Percentiles and shares over request records: pure functions, the same for both worlds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from headroom_bench.measures import quantile
from headroom_bench.records import RequestRecord

P95_LEAST = 20
P99_LEAST = 100
"""Fewest values for which a percentile that far out says anything."""

MOSTLY = 0.5
"""Where the harness spoilt more of somebody's requests than this, the rest are no fair sample of
them: nothing is judged by those, and no ratio given."""

_BIN_EDGES = (0, 64, 256, 1024, 4096, 16_384, 65_536)


def spread(values: Iterable[float | None]) -> dict[str, float | int | None]:
    """`{p50, p95, p99, mean, n}` of the known values; a percentile is None where n is too small."""
    known = sorted(value for value in values if value is not None)
    n = len(known)
    return {
        "p50": quantile(known, 0.5) if n else None,
        "p95": quantile(known, 0.95) if n >= P95_LEAST else None,
        "p99": quantile(known, 0.99) if n >= P99_LEAST else None,
        "mean": math.fsum(known) / n if n else None,
        "n": n,
    }


def is_extra(record: RequestRecord) -> bool:
    """Whether a request only rode along (a title): it is no part of a turn."""
    return "." in record.request_id.rsplit("/", 1)[-1]


def steady(
    records: Iterable[RequestRecord], warmup_s: float, until_s: float
) -> list[RequestRecord]:
    """The records that figures are of: begun after the warm-up and before the end of the measured
    window, and not cut off by us."""
    return [
        record
        for record in records
        if warmup_s <= record.started_at_s <= until_s and record.error_kind != "interrupted"
    ]


def usable(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Successes whose figures the harness did not spoil."""
    return [record for record in records if record.ok and record.valid]


def mostly_left_out(left_out: int, requests: int) -> bool:
    """Whether the harness spoilt more of somebody's requests than `MOSTLY`."""
    return left_out > MOSTLY * requests


def persona_statistics(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """The figures of one persona's records. Requests and errors count all of them."""
    good = [record for record in usable(records) if not is_extra(record)]
    figures: dict[str, Any] = {
        "requests": len(records),
        "errors": sum(1 for r in records if not r.ok),
    }
    for name, value in _METRICS.items():
        figures[name] = spread(value(record) for record in good)
    figures["prompt_tokens"] = spread(record.prompt_tokens for record in good)
    figures["sent_tokens"] = spread(record.sent_tokens for record in good)
    figures["cached_tokens"] = spread(record.cached_tokens for record in good)
    figures["completion_tokens"] = spread(record.completion_tokens for record in good)
    figures["asked_tokens"] = spread(record.asked_tokens for record in good)
    figures["prefill_tok_s"] = prefill_by_size(good)
    asked = [record for record in records if record.valid and not is_extra(record)]
    left = sum(record.error_kind == "abandoned" for record in asked)
    figures["abandoned_share"] = left / len(asked) if asked else None
    return figures


_METRICS: dict[str, Callable[[RequestRecord], float | None]] = {
    "ttft_s": lambda r: r.ttft_s,
    "ttfv_s": lambda r: r.ttfv_s,
    "itl_s": lambda r: r.itl_mean_s,
    "tpot_s": lambda r: r.tpot_s,
    "e2e_s": lambda r: r.e2e_s,
    "decode_tok_s": lambda r: r.decode_tok_s,
    "queue_s": lambda r: r.server_queue_s,
}


def prefill_by_size(records: Iterable[RequestRecord]) -> list[dict[str, Any]]:
    """Prefill rates by how many tokens were read, as the server's own times give them."""
    bins: dict[int, list[RequestRecord]] = {}
    for record in records:
        if record.server_prefill_tok_s is None or record.prompt_tokens is None:
            continue
        read = record.prompt_tokens - (record.cached_tokens or 0)
        bins.setdefault(sum(1 for edge in _BIN_EDGES[1:] if read >= edge), []).append(record)
    rows = []
    for place, members in sorted(bins.items()):
        high = f"-{_BIN_EDGES[place + 1] - 1}" if place + 1 < len(_BIN_EDGES) else "+"
        rows.append(
            {
                "prompt_tokens_bin": f"{_BIN_EDGES[place]}{high}",
                **spread(record.server_prefill_tok_s for record in members),
                "context_tokens_p50": spread(r.cached_tokens for r in members)["p50"],
            }
        )
    return rows


def error_kinds(records: Iterable[RequestRecord]) -> dict[str, int]:
    """How often each kind of failure happened, most frequent first."""
    counts: dict[str, int] = {}
    for record in records:
        if not record.ok and record.error_kind != "interrupted":
            kind = record.error_kind or "unknown"
            counts[kind] = counts.get(kind, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def busy_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, end = 0.0, -math.inf
    for low, high in sorted(intervals):
        total += max(0.0, high - max(low, end))
        end = max(end, high)
    return total


def seconds_at_level(intervals: Iterable[tuple[float, float]], level: int) -> float:
    """How long at least `level` intervals overlapped."""
    changes = sorted(change for low, high in intervals for change in ((low, 1), (high, -1)))
    open_now, since, total = 0, 0.0, 0.0
    for at, step in changes:
        if open_now >= level:
            total += at - since
        open_now, since = open_now + step, at
    return total
