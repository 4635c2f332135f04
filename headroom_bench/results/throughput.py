"""What a server did in a stretch of time, of all requests that were in flight in it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headroom_bench.records import RequestRecord

_UNKNOWN = math.nan
"""Tokens that nobody counted: any sum with them is not known either."""


def totals(records: Sequence[RequestRecord], from_s: float, to_s: float) -> dict[str, float | None]:
    """Throughput, and how many requests were in flight, between two moments of the run's clock.

    `records` are all of a life's: whatever began before `from_s`, ended after `to_s`, failed, or
    was spoilt by the harness kept the server busy all the same. A prompt's tokens count as read
    evenly from its sending to the first token, an answer's as written evenly from the first to the
    last; of both counts what falls into the stretch. `requests_per_s`: answers that ended in it.
    None are rates of tokens that nobody counted, and all of them where there is no time.
    """
    seconds = to_s - from_s
    if seconds <= 0:
        names = ("prompt_tok_s", "completion_tok_s", "requests_per_s", "concurrency_mean")
        return {**dict.fromkeys(names), "window_s": 0.0}
    in_flight_s, read, written, ended = [], [], [], 0
    for record in records:
        sent_s, end_s = record.sent_s, record.end_s
        if sent_s is None or end_s is None:
            continue
        in_flight_s.append((end_s - sent_s) * _share_within(sent_s, end_s, from_s, to_s))
        ended += record.ok and from_s < end_s <= to_s
        if record.ttft_s is not None:  # else nobody knows that the prompt was read
            first_s = sent_s + record.ttft_s
            last_s = end_s if record.last_token_s is None else sent_s + record.last_token_s
            read.append(_part(_prompt(record), _share_within(sent_s, first_s, from_s, to_s)))
            written.append(
                _part(record.completion_tokens, _share_within(first_s, last_s, from_s, to_s))
            )
    return {
        "prompt_tok_s": _rate(read, seconds),
        "completion_tok_s": _rate(written, seconds),
        "requests_per_s": ended / seconds,
        "concurrency_mean": math.fsum(in_flight_s) / seconds,
        "window_s": seconds,
    }


def _prompt(record: RequestRecord) -> int | None:
    """Its tokens: by the server's count, which only an answer that came through brings."""
    if record.prompt_tokens is None and not record.ok:
        return record.sent_tokens
    return record.prompt_tokens


def _part(tokens: int | None, share: float) -> float:
    if not share:
        return 0.0
    return _UNKNOWN if tokens is None else tokens * share


def _share_within(began_s: float, ended_s: float, from_s: float, to_s: float) -> float:
    """How much of a span lies in the stretch; what happened at one moment does or does not."""
    if ended_s <= began_s:
        return float(from_s < ended_s <= to_s)
    return max(0.0, min(ended_s, to_s) - max(began_s, from_s)) / (ended_s - began_s)


def _rate(tokens: Sequence[float], seconds: float) -> float | None:
    rate = math.fsum(tokens) / seconds
    return None if math.isnan(rate) else rate
