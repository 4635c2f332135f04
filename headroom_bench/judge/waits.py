"""Where the time before and after a request's first token went, as far as its record tells.

What nobody told is unexplained: neither the server's queue nor the way is charged with it. In a
measured record that is the queue where no journal tells of it, other requests' passes, both stacks
and whatever the way took longer than its round trip. A simulation explains everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from headroom_bench.records import RequestRecord

Phase = Literal["queue", "prefill", "reasoning", "decode", "network", "unexplained"]
"""Where a wait can go: the server's queue, reading the prompt, hidden reasoning, writing the rest,
the way, and what cannot be told."""

ROUNDING_S = 1e-9
"""What sums of a life's seconds may be off by."""


def before_first_token(record: RequestRecord) -> dict[Phase, float]:
    """Seconds of TTFT by phase. A phase that is not known is missing; `unexplained` is what the
    known ones leave of it."""
    parts: dict[Phase, float] = {}
    if record.network_s is not None:
        parts["network"] = record.network_s
    if record.server_prefill_s is not None:
        parts["prefill"] = record.server_prefill_s
    if record.server_queue_s is not None:
        parts["queue"] = record.server_queue_s
    rest_s = (record.ttft_s or 0.0) - sum(parts.values())
    parts["unexplained"] = rest_s if rest_s > ROUNDING_S else 0.0
    return parts


def while_writing(record: RequestRecord, waited_s: float) -> dict[Phase, float]:
    """Seconds by phase from the first token to `waited_s` after sending, or to the answer's end.

    What came later than the server wrote it is the way's in a simulation, and nobody knows whose
    in a measurement.
    """
    written_s = max(0.0, min(waited_s, record.e2e_s or 0.0) - (record.ttft_s or 0.0))
    served_s = record.server_decode_s
    late_s = 0.0 if served_s is None else max(0.0, written_s - served_s)
    thought_s = min(written_s - late_s, _thought_s(record)) if record.reasoning_tokens else 0.0
    late: Phase = "network" if record.world == "predicted" else "unexplained"
    return {"reasoning": thought_s, "decode": written_s - late_s - thought_s, late: late_s}


def _thought_s(record: RequestRecord) -> float:
    """Seconds of hidden reasoning, by its share of the tokens."""
    if not record.reasoning_tokens or not record.completion_tokens:
        return 0.0
    written_s = record.server_decode_s
    if written_s is None:
        written_s = max(0.0, (record.e2e_s or 0.0) - (record.ttft_s or 0.0))
    return written_s * record.reasoning_tokens / record.completion_tokens


def summed(rounds: Sequence[dict[Phase, float]]) -> dict[Phase, float]:
    """Phases of several rounds together. One that is not known of them all is missing, and what is
    known of it unexplained: half of a queue is no queue."""
    if len(rounds) == 1:
        return dict(rounds[0])
    known = set(rounds[0]).intersection(*rounds)
    total: dict[Phase, float] = {}
    for parts in rounds:
        for phase, seconds in parts.items():
            into: Phase = phase if phase in known else "unexplained"
            total[into] = total.get(into, 0.0) + seconds
    return total
