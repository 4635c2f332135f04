"""What bound a run, and what ran out first where it fails: limits, each with its evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headroom_bench.judge.turns import Phase, Turn
from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import spread

_NOTABLE_SHARE = 0.05
_REFUSED = {
    "context_exceeded": ("context", "did not fit into their context"),
    "abandoned": ("patience", "were given up on"),
    "server_busy": ("slots", "were turned away from a full queue"),
}
"""Kind of error: the limit that it tells of, and in words."""


def limits_of(
    records: Sequence[RequestRecord], load: Load, time_by_bound: Mapping[str, float] | None
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence}`, the most telling first.

    limit is bandwidth, compute, overhead, slots, KV, network, context or patience; share is between
    0 and 1: of the server's time, of tokens, of requests, or of wall time, as the evidence says.
    """
    rows = []
    for bound, share in (time_by_bound or {}).items():
        evidence = f"{share:.0%} of the server's time in passes bound by {bound}"
        rows.append(_row(bound, share, evidence))
    rows += _slots(records, load)
    rows += _cache(records, load)
    rows += _network(records)
    for kind, (limit, told) in _REFUSED.items():
        rows += _requests(records, limit, told, [r for r in records if r.error_kind == kind])
    cut = [record for record in records if record.ok and record.truncated]
    rows += _requests(records, "context", "were cut because their context was full", cut)
    return sorted(rows, key=lambda row: -row["share"])


def what_broke(
    unmet: Sequence[Turn],
    load: Load,
    bound_by_phase: Mapping[str, str],
    on_radio: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence}` for turns that missed their target: what took their time.

    Shares are of `unmet`. A wait in the queue is for slots where all were taken, else for room in
    a shared cache, else for the pass before. Prefill and decoding are bound as `bound_by_phase`
    says (`prefill`, `decode`: a bound). `on_radio` are the personas whose clients share a radio.
    """
    causes = Counter(_cause(turn, load, bound_by_phase, on_radio) for turn in unmet)
    rows = [
        _row(limit, count / len(unmet), f"{count} of {len(unmet)} unmet turns {told}")
        for (limit, told), count in causes.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])


_TOLD: dict[Phase, str] = {
    "queue": "waited longest in the queue",
    "prefill": "waited longest for their prompt to be read",
    "reasoning": "waited longest for hidden reasoning",
    "decode": "waited longest for tokens to be written",
    "network": "waited longest for the network",
}


def _cause(
    turn: Turn, load: Load, bound_by_phase: Mapping[str, str], on_radio: Collection[str]
) -> tuple[str, str]:
    """The limit, and what happened in words."""
    if turn.error_kind is not None:
        return _REFUSED.get(turn.error_kind, ("server", f"failed ({turn.error_kind})"))
    phase = turn.cause
    if phase is None:
        return "server", "came to nothing that the device can show"
    if phase == "queue":
        return _queue_cause(load, bound_by_phase)
    if phase == "network":
        return ("radio" if turn.persona in on_radio else "network"), _TOLD[phase]
    bound = bound_by_phase.get("prefill" if phase == "prefill" else "decode")
    return bound or phase, _TOLD[phase] + (f", bound by {bound}" if bound else "")


def _queue_cause(load: Load, bound_by_phase: Mapping[str, str]) -> tuple[str, str]:
    told = _TOLD["queue"]
    if load.all_slots_share is None or load.all_slots_share >= _NOTABLE_SHARE:
        return "slots", told
    if load.one_pool:
        return "KV", f"{told}, with places free but no room in the cache"
    # A place was free: what they waited for is the end of a long pass, which reads a prompt.
    return bound_by_phase.get("prefill", "prefill"), f"{told} while others' prompts were read"


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


def _cache(records: Sequence[RequestRecord], load: Load) -> list[dict[str, Any]]:
    """Prompt tokens read again although they had been sent before, and answers begun anew."""
    rows = []
    known = [r for r in records if r.cached_tokens is not None and r.prompt_tokens is not None]
    read = sum((r.prompt_tokens or 0) - (r.cached_tokens or 0) for r in known)
    again = sum(max(0, (r.reusable_tokens or 0) - (r.cached_tokens or 0)) for r in known)
    if read and again / read >= _NOTABLE_SHARE:
        sent = sum(r.prompt_tokens or 0 for r in known)
        evidence = (
            f"{min(again, read):,} of {read:,} prompt tokens that were read had been sent before; "
            f"{1 - read / sent:.0%} of all came from the cache"
        )
        rows.append(_row("KV", min(1.0, again / read), evidence))
    if load.preempted:
        share = min(1.0, load.preempted / max(1, len(records)))
        rows.append(_row("KV", share, f"{load.preempted} answers preempted and begun anew"))
    if load.killed:
        share = min(1.0, load.killed / max(1, len(records)))
        rows.append(_row("KV", share, f"{load.killed} answers ended by a cache that ran out"))
    return rows


def _network(records: Sequence[RequestRecord]) -> list[dict[str, Any]]:
    known = [r for r in records if r.ok and r.network_s is not None and r.ttft_s]
    way_s = sum(r.network_s or 0.0 for r in known)
    total_s = sum(r.ttft_s or 0.0 for r in known)
    if not total_s or way_s / total_s < _NOTABLE_SHARE:
        return []
    evidence = f"{way_s / len(known):.3f} s of {total_s / len(known):.3f} s to the first token"
    apart = all(record.server_queue_s is not None for record in known)
    what = "the way took" if apart else "the way, both its ends and the queue took"
    return [_row("network", way_s / total_s, f"{what} {evidence}, on average")]


def _requests(
    records: Sequence[RequestRecord], limit: str, told: str, hit: Sequence[RequestRecord]
) -> list[dict[str, Any]]:
    if not hit:
        return []
    share = len(hit) / len(records)
    return [_row(limit, share, f"{len(hit)} of {len(records)} requests {told}")]
