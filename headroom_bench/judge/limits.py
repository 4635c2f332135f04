"""What bound a run: limits, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from headroom_bench.judge.causes import (
    ENDED_BY_CACHE,
    NOTABLE_SHARE,
    REFUSED,
    UNEXPLAINED,
    is_crowded,
    limit_of_failure,
    limit_row,
)
from headroom_bench.judge.verdict import Load
from headroom_bench.judge.waits import before_first_token
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import spread
from headroom_bench.units import counted

TELLABLE_S = 0.01
"""So late may our own event loop be, and so far apart a journal's clock: a shorter mean wait that
is told by their difference may be theirs, not the server's."""


def limits_of(
    records: Sequence[RequestRecord],
    load: Load,
    time_by_bound: Mapping[str, float] | None,
    on_radio: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence, modelled}`, the most telling first.

    limit is bandwidth, compute, overhead, slots, queue, KV, network, radio, unexplained, context or
    patience; share is between 0 and 1: of the server's time, of tokens, of requests, or of wall
    time, as the evidence says. `modelled` are those that a model of the box tells, not the records.
    `on_radio` are the personas whose clients share a radio. Records that the harness spoilt tell
    nothing here.
    """
    asked, records = len(records), [record for record in records if record.valid]
    rows = [_bound_row(bound, share) for bound, share in (time_by_bound or {}).items()]
    rows += _slots(records, load)
    rows += _cache(records, load, asked)
    rows += _radio(load)
    rows += _way([r for r in records if r.persona not in on_radio], "network")
    rows += _way([r for r in records if r.persona in on_radio], "radio")
    rows += _waiting(records, load)
    for refusal in (*REFUSED.values(), ENDED_BY_CACHE):
        hit = [r for r in records if _failed_by(r) == refusal]
        rows += _requests(records, *refusal, hit)
    cut = [record for record in records if record.ok and record.truncated]
    rows += _requests(records, "context", "were cut because their context was full", cut)
    return sorted(rows, key=lambda row: -row["share"])


def _failed_by(record: RequestRecord) -> tuple[str, str] | None:
    return limit_of_failure(record.error_kind, broke_off=record.ttft_s is not None)


def time_by_bound_in(rows: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """The shares of the server's time by bound that rows of `limits_of` tell of."""
    return {row["limit"]: row["share"] for row in rows if row.get("modelled")}


def _bound_row(bound: str, share: float) -> dict[str, Any]:
    evidence = f"{share:.0%} of the server's time in passes bound by {bound}"
    return limit_row(bound, share, evidence, modelled=True)


def _slots(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    """How often there was none left, and what that cost those who came then."""
    taken = load.all_slots_share
    told = [] if taken is None else [f"every slot taken for {taken:.0%} of the time"]
    if load.slots is None:
        share, late = taken or 0.0, [r for r in records if r.server_queue_s is not None]
    else:
        late = _crowded(records, load)
        share = max(taken or 0.0, len(late) / len(records)) if late else 0.0
        told.append(
            f"{len(late):,} of {counted(len(records), 'request')} came with more in flight than "
            f"its {counted(load.slots, 'slot')}"
        )
    if share < NOTABLE_SHARE:
        return []
    return [limit_row("slots", share, ", ".join(told + _waited(late)))]


def _crowded(records: Sequence[RequestRecord], load: Load) -> list[RequestRecord]:
    """Those that had to wait for a slot; what a server refuses needs none."""
    waited = (r for r in records if r.ok or r.error_kind in ("abandoned", "timeout"))
    return [record for record in waited if is_crowded(record.concurrent_at_start, load)]


def _waited(late: Sequence[RequestRecord]) -> list[str]:
    """How long those who came too late for a slot waited, by the server or by what is left over."""
    queued = spread(record.server_queue_s for record in late)["mean"]
    if queued is not None:
        return [f"{queued:.3f} s in the queue on average"]
    left_s = spread(before_first_token(r)["unexplained"] for r in late if _is_told(r))["mean"]
    return [] if left_s is None else [f"{left_s:.3f} s to their first token nothing else explains"]


def _cache(records: Sequence[RequestRecord], load: Load, asked: int) -> list[dict[str, Any]]:
    """Prompt tokens read again although they had been sent before, and answers begun anew, by the
    server's count of all that were `asked`."""
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
        share = min(1.0, load.preempted / max(1, asked))
        rows.append(
            limit_row("KV", share, f"{counted(load.preempted, 'answer')} preempted and begun anew")
        )
    if load.killed:
        share = min(1.0, load.killed / max(1, asked))
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
    return _of_first_tokens(limit, known, [r.network_s or 0.0 for r in known], "the way took {}")


def _waiting(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    """What requests waited for although there was a slot for them."""
    served = [record for record in records if _is_told(record)]
    queues_s, rests_s = [], []
    for record in served:
        parts = before_first_token(record)
        free = not is_crowded(record.concurrent_at_start, load)
        queues_s.append(parts.get("queue", 0.0) if free else 0.0)
        rests_s.append(parts["unexplained"] if free or "queue" in parts else 0.0)
    before = "room in the cache or the pass before" if load.one_pool else "the pass before"
    queued = "{} in the queue" if load.slots is None else f"{{}} for {before}, with slots free"
    rest = f"{{}} neither on the way nor for reading the prompt: {UNEXPLAINED}"
    return [
        row
        for limit, seconds, told in (("queue", queues_s, queued), ("unexplained", rests_s, rest))
        if math.fsum(seconds) >= TELLABLE_S * len(served)
        for row in _of_first_tokens(limit, served, seconds, told)
    ]


def _is_told(record: RequestRecord) -> bool:
    """Whether the server told how long it read the prompt: else all of TTFT is unexplained."""
    return record.ok and bool(record.ttft_s) and record.server_prefill_s is not None


def _of_first_tokens(
    limit: str, records: Sequence[RequestRecord], seconds: Sequence[float], told: str
) -> list[dict[str, Any]]:
    """A row where so many seconds, `{}` in `told`, are a notable part of these records' TTFT."""
    spent_s, total_s = math.fsum(seconds), math.fsum(r.ttft_s or 0.0 for r in records)
    if not total_s or spent_s < NOTABLE_SHARE * total_s:
        return []
    each_s, whole_s = spent_s / len(records), total_s / len(records)
    of = f"{each_s:.3f} s of {whole_s:.3f} s to the first token (on average)"
    return [limit_row(limit, min(1.0, spent_s / total_s), told.format(of))]


def _requests(
    records: Sequence[RequestRecord], limit: str, told: str, hit: Sequence[RequestRecord]
) -> list[dict[str, Any]]:
    if not hit:
        return []
    share = len(hit) / len(records)
    return [limit_row(limit, share, f"{len(hit)} of {len(records)} requests {told}")]
