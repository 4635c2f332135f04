"""Which of the box's limits the server's time went into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import usable
from headroom_bench.roofline.pricer import Batch, Chunk

if TYPE_CHECKING:
    from headroom_bench.roofline.passes import Roofline


MOST_PRICED = 1000
"""Of more records so many are priced, evenly spread: shares are then known to three points."""

Spent = Mapping[str, Mapping[str, float]]
"""Seconds of the server's time by phase (`prefill`, `decode`) and bound."""


def time_spent(records: Sequence[RequestRecord], roofline: Roofline) -> Spent:
    """The server's time in passes bound by bandwidth, compute or overhead, by the model.

    Every answer's prefill is priced as one chunk at its depth, and its decoding as a pass of as
    many sequences as were in flight when it was sent (of them as many as the server works on at a
    time), all at its context: enough to tell what bound a run, whichever world its records come
    from. Times are the server's own, else what the client saw of the writing and the model's of the
    reading, which for a client is hidden in the queue.
    """
    seconds: dict[str, dict[str, float]] = {"prefill": {}, "decode": {}}
    known = usable(records)
    for record in known[:: -(-len(known) // MOST_PRICED) or 1]:
        for phase, bound, spent_s in _phases(record, roofline):
            by_bound = seconds[phase]
            by_bound[bound] = by_bound.get(bound, 0.0) + spent_s
    return seconds


def shares_of_bounds(spent: Spent) -> dict[str, float]:
    """Each bound's share of all that time."""
    seconds: dict[str, float] = {}
    for by_bound in spent.values():
        for bound, spent_s in by_bound.items():
            seconds[bound] = seconds.get(bound, 0.0) + spent_s
    total = sum(seconds.values())
    return {bound: spent_s / total for bound, spent_s in seconds.items()} if total else {}


def bound_by_phase(spent: Spent) -> dict[str, str]:
    """What bounds most of the time of each phase."""
    return {
        phase: max(by_bound, key=lambda bound: by_bound[bound])
        for phase, by_bound in spent.items()
        if by_bound
    }


def _phases(record: RequestRecord, roofline: Roofline) -> list[tuple[str, str, float]]:
    """The two phases of an answer, each with what bounds it and the server's time that it took."""
    phases = []
    prompt, cached = record.prompt_tokens, record.cached_tokens or 0
    if prompt is None:
        return []
    if prompt > cached and record.ttft_s is not None:
        cost = roofline.breakdown(Batch(0, 0, 0, 0, (Chunk(prompt - cached, cached),)))
        told_s = record.server_prefill_s
        spent_s = min(record.ttft_s, cost.total_s) if told_s is None else told_s
        phases.append(("prefill", cost.bound, spent_s))
    tokens = (record.completion_tokens or 0) - 1  # the first comes out of the prompt's last pass
    if tokens > 0:
        n = min(max(1, record.concurrent_at_start or 1), roofline.deployment.slots)
        context = prompt + tokens // 2
        inside = context if roofline.window is None else min(context, roofline.window)
        batch = Batch(n, n * context, n * inside, n if inside == context else 0)
        cost = roofline.breakdown(batch)
        seen_s = tokens * (record.tpot_s or cost.total_s)
        spent_s = seen_s if record.server_decode_s is None else record.server_decode_s
        phases.append(("decode", cost.bound, spent_s / n))
    return phases


def faster_than_memory(records: Sequence[RequestRecord], roofline: Roofline) -> list[RequestRecord]:
    """The answers that came faster than their box can read what a token needs, at the data sheet's
    bandwidth: an impossible figure, or a wrong box, unless drafting explains it."""
    peak_bytes_s = roofline.deployment.hardware.bandwidth_gb_s * 1e9
    found = []
    for record in usable(records):
        context = record.context_depth_tokens
        if record.decode_tok_s is None or context is None or record.draft_tokens:
            continue
        inside = context if roofline.window is None else min(context, roofline.window)
        read = roofline.breakdown(Batch(1, context, inside, 0)).bytes_read
        if record.decode_tok_s * read > peak_bytes_s:
            found.append(record)
    return found
