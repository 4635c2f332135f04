"""What the journal's clock tells of a run: how busy the server was, how long requests queued."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from headroom_bench.judge.verdict import Load
from headroom_bench.records import JournalRecord, RequestRecord
from headroom_bench.results.statistics import busy_seconds, seconds_at_level


def load_within(
    journal: Sequence[JournalRecord],
    requests: Iterable[RequestRecord],
    from_s: float,
    to_s: float,
    slots: int | None = None,
) -> Load:
    """How busy the server was between two moments of the run's clock, and how long all of its slots
    were taken, where it says how many it has. Lives of the server of which nothing was joined are
    left out, and nothing is known where there is no other."""
    by = _shifts(journal, {request.request_id: request for request in requests})
    if not by or to_s <= from_s:
        return Load(slots=slots)
    spans = [
        (each.t_launch_s + by[each.instance], each.t_server_s + by[each.instance])
        for each in journal
        if each.instance in by and each.t_launch_s is not None and each.t_server_s is not None
    ]
    within = [(max(from_s, began_s), min(to_s, ended_s)) for began_s, ended_s in spans]
    within = [(low, high) for low, high in within if low < high]
    window_s = to_s - from_s
    return Load(
        busy_share=min(1.0, busy_seconds(within) / window_s),
        all_slots_share=min(1.0, seconds_at_level(within, slots) / window_s) if slots else None,
        slots=slots,
    )


def fill_queues(
    journal: Sequence[JournalRecord], requests: Iterable[RequestRecord], round_trip_s: float
) -> None:
    """Sets `server_queue_s` of requests that the journal has: from their arrival until a slot took
    them up.

    They arrived half a round trip after they were sent, and what the journal says came half a round
    trip before we saw it. Both clocks are good to milliseconds only: a queue is no longer than what
    the way and the reading of the prompt leave of TTFT.
    """
    asked = {request.request_id: request for request in requests}
    by = _shifts(journal, asked)
    for each in journal:
        request = asked.get(each.request_id or "")
        if request is None or each.t_launch_s is None or each.instance not in by:
            continue
        if request.sent_s is None or request.ttft_s is None:
            continue
        known_s = (request.network_s or 0.0) + (request.server_prefill_s or 0.0)
        queued_s = each.t_launch_s + by[each.instance] - request.sent_s - round_trip_s
        request.server_queue_s = max(0.0, min(queued_s, request.ttft_s - known_s))


def _shifts(
    journal: Iterable[JournalRecord], requests: Mapping[str, RequestRecord]
) -> dict[int, float]:
    """By life of the server: how far its clock is behind the run's, as answers that were joined
    tell by their ends (a way down included)."""
    known: dict[int, list[float]] = {}
    for each in journal:
        request = requests.get(each.request_id or "")
        if request is None or request.end_s is None:
            continue
        if each.t_launch_s is not None and each.t_server_s is not None:
            known.setdefault(each.instance, []).append(request.end_s - each.t_server_s)
    return {instance: statistics.median(shifts) for instance, shifts in known.items()}
