"""From what happened on the wire to a request record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headroom_bench.crowd.world import Answer, Request
from headroom_bench.live.clock import RunClock
from headroom_bench.live.exchange import Exchange
from headroom_bench.live.reading import Channel, Reading, failure
from headroom_bench.live.told import told_count, told_ms
from headroom_bench.measures import answer_was_cut, fill_timing, first_visible, unstreamed
from headroom_bench.records import RequestRecord
from headroom_bench.redaction import shortened

LONGEST_RETRY_AFTER_S = 60.0
"""So long a person waits at most because the server says so."""
_REFUSED_FOR_NOW = (429, 503)


_NAME_LETTERS = 256
"""Longer is no name, and each record would hold it."""
_CLOCKS_DIFFER, _ROUNDED_S = 0.02, 0.05
"""Two machines' clocks, or the bundled mock's under load; and whole milliseconds in a server's
times, of which faster than life there are many in one."""


def fill_from_wire(
    record: RequestRecord,
    request: Request,
    exchange: Exchange,
    reading: Reading,
    clock: RunClock,
    round_trip_s: float | None = None,
) -> NDArray[np.float64]:
    """Completes `record` in place; returns the token events' times on the run's clock.

    `round_trip_s`: what is known of the way, life time.
    """
    _fill_stamps(record, exchange, clock)
    _fill_counts(record, reading)
    if reading.finish_reason is not None:  # before it they are running ones
        _fill_server_times(record, reading.timings)
    problem = failure(exchange, reading)
    record.ok = problem is None
    if problem is not None:
        record.error_kind, record.error = problem[0], shortened(problem[1], 500)
    if reading.finish_reason is not None:
        record.finish_reason = shortened(reading.finish_reason, _NAME_LETTERS)
    if reading.model:
        record.model = shortened(reading.model, _NAME_LETTERS)
    times = clock.all_at(reading.stamps_ns)
    if record.sent_s is not None and record.end_s is not None and len(times):
        counts = reading.token_counts[0], reading.token_counts[-1]
        first, last = counts if _agree(counts, record.completion_tokens) else (None, None)
        with_first = first or _tokens_with_the_first(record, reading)
        fill_timing(record, record.sent_s, times, with_first, last)
        record.ttfv_s = _ttfv(request, reading.channels, times, record.sent_s, record.end_s)
        # Of two tokens in one event the second is the end of sequence, which shows in none.
        unseen = 1 if len(times) == 1 else 0
        tokens = (record.completion_tokens or 0) - unseen
        record.buffered = tokens > 1 and bool(times[0] == times[-1])
        record.network_s = _way_s(record, round_trip_s)
    return times


def _agree(running: tuple[int | None, int | None], completion: int | None) -> bool:
    """Whether running counts rise, and to no more than were counted in the end."""
    first, last = running
    if last is None or completion is None:
        return True
    return (first or 0) <= last <= completion


def _way_s(record: RequestRecord, round_trip_s: float | None) -> float | None:
    """Of TTFT, what is known to be the way: a round trip, as far as the server leaves time for one.
    The rest may be its queue as well."""
    if record.ttft_s is None or round_trip_s is None:
        return None
    return min(round_trip_s, max(0.0, record.ttft_s - (record.server_prefill_s or 0.0)))


def _tokens_with_the_first(record: RequestRecord, reading: Reading) -> float:
    """Tokens that had come with the first event, where the server says only how many came in all:
    those that it streams in none, and as many as every other event held; never less than one, since
    a token may show in none."""
    events = len(reading.stamps_ns)
    unseen = 0 if "reasoning" in reading.channels else unstreamed(record, events)
    return unseen + max(1.0, ((record.completion_tokens or 0) - unseen) / events)


def _fill_stamps(record: RequestRecord, exchange: Exchange, clock: RunClock) -> None:
    if exchange.connected_ns:
        record.connect_s = clock.at(exchange.connected_ns) - clock.at(exchange.started_ns)
    if exchange.sent_ns:
        record.sent_s = clock.at(exchange.sent_ns)
    if exchange.headers_ns:
        record.headers_s = clock.at(exchange.headers_ns) - clock.at(exchange.sent_ns)
    if exchange.first_byte_ns:
        record.first_byte_s = clock.at(exchange.first_byte_ns)
    record.end_s = clock.at(exchange.end_ns)
    if record.sent_s is not None:
        record.e2e_s = record.end_s - record.sent_s


def _fill_counts(record: RequestRecord, reading: Reading) -> None:
    if reading.finish_reason is None:
        _fill_counts_so_far(record, reading)
        return
    usage, timings = reading.usage or {}, reading.timings or {}
    prompt, completion = told_count(usage, "prompt_tokens"), told_count(usage, "completion_tokens")
    if completion is not None and not (prompt == 0 and completion == 0):
        record.tokens_source = "usage"
    elif told_count(timings, "predicted_n") is not None:
        cached, evaluated = told_count(timings, "cache_n") or 0, told_count(timings, "prompt_n")
        prompt = None if evaluated is None else cached + evaluated
        completion = told_count(timings, "predicted_n")
        record.tokens_source = "timings"
    elif reading.stamps_ns:
        prompt, completion = None, len(reading.stamps_ns)
        record.tokens_source = "events"
    else:
        prompt = completion = None
    record.prompt_tokens = record.context_depth_tokens = prompt
    record.completion_tokens = completion
    record.cached_tokens = told_count(usage.get("prompt_tokens_details"), "cached_tokens")
    if record.cached_tokens is None:
        record.cached_tokens = told_count(timings, "cache_n")
    record.draft_tokens = told_count(timings, "draft_n")
    record.accepted_tokens = told_count(timings, "draft_n_accepted")
    _split_channels(record, reading, usage)


def _fill_counts_so_far(record: RequestRecord, reading: Reading) -> None:
    """An answer that broke off: its last running count, else its events."""
    if not reading.stamps_ns:
        return
    told = reading.token_counts[-1]
    record.completion_tokens = len(reading.stamps_ns) if told is None else told
    record.tokens_source = "events" if told is None else "timings"
    _split_channels(record, reading, {})


def _split_channels(record: RequestRecord, reading: Reading, usage: dict[str, Any]) -> None:
    """Hidden and visible tokens: as counted by the server, else by events where each is a token."""
    if record.completion_tokens is None:
        return
    thought = reading.channels.count("reasoning")
    hidden = told_count(usage.get("completion_tokens_details"), "reasoning_tokens")
    if hidden is None and (not thought or len(reading.stamps_ns) == record.completion_tokens):
        hidden = thought
    record.reasoning_tokens = hidden
    if hidden is not None:
        record.visible_tokens = max(0, record.completion_tokens - hidden)


def _fill_server_times(record: RequestRecord, timings: dict[str, Any] | None) -> None:
    """llama.cpp's own times. Rates are computed here from counts and times: builds differ in
    whether they divide by n or n - 1, and the first token comes out of the prompt's last pass."""
    if not timings:
        return
    prompt_ms, decode_ms = told_ms(timings, "prompt_ms"), told_ms(timings, "predicted_ms")
    evaluated, generated = told_count(timings, "prompt_n"), told_count(timings, "predicted_n")
    if prompt_ms is not None:
        record.server_prefill_s = prompt_ms / 1e3
        if evaluated and prompt_ms > 0:
            record.server_prefill_tok_s = evaluated / (prompt_ms / 1e3)
    if decode_ms is not None:
        record.server_decode_s = decode_ms / 1e3
        if generated is not None and generated > 1 and decode_ms >= 1:
            record.server_decode_tok_s = (generated - 1) / (decode_ms / 1e3)


