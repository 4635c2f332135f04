"""One request on its way, and the record that it leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box import Served
from headroom_bench.crowd.world import Request
from headroom_bench.measures import fill_timing, first_visible
from headroom_bench.records import RequestRecord
from headroom_bench.simulate.kernel import Process

Times = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Naming:
    """What the records are labelled with."""

    run_id: str
    target: str
    model: str | None = None


@dataclass(slots=True, eq=False)
class Asked:
    """One request on its way."""

    request: Request
    process: Process
    started_at: float
    sent_at: float
    """When its connection was open, and it went out."""
    connect_s: float | None
    concurrent: int
    prompt_tokens: int
    reasoning_tokens: int
    reusable_tokens: int
    arrived: bool = False
    streams: bool = False
    """Its answer has begun and is not over."""
    doomed: bool = False
    """It was measured to fail: at its time it does, whatever the box has made of it by then."""


def begun_record(asked: Asked, naming: Naming) -> RequestRecord:
    """What is known of a request whatever became of it."""
    request = asked.request
    return RequestRecord(
        run_id=naming.run_id,
        world="predicted",
        request_id=request.request_id,
        conversation_id=request.conversation_id,
        persona=request.persona,
        user=request.user,
        turn=request.turn,
        round=request.round,
        target=naming.target,
        model=naming.model,
        started_at_s=asked.started_at,
        sent_s=asked.sent_at,
        connect_s=asked.connect_s,
        concurrent_at_start=asked.concurrent,
        turn_rounds=request.rounds,
        asked_tokens=request.max_tokens,
        sent_tokens=asked.prompt_tokens,
        reusable_tokens=asked.reusable_tokens,
    )


def fill_counts_and_times(record: RequestRecord, asked: Asked, times: Times, now: float) -> None:
    """What a client at the end of the path sees at `now`, the answer's end.

    `times`: when its tokens came there, shape (tokens,), seconds.
    """
    count = len(times)
    record.end_s = now
    record.e2e_s = now - asked.sent_at
    record.completion_tokens = count
    record.reasoning_tokens = min(asked.reasoning_tokens, count)
    record.visible_tokens = count - record.reasoning_tokens
    record.prompt_tokens = asked.prompt_tokens
    if not count:
        return
    record.context_depth_tokens = asked.prompt_tokens
    record.first_byte_s = float(times[0])
    fill_timing(record, asked.sent_at, times, first_event_tokens=1)
    device = asked.request.device
    shown = times if device.shows_reasoning else times[record.reasoning_tokens :]
    seen = first_visible(shown, now, buffer_tokens=device.buffer_tokens, whole=device.whole)
    if seen is not None:
        record.ttfv_s = seen - asked.sent_at + device.before_s + device.after_s


def fill_server_side(record: RequestRecord, served: Served, given: Times) -> None:
    """What only the server knows. `given`: when it gave the tokens that have come, seconds."""
    record.cached_tokens = served.cached_tokens
    record.server_queue_s = served.queue_s
    if record.ok:
        record.prompt_tokens = record.context_depth_tokens = served.prompt_tokens
    if served.drafted:
        record.draft_tokens, record.accepted_tokens = served.drafted, served.accepted
    if served.admitted_at is None or not len(given):
        return
    first, last = float(given[0]), float(given[-1])
    record.server_prefill_s = first - served.admitted_at
    evaluated = (record.prompt_tokens or 0) - served.cached_tokens
    if record.server_prefill_s > 0:
        record.server_prefill_tok_s = evaluated / record.server_prefill_s
    record.server_decode_s = last - first
    if record.server_decode_s > 0:
        record.server_decode_tok_s = (len(given) - 1) / record.server_decode_s
    if record.ttft_s is not None and served.first_token_at is not None:
        record.network_s = record.ttft_s - (served.first_token_at - served.submitted_at)
