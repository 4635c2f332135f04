"""What the reader of a run has to know before believing its figures, as far as records tell."""

from __future__ import annotations

from collections import Counter

from headroom_bench.measures import unstreamed
from headroom_bench.records import RequestRecord
from headroom_bench.redaction import shortened
from headroom_bench.units import counted

MERGED = 1.5
"""Tokens an event from which on events are no tokens."""
_SHOWN_LETTERS = 160
"""Of what a server said when a request failed."""
_HELD_BACK_S, _HELD_BACK_SHARE = 0.25, 0.1
"""An answer that came so much later than the server wrote it, as a share of its writing too."""


def first_failures(records: list[RequestRecord]) -> list[str]:
    """What was said at the first failure of each kind; what people and we ended is none."""
    first: dict[str, RequestRecord] = {}
    for record in records:
        if record.error_kind is not None and record.error_kind not in ("interrupted", "abandoned"):
            first.setdefault(record.error_kind, record)
    return [
        f"{kind}, first in {record.request_id}: {_in_a_line(record.error or 'no message')}"
        for kind, record in first.items()
    ]


def _in_a_line(text: str) -> str:
    return shortened(" ".join(text.split()), _SHOWN_LETTERS)


def complaints(records: list[RequestRecord]) -> list[str]:
    """What the reader has to know before believing the figures."""
    found = []
    estimated = sum(1 for r in records if r.ok and r.tokens_source == "events")
    if estimated:
        answers = counted(estimated, "answer")
        found.append(f"{answers} came without usage: tokens are counted by events")
    found += _merged(records)
    buffered = sum(1 for r in records if r.ok and r.buffered)
    if buffered:
        found.append(
            f"{counted(buffered, 'answer')} came all at once: something on the way buffers the "
            "stream, and TTFT there is not a first token's"
        )
    if len(models := Counter(r.model or "?" for r in records if r.ok)) > 1:
        each = ", ".join(f"{shortened(name, 80)} ({n})" for name, n in models.most_common(4))
        found.append(f"{len(models)} models answered, and the figures mix them: {each}")
    found += _held_back(records)
    if any(record.error_kind == "unauthorized" for record in records):
        found.append("the server wants an API key: name its variable with --api-key-env VAR")
    if records and not any(record.ok for record in records):
        found.append("no request succeeded")
    return found


def _held_back(records: list[RequestRecord]) -> list[str]:
    """Answers that a server wrote faster, by its own clock, than they came."""
    late_s = [
        record.last_token_s - record.ttft_s - record.server_decode_s
        for record in records
        if record.ok and not record.buffered and record.server_decode_s is not None
        and record.last_token_s is not None and record.ttft_s is not None
        and record.last_token_s - record.ttft_s
        > record.server_decode_s * (1 + _HELD_BACK_SHARE) + _HELD_BACK_S
    ]  # fmt: skip
    if not late_s:
        return []
    return [
        f"{counted(len(late_s), 'answer')} came later than the server wrote them, by "
        f"{sum(late_s) / len(late_s):.2f} s on average: the way, a proxy on it or a busy "
        "machine held them back; decode rates are of what came"
    ]


def _merged(records: list[RequestRecord]) -> list[str]:
    """Events of several tokens each, which are none of drafting."""
    streamed = [r for r in records if r.ok and not r.buffered and not r.draft_tokens]
    known = [r for r in streamed if r.tokens_source != "events"]
    events = sum(r.stream_events or 0 for r in known)
    # The end of sequence may be counted, and show in no event.
    tokens = sum(
        max(0, (r.completion_tokens or 0) - unstreamed(r, r.stream_events or 0) - 1) for r in known
    )
    if tokens < MERGED * events or not events:
        return []
    return [
        f"an event holds {tokens / events:.1f} tokens on average: TTFT is a first event's, and "
        "gaps are between events"
    ]
