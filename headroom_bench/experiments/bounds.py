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
    many sequences as were in flight when it was sent, all at its context: enough to tell what
    bound a run, whichever world its records come from.
    """
    seconds: dict[str, dict[str, float]] = {"prefill": {}, "decode": {}}
    known = usable(records)
    for record in known[:: -(-len(known) // MOST_PRICED) or 1]:
        for batch, spent_s in _phases(record, roofline.window):
            by_bound = seconds["prefill" if batch.chunks else "decode"]
            bound = roofline.breakdown(batch).bound
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


def _phases(record: RequestRecord, window: int | None) -> list[tuple[Batch, float]]:
    """The two phases of an answer as batches, each with the server's time that it took up."""
    phases = []
    prompt, cached = record.prompt_tokens, record.cached_tokens or 0
    prefill_s = record.server_prefill_s if record.server_prefill_s is not None else record.ttft_s
    if prompt is not None and prefill_s and prompt > cached:
        phases.append((Batch(0, 0, 0, 0, (Chunk(prompt - cached, cached),)), prefill_s))
    if record.tpot_s and record.completion_tokens and prompt is not None:
        n = max(1, record.concurrent_at_start or 1)
        context = prompt + record.completion_tokens // 2
        inside = context if window is None else min(context, window)
        batch = Batch(n, n * context, n * inside, n if inside == context else 0)
        phases.append((batch, record.tpot_s * record.completion_tokens / n))
    return phases


def faster_than_memory(records: Sequence[RequestRecord], roofline: Roofline) -> int:
    """How many answers came faster than their box can read what a token needs, at the data sheet's
    bandwidth: an impossible figure, or a wrong box, unless drafting explains it."""
    peak_bytes_s = roofline.deployment.hardware.bandwidth_gb_s * 1e9
    count = 0
    for record in usable(records):
        context = record.context_depth_tokens
        if record.decode_tok_s is None or context is None or record.draft_tokens:
            continue
        inside = context if roofline.window is None else min(context, roofline.window)
        read = roofline.breakdown(Batch(1, context, inside, 0)).bytes_read
        count += record.decode_tok_s * read > peak_bytes_s
    return count
