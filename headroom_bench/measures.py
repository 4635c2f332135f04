"""The metrics of one answer, from when its tokens came: one definition for every world."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headroom_bench.records import RequestRecord

Moments = Sequence[float] | NDArray[np.float64]
"""Ascending, seconds. A simulation has them as an array, a measurement as it found them."""


def quantile(ordered: Moments, q: float) -> float:
    """The q-quantile of ascending, non-empty values, linear between neighbours."""
    place = q * (len(ordered) - 1)
    low, high = math.floor(place), math.ceil(place)
    below = float(ordered[low])
    return below + (float(ordered[high]) - below) * (place - low)


def fill_timing(
    record: RequestRecord,
    sent_s: float,
    event_times_s: Moments,
    first_event_tokens: float,
    last_event_tokens: float | None = None,
) -> None:
    """Writes TTFT, gaps, TPOT and decode rate of a record whose completion tokens are set.

    `event_times_s` are the moments on the run's clock at which token-bearing events came.
    `first_event_tokens` and `last_event_tokens` are the tokens that had come with the first and by
    the last of them (None: all completion tokens). Gaps are between events (`itl_*`); time per
    token (`tpot_s`, `decode_tok_s`) is the time from first to last event over the tokens that came
    after the first, since one event may hold several tokens and a token may show in none. Rates
    stay None below two tokens, and when everything came at one moment (a buffered stream).
    """
    if not len(event_times_s):
        return
    first, last = float(event_times_s[0]), float(event_times_s[-1])
    record.ttft_s = record.first_token_s = first - sent_s
    record.last_token_s = last - sent_s
    record.stream_events = len(event_times_s)
    if len(event_times_s) > 1:
        gaps = _sorted_gaps(event_times_s)
        record.itl_mean_s = (last - first) / len(gaps)
        record.itl_p50_s = quantile(gaps, 0.5)
        record.itl_max_s = float(gaps[-1])
        if len(gaps) >= 100:
            record.itl_p99_s = quantile(gaps, 0.99)
    come = record.completion_tokens if last_event_tokens is None else last_event_tokens
    later_tokens = (come or 0) - first_event_tokens
    if later_tokens > 0 and last > first:
        record.tpot_s = (last - first) / later_tokens
        record.decode_tok_s = 1.0 / record.tpot_s


def _sorted_gaps(times: Moments) -> Moments:
    if isinstance(times, np.ndarray):
        gaps = times[1:] - times[:-1]
        gaps.sort()
        return gaps
    return sorted(map(operator.sub, itertools.islice(times, 1, None), times))


def unstreamed(record: RequestRecord, events: int) -> int:
    """Hidden tokens that showed in none of an answer's `events`, as far as counts tell: of those
    there are no more than visible tokens. Servers that keep reasoning back count it all the same.
    """
    hidden, visible = record.reasoning_tokens, record.visible_tokens
    return hidden if hidden and visible is not None and events <= visible else 0


_SHORT_TOKENS, _SHORT_SHARE = 2, 0.02
"""How far below what was asked for a count may be and say nothing: the token that ends an answer
may or may not be counted, and a token may show in no event."""


def answer_was_cut(record: RequestRecord) -> bool:
    """Whether the server ended an answer for its length before it had the tokens asked for: its
    context was full, or a limit of its own reached. Not known where events stand for tokens."""
    asked = record.asked_tokens
    if not record.ok or record.finish_reason != "length" or asked is None:
        return False
    if record.completion_tokens is None or record.tokens_source == "events":
        return False
    # Some servers do not count hidden tokens among those of the answer.
    made = max(record.completion_tokens, record.stream_events or 0, record.reasoning_tokens or 0)
    return asked - made > max(_SHORT_TOKENS, _SHORT_SHARE * asked)


def first_visible(
    visible_times: Moments, end: float, *, buffer_tokens: int, whole: bool
) -> float | None:
    """When a device first shows something.

    `visible_times` are the moments at which tokens came that the device can show. A whole-answer
    device shows at the end; a buffering one when the buffer is full or the answer has ended.
    """
    if not len(visible_times):
        return None
    if whole or len(visible_times) < buffer_tokens:
        return end
    return float(visible_times[buffer_tokens - 1])
