"""The rows that everything else reads: one per request, one per server journal entry.

A value that is not known is None, never zero. Times ending in `_s` are durations in seconds,
except `started_at_s`, `sent_s`, `first_byte_s` and `end_s`, which are on the run's clock (seconds
since the run began, in life time: wall time multiplied by the run's time scale).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

World = Literal["measured", "predicted"]
TokensSource = Literal["usage", "timings", "tokenizer", "events"]


@dataclass(slots=True)
class RequestRecord:
    """One request, measured or predicted: the same columns in both worlds."""

    run_id: str
    world: World
    request_id: str
    conversation_id: str
    persona: str
    user: int
    turn: int
    round: int
    target: str
    model: str | None
    started_at_s: float
    """When the person wanted to ask (open loop: the schedule), seconds since the run began."""
    sent_s: float | None = None
    """When the request was handed to a connected socket, on the run's clock."""
    first_byte_s: float | None = None
    """First byte of the response body, on the run's clock."""
    connect_s: float | None = None
    """Time to open a connection; 0 on a kept-alive one."""
    headers_s: float | None = None
    """From `sent_s` to the complete response headers."""
    first_token_s: float | None = None
    """From `sent_s` to the first event that carries a token, on any channel."""
    last_token_s: float | None = None
    """From `sent_s` to the last event that carries a token."""
    ttft_s: float | None = None
    """Time to first token of any kind; equals `first_token_s` in a closed loop."""
    ttfv_s: float | None = None
    """Time to the first thing that the persona's device can show or say."""
    end_s: float | None = None
    """When the answer was complete (or failed), on the run's clock."""
    e2e_s: float | None = None
    """From `sent_s` to `end_s`."""
    itl_mean_s: float | None = None
    """Mean gap between token-bearing events."""
    itl_p50_s: float | None = None
    itl_p99_s: float | None = None
    itl_max_s: float | None = None
    tpot_s: float | None = None
    """Time per token after the first: the inverse of `decode_tok_s`."""
    decode_tok_s: float | None = None
    """(completion tokens - tokens of the first event) / (last - first token)."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens that the server did not have to read again."""
    sent_tokens: int | None = None
    """Prompt tokens that were sent, by our count; exact where the server's tokenizer gave it."""
    reusable_tokens: int | None = None
    """Prompt tokens that a cache may hold: sent before in this run, or the template's."""
    template_tokens: int | None = None
    """How many of `reusable_tokens` are the chat template's, as far as it is known."""
    asked_tokens: int | None = None
    """Longest answer that was asked for."""
    completion_tokens: int | None = None
    reasoning_tokens: int | None = None
    visible_tokens: int | None = None
    stream_events: int | None = None
    """Events that carried a token."""
    buffered: bool | None = None
    """Several tokens, all in one read: something held them back, and TTFT is no first token's."""
    context_depth_tokens: int | None = None
    """Context at which the decode rate was taken: the prompt's tokens."""
    concurrent_at_start: int | None = None
    """Requests in flight when this one was sent, itself included."""
    finish_reason: str | None = None
    ok: bool = False
    error_kind: str | None = None
    error: str | None = None
    truncated: bool | None = None
    """The prompt or the answer was cut by the server."""
    prompt_cut: bool | None = None
    """The server counted clearly fewer prompt tokens than were sent."""
    tokens_source: TokensSource | None = None
    server_prefill_s: float | None = None
    server_prefill_tok_s: float | None = None
    server_decode_s: float | None = None
    server_decode_tok_s: float | None = None
    server_queue_s: float | None = None
    """From its arrival until the server took it up: for want of a slot or of room, or because a
    pass was going on. Measured only where the server's journal tells of it."""
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    network_s: float | None = None
    """Of TTFT, what is known to be the way: all of it in a prediction, the round trip that was
    seen before the run in a measurement."""
    prompt_kind: str | None = None
    turn_rounds: int | None = None
    """Rounds that the persona's script gives this turn."""
    harness_lag_ms: float | None = None
    """Worst lateness of our own event loop while this request was in flight."""
    suspect: str | None = None
    """What about this record cannot be; such figures are kept, and told of."""
    valid: bool = True
    """False when the harness was the bottleneck or the request was interrupted by us."""

    def as_row(self) -> dict[str, Any]:
        # Every field is a plain value: there is nothing for `asdict` to copy, which takes its time.
        return dict(zip(REQUEST_COLUMNS, _request_values(self), strict=True))


REQUEST_COLUMNS: tuple[str, ...] = tuple(field.name for field in fields(RequestRecord))
_request_values = attrgetter(*REQUEST_COLUMNS)


@dataclass(slots=True)
class JournalRecord:
    """One request as the server's own journal tells it."""

    source: str
    instance: int
    """Which life of the server: rises when its clock and task ids start again."""
    slot: int
    task: int
    t_launch_s: float | None = None
    """Server clock at which a slot took the request up: its wait in the queue ended."""
    t_server_s: float | None = None
    """Server clock (seconds since its start) at the end of the record."""
    t_wall: float | None = None
    """Unix time at which the record was complete, where the source tells it."""
    prompt_eval_tokens: int | None = None
    """Prompt tokens evaluated: the cached ones are not among them."""
    cached_tokens: int | None = None
    prompt_ms: float | None = None
    gen_tokens: int | None = None
    eval_ms: float | None = None
    rate_rule: Literal["n", "n-1"] | None = None
    """Which divisor the server used for its printed decode rate."""
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    truncated: bool | None = None
    outcome: Literal["done", "cancelled", "error", "partial"] = "partial"
    request_id: str | None = None
    join_method: Literal["exact", "window", "none"] = "none"
    ambiguous: bool = False

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _JOURNAL_COLUMNS}


_JOURNAL_COLUMNS = tuple(field.name for field in fields(JournalRecord))


@dataclass(frozen=True, slots=True)
class JournalSample:
    """One in-flight line of the server's journal: how a request's answer is getting on."""

    source: str
    instance: int
    slot: int
    task: int
    gen_tokens: int
    """Tokens generated so far."""
    t_server_s: float | None = None
    """Server clock (seconds since its start) of the line."""
    t_wall: float | None = None
    """Unix time of the line, where the source tells it."""
    tok_s: float | None = None
    """Tokens a second since the answer began."""
    tok_s_3s: float | None = None
    """Tokens a second since the previous such line (at least 3 s)."""

    def as_row(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _SAMPLE_COLUMNS}


_SAMPLE_COLUMNS = tuple(field.name for field in fields(JournalSample))