def _ttfv(
    request: Request,
    channels: Sequence[Channel],
    times: NDArray[np.float64],
    sent_s: float,
    end_s: float,
) -> float | None:
    device = request.device
    shown = {"content", "reasoning"} if device.shows_reasoning else {"content"}
    all_seen = shown.issuperset(channels)
    seen_times = times if all_seen else times[[channel in shown for channel in channels]]
    seen = first_visible(seen_times, end_s, buffer_tokens=device.buffer_tokens, whole=device.whole)
    return None if seen is None else seen - sent_s + device.before_s + device.after_s


def fill_cuts(record: RequestRecord, least_tokens: int) -> None:
    """Whether the server cut the prompt, of which it must count `least_tokens`, or the answer."""
    if record.prompt_tokens is not None:
        record.prompt_cut = record.prompt_tokens < least_tokens
    record.truncated = answer_was_cut(record) or record.prompt_cut


def suspicion(record: RequestRecord, round_trip_s: float | None) -> str | None:
    """What about a record cannot be, in words; None where nothing is odd.

    TTFT below a round trip: something nearer than the server answered. Fewer tokens than events:
    the server's count is wrong. More cached than prompt tokens: likewise. Server times longer than
    the request: its clock is.
    """
    if round_trip_s is not None and record.ttft_s is not None and record.ttft_s < round_trip_s / 2:
        return "TTFT below a round trip"
    tokens, events = record.completion_tokens, record.stream_events
    if tokens is not None and events is not None and tokens < events:
        return "fewer tokens than events"
    served_s = (record.server_prefill_s or 0.0) + (record.server_decode_s or 0.0)
    if record.e2e_s is not None and served_s > record.e2e_s * (1 + _CLOCKS_DIFFER) + _ROUNDED_S:
        return "the server's own times are longer than the request took"
    if (record.cached_tokens or 0) > (record.prompt_tokens or 0):
        return "more cached than prompt tokens"
    return None


def to_answer(request: Request, record: RequestRecord, exchange: Exchange) -> Answer:
    """What the person gets to know."""
    sent_s, end_s = record.sent_s or record.started_at_s, record.end_s or record.started_at_s
    seen = record.ttfv_s
    visible = record.visible_tokens
    return Answer(
        ok=record.ok,
        end_s=end_s,
        first_visible_s=None if seen is None else sent_s + seen - request.device.before_s,
        prompt_tokens=None if record.prompt_cut else record.prompt_tokens,  # not what was sent
        visible_tokens=record.completion_tokens if visible is None else visible,
        error_kind=record.error_kind,
        again_s=_again_s(exchange, end_s),
    )


def _again_s(exchange: Exchange, end_s: float) -> float | None:
    """When a server that refuses for now wants to be asked again (RFC 9110 §10.2.3), at most
    `LONGEST_RETRY_AFTER_S` later. The bundled mock's seconds are life time, as all that it says."""
    told = exchange.headers.get("retry-after") if exchange.status in _REFUSED_FOR_NOW else None
    if told is None:
        return None
    try:
        wait_s = float(told)
    except ValueError:
        try:
            wait_s = (parsedate_to_datetime(told) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError, OverflowError):  # none, without a zone, or of no calendar
            return None
    return end_s + min(wait_s, LONGEST_RETRY_AFTER_S) if wait_s > 0 else None
