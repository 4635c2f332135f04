"""What bound a run: limits, each with its evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headroom_bench.judge.causes import NOTABLE_SHARE, REFUSED, limit_row
from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import spread
from headroom_bench.units import counted


def limits_of(
    records: Sequence[RequestRecord],
    load: Load,
    time_by_bound: Mapping[str, float] | None,
    on_radio: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence}`, the most telling first.

    limit is bandwidth, compute, overhead, slots, KV, network, radio, context or patience; share is
    between 0 and 1: of the server's time, of tokens, of requests, or of wall time, as the evidence
    says. `on_radio` are the personas whose clients share a radio.
    """
    rows = []
    for bound, share in (time_by_bound or {}).items():
        rows.append(_bound_row(bound, share))
    rows += _slots(records, load)
    rows += _cache(records, load)
    rows += _radio(load)
    rows += _way([r for r in records if r.persona not in on_radio], "network")
    rows += _way([r for r in records if r.persona in on_radio], "radio")
    for kind, (limit, told) in REFUSED.items():
        rows += _requests(records, limit, told, [r for r in records if r.error_kind == kind])
    cut = [record for record in records if record.ok and record.truncated]
    rows += _requests(records, "context", "were cut because their context was full", cut)
    return sorted(rows, key=lambda row: -row["share"])


def time_by_bound_in(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The shares of the server's time by bound that rows of `limits_of` tell of."""
    shares = {row["limit"]: row["share"] for row in rows if _is_bound(row)}
    return dict(sorted(shares.items()))


def _bound_row(bound: str, share: float) -> dict[str, Any]:
    evidence = f"{share:.0%} of the server's time in passes bound by {bound}"
    return limit_row(bound, share, evidence)


def _is_bound(row: Mapping[str, Any]) -> bool:
    told = _bound_row(row["limit"], row["share"])
    return all(row[name] == value for name, value in told.items())


def _slots(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    waits = [record.server_queue_s for record in records if record.server_queue_s is not None]
    share = load.all_slots_share
    if share is None or share < NOTABLE_SHARE:
        return []
    evidence = f"every slot taken for {share:.0%} of the time"
    queued = spread(waits)["mean"]
    if queued is not None:
        evidence += f", {queued:.3f} s in the queue on average"
    return [limit_row("slots", share, evidence)]


def _cache(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    """Prompt tokens read again although they had been sent before, and answers begun anew."""
    rows = []
    # Without a first token nobody knows that the prompt was read: it may have been refused.
    known = [r for r in records if r.ttft_s is not None and r.prompt_tokens is not None]
    known = [r for r in known if r.cached_tokens is not None]
    read = sum((r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in known)
    again = sum(_read_again(r) for r in known)
    could_hold = sum(r.reusable_tokens or 0 for r in known)
    # A cache that had nearly all is no limit, though what little was read was in it before.
    if again and again >= NOTABLE_SHARE * max(read, could_hold):
        sent = sum(r.prompt_tokens or 0 for r in known)
        evidence = (
            f"{min(again, read):,} of {read:,} prompt tokens that were read had been sent before; "
            f"{1 - read / sent:.0%} of all came from the cache"
        )
        rows.append(limit_row("KV", min(1.0, again / read), evidence))
    if load.preempted:
        share = min(1.0, load.preempted / max(1, len(records)))
        rows.append(
            limit_row("KV", share, f"{counted(load.preempted, 'answer')} preempted and begun anew")
        )
    if load.killed:
        share = min(1.0, load.killed / max(1, len(records)))
        rows.append(
            limit_row(
                "KV", share, f"{counted(load.killed, 'answer')} ended by a cache that ran out"
            )
        )
    return rows


def _read_again(record: RequestRecord) -> int:
    """Prompt tokens that were sent before and not in the cache. A template's are nobody's text: the
    cached tokens are its first, and it is no loss where it was not cached."""
    from_cache = max(record.cached_tokens or 0, record.template_tokens or 0)
    return max(0, (record.reusable_tokens or 0) - from_cache)


def _radio(load: Load) -> list[dict[str, Any]]:
    return [
        limit_row("radio", min(1.0, share), f"{name} was busy for {share:.0%} of the time")
        for name, share in load.radio_busy_shares.items()
        if share >= NOTABLE_SHARE
    ]


def _way(records: Sequence[RequestRecord], limit: str) -> list[dict[str, Any]]:
    known = [r for r in records if r.ok and r.network_s is not None and r.ttft_s]
    way_s = sum(r.network_s or 0.0 for r in known)
    total_s = sum(r.ttft_s or 0.0 for r in known)
    if not total_s or way_s / total_s < NOTABLE_SHARE:
        return []
    evidence = f"{way_s / len(known):.3f} s of {total_s / len(known):.3f} s to the first token"
    apart = all(record.server_queue_s is not None for record in known)
    what = "the way took" if apart else "the way, both its ends and the queue took"
    return [limit_row(limit, way_s / total_s, f"{what} {evidence}, on average")]


def _requests(
    records: Sequence[RequestRecord], limit: str, told: str, hit: Sequence[RequestRecord]
) -> list[dict[str, Any]]:
    if not hit:
        return []
    share = len(hit) / len(records)
    return [limit_row(limit, share, f"{len(hit)} of {len(records)} requests {told}")]
