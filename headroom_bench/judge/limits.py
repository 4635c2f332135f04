"""What bound a run: the limits that it came near, each with its evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import spread

_NOTABLE_SHARE = 0.05


def limits_of(
    records: Sequence[RequestRecord], load: Load, time_by_bound: Mapping[str, float] | None
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence}`, the most telling first.

    limit is bandwidth, compute, overhead, slots, context or patience; share is between 0 and 1: of
    the server's time, of requests, or of wall time, as the evidence says.
    """
    rows = []
    for bound, share in (time_by_bound or {}).items():
        evidence = f"{share:.0%} of the server's time in passes bound by {bound}"
        rows.append(_row(bound, share, evidence))
    rows += _slots(records, load)
    rows += _refusals(records, "context", "context_exceeded", "did not fit into their context")
    rows += _refusals(records, "patience", "abandoned", "were given up on")
    return sorted(rows, key=lambda row: -row["share"])


def _row(limit: str, share: float, evidence: str) -> dict[str, Any]:
    return {"limit": limit, "share": share, "evidence": evidence}


def _slots(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    waits = [record.server_queue_s for record in records if record.server_queue_s is not None]
    share = load.all_slots_share
    if share is None or share < _NOTABLE_SHARE:
        return []
    evidence = f"every slot taken for {share:.0%} of the time"
    queued = spread(waits)["mean"]
    if queued is not None:
        evidence += f", {queued:.3f} s in the queue on average"
    return [_row("slots", share, evidence)]


def _refusals(
    records: Sequence[RequestRecord], limit: str, kind: str, told: str
) -> list[dict[str, Any]]:
    hit = sum(1 for record in records if record.error_kind == kind)
    if not hit:
        return []
    share = hit / len(records)
    return [_row(limit, share, f"{hit} of {len(records)} requests {told}")]
