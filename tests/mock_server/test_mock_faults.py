"""Our client through every fault of the mock: it reads each as the catalogue says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from mock_tools import running
from numpy.typing import NDArray

from headroom_bench.crowd.world import Device, Request
from headroom_bench.errors import UserError
from headroom_bench.live.clock import RunClock
from headroom_bench.live.dialect import chat_body
from headroom_bench.live.exchange import Exchange, Origin
from headroom_bench.live.measured import fill_from_wire
from headroom_bench.live.reading import Reading, read_stream
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.live.wire import Wire
from headroom_bench.records import RequestRecord
from headroom_bench.roofline.pricer import Batch
from headroom_bench.segments import Segment
from mock_server.fault_list import faults_table, parse_fault, parse_faults
from mock_server.faults import CATALOG

FIRST_S = 0.06
STEP_S = 0.01
TOKENS = 10
SLACK_S = 0.05
"""How late a loaded machine may be."""
PATH = "/v1/chat/completions"
DOCS = Path(__file__).parents[2] / "docs/mock.md"


@dataclass(frozen=True)
class Slow:
    """A prompt takes FIRST_S, each token after it STEP_S."""

    window: int | None = None

    def pass_s(self, batch: Batch) -> float:
        return FIRST_S if batch.chunks else STEP_S

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, self.pass_s(batch))


@dataclass
class Seen:
    """One exchange, and what really happened."""

    record: RequestRecord
    reading: Reading
    exchange: Exchange
    truth: dict[str, Any]

    def true_s(self, token: int) -> float:
        """When a token's bytes were sent, in seconds after the request."""
        sent_ns: int = self.truth["token_sent_ns"][token]
        return (sent_ns - self.exchange.sent_ns) / 1e9


def request(**device: object) -> Request:
    ask = Segment("ask", "user", "prose", "x", 5)
    return Request("p-0/c0/t0/r0", "p-0/c0", "p", 0, 0, 0, (ask,), 10, device=Device(**device))  # type: ignore[arg-type]


def body(dialect: str = "llamacpp", **more: Any) -> bytes:
    """What our client asks such a server."""
    messages = [{"role": "user", "content": "Go on."}]
    asked = chat_body(messages, request().max_tokens, "mock", dialect, force=True)
    return json.dumps(asked | more).encode()


def read(exchange: Exchange, clock: RunClock, **device: object) -> tuple[RequestRecord, Reading]:
    asked = request(**device)
    record = RequestRecord(
        "run", "measured", asked.request_id, asked.conversation_id, "p", 0, 0, 0, "t", None, 0.0
    )
    *_, reading = read_stream(exchange)
    fill_from_wire(record, asked, exchange, reading, clock)
    return record, reading


async def measure(
    fault: str, *, patience_s: float | None = None, path: str = PATH, **options: Any
) -> Seen:
    async with running(Slow(), slots=4, alias="mock", **options) as url:  # type: ignore[arg-type]
        clock = RunClock()
        wire = Wire(Origin.of(url), timeouts=Timeouts(first_token_s=2.0, silence_s=2.0))
        headers = {"X-Request-Id": "me"} | ({"X-Mock-Fault": fault} if fault else {})
        asked = body(options.get("dialect", "llamacpp"))
        exchange = await wire.exchange(path, headers, asked, patience_s=patience_s)
        wire.close()
        truth = await true_of(url) if exchange.status == 200 else {}
    record, reading = read(exchange, clock, shows_reasoning=False)
    return Seen(record, reading, exchange, truth)


async def true_of(url: str) -> dict[str, Any]:
    """What really happened to our request; empty where it never got to the box."""
    async with aiohttp.ClientSession() as session:
        for _ in range(50):
            async with session.get(url + "/truth", params={"id": "me"}) as answer:
                found = (await answer.json())["requests"]
            if found:
                return dict(found[0])
            await asyncio.sleep(0.01)
    return {}


def near(value: float | None, expected: float) -> bool:
    return value is not None and expected - 0.002 <= value <= expected + SLACK_S


Check = Callable[[Seen], object]


def success(seen: Seen) -> None:
    record = seen.record
    assert record.ok, record.error
    assert record.completion_tokens == TOKENS
    assert record.tokens_source == "usage"
    assert near(record.ttft_s, seen.true_s(0))
    assert seen.truth["completion_tokens"] == TOKENS


def counted(seen: Seen) -> None:
    """A byte at a time takes as long as it takes."""
    assert seen.record.ok, seen.record.error
    assert (seen.record.completion_tokens, seen.record.tokens_source) == (TOKENS, "usage")


def plain_success(seen: Seen) -> None:
    """Every token had an event of its own, and the times are the true ones."""
    success(seen)
    assert seen.record.stream_events == TOKENS
    assert near(seen.record.tpot_s, (seen.true_s(-1) - seen.true_s(0)) / (TOKENS - 1))
    sent_ns = seen.truth["token_sent_ns"]
    read_ns = seen.reading.stamps_ns
    late_ns = np.array(read_ns) - np.array(sent_ns)
    assert late_ns.min() >= 0
    assert np.median(late_ns) < SLACK_S * 1e9


def estimated(seen: Seen) -> None:
    assert seen.record.ok, seen.record.error
    assert (seen.record.tokens_source, seen.record.completion_tokens) == ("events", TOKENS)


def failed(kind: str, events: int | None = None, message: str = "") -> Check:
    def check(seen: Seen) -> None:
        assert not seen.record.ok
        assert seen.record.error_kind == kind, seen.record.error
        assert message in (seen.record.error or "")
        if events is not None:
            assert (seen.record.stream_events or 0) == events
            assert (seen.record.ttft_s is not None) == (events > 0)
            assert not events or near(seen.record.ttft_s, seen.true_s(0))

    return check


def early_first_byte(seen: Seen) -> None:
    success(seen)
    record = seen.record
    assert record.first_byte_s is not None
    assert record.sent_s is not None
    assert record.first_byte_s - record.sent_s < seen.true_s(0) - FIRST_S / 2


def split_channels(seen: Seen) -> None:
    success(seen)
    assert (seen.record.reasoning_tokens, seen.record.visible_tokens) == (5, 5)
    assert near(seen.record.ttfv_s, seen.true_s(5))


def only_thoughts(seen: Seen) -> None:
    success(seen)
    assert seen.record.ttfv_s is None
    assert seen.record.visible_tokens == 0


def five_an_event(seen: Seen) -> None:
    record = seen.record
    assert record.ok
    assert (record.stream_events, record.completion_tokens) == (2, TOKENS)
    lump_s = seen.true_s(-1) - seen.true_s(0)
    assert near(record.itl_mean_s, lump_s)
    assert near(record.tpot_s, lump_s / 5)


def no_rate(seen: Seen) -> None:
    record = seen.record
    assert record.ok
    assert record.completion_tokens == TOKENS
    assert record.decode_tok_s is None
    assert record.tpot_s is None


def text_as_sent(part: str) -> Check:
    def check(seen: Seen) -> None:
        success(seen)
        assert part in seen.reading.text

    return check


def empty_events(seen: Seen) -> None:
    """The running counts tell that tokens came with the empty ones."""
    success(seen)
    assert seen.record.stream_events == TOKENS


def half_prompt(seen: Seen) -> None:
    assert seen.record.ok
    assert seen.record.prompt_tokens == seen.truth["prompt_tokens"] // 2


def long_gap(seen: Seen) -> None:
    success(seen)
    gaps = np.diff(seen.truth["token_sent_ns"]) / 1e9
    assert gaps.max() >= 0.25
    assert near(seen.record.itl_max_s, gaps.max())


def ended_at_mark(seen: Seen) -> None:
    success(seen)
    assert seen.exchange.ended == "marker"


def named_nonsense(seen: Seen) -> None:
    """Gzip: refused by name or read, never an empty success."""
    if seen.record.ok:
        success(seen)
    else:
        assert seen.record.error_kind == "nonsense"


READINGS: dict[str, Check] = {
    "": plain_success,
    "role-first": early_first_byte,
    "reasoning-content:5": split_channels,
    "reasoning:5": split_channels,
    "reasoning-only": only_thoughts,
    "tool-only": success,
    "merge:5": five_an_event,
    "one-event": no_rate,
    "one-write": no_rate,
    "line-separators": text_as_sent("\u2028\u0085"),
    "empty-tokens": empty_events,
    "done-in-text": text_as_sent("data: [DONE]"),
    "delta-null": plain_success,
    "no-finish": failed("truncated"),
    "no-usage": estimated,
    "usage-in-finish": plain_success,
    "usage-null-choices": plain_success,
    "usage-zero": estimated,
    "usage-half": half_prompt,
    "usage-words": estimated,
    "tight": plain_success,
    "crlf": plain_success,
    "cr": plain_success,
    "event-lines": plain_success,
    "data-lines": plain_success,
    "comments:20": success,
    "empty-data": plain_success,
    "bom": plain_success,
    "double-done": plain_success,
    "no-done": plain_success,
    "split-utf8:5": text_as_sent("é"),
    "one-byte": counted,
    "gzip": named_nonsense,
    "error-in-stream:4": failed("stream_error", 4, "broke down"),
    "error-in-stream:0": failed("stream_error", 0, "broke down"),
    "error-field": failed("context_exceeded", 0),
    "cut:4": failed("truncated", 4),
    "cut:0": failed("truncated", 0),
    "drop:4": failed("truncated", 4),
    "reset:4": failed("reset", 4),
    "half-event:4": failed("truncated", 4),
    "random-reset:1": failed("reset"),
    "random-reset:0": plain_success,
    "stall:0.3:4": long_gap,
    "never-closes": ended_at_mark,
    "kv-exhausted:4": failed("context_exceeded", 4),
    "rate-limit:2": failed("rate_limited"),
    "overload:0": failed("unavailable"),
    "html": failed("nonsense", message="html"),
    "not-http": failed("not_http"),
    "plain-json": failed("nonsense"),
    "truncated-body": failed("truncated"),
    "crlf,reasoning:5": split_channels,
}
AT_START = {"loading", "health-missing", "queue", "idle-close"}
"""Faults that have a test of their own; those of the log too."""


@pytest.mark.parametrize("fault", list(READINGS))
async def test_our_client_reads_it_right(fault: str) -> None:
    READINGS[fault](await measure(fault))


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "openai"])
@pytest.mark.parametrize(
    "fault", ["", "one-event", "error-in-stream:4", "cut:4", "reset:4", "crlf"]
)
async def test_it_reads_other_dialects_right(dialect: str, fault: str) -> None:
    READINGS[fault](await measure(fault, dialect=dialect))


async def test_merged_tokens_are_told_apart_where_the_server_counts_along() -> None:
    five_an_event(await measure("merge:5", dialect="vllm"))


@pytest.mark.parametrize("dialect", ["sglang", "openai"])
async def test_merged_tokens_are_told_apart_where_it_does_not(dialect: str) -> None:
    five_an_event(await measure("merge:5", dialect=dialect))


async def test_a_cut_answer_keeps_the_count_so_far() -> None:
    seen = await measure("cut:4")
    assert seen.record.completion_tokens == len(seen.truth["token_sent_ns"]) == 4


def test_no_fault_is_forgotten() -> None:
    asked = {fault.name for text in READINGS for fault in parse_faults([text])}
    logged = {name for name in CATALOG if name.startswith("log-")}
    assert asked | AT_START | logged | {"health-missing"} == set(CATALOG)


def test_the_page_lists_every_fault_as_the_code_does() -> None:
    assert faults_table() in DOCS.read_text("utf-8")


async def test_a_client_that_gives_up_in_a_stall_keeps_what_came() -> None:
    seen = await measure("stall:5:4", patience_s=0.2)
    failed("abandoned", 4)(seen)
    assert seen.truth["outcome"] in ("cancelled", "done")


async def test_retry_after_is_told() -> None:
    seen = await measure("rate-limit:7")
    assert seen.exchange.headers["retry-after"] == "7"
    seen = await measure("overload:0:3")
    assert seen.exchange.headers["retry-after"] == "3"


async def test_others_die_with_the_one_that_fills_the_memory() -> None:
    async with running(Slow(), slots=4) as url:  # type: ignore[arg-type]
        clock = RunClock()
        wire = Wire(Origin.of(url))
        fault = {"X-Mock-Fault": "kv-exhausted:6"}
        exchanges = await asyncio.gather(
            wire.exchange(PATH, fault, body()),
            wire.exchange(PATH, {}, body(max_tokens=400)),
            wire.exchange(PATH, {}, body(max_tokens=400)),
        )
        again = await wire.exchange(PATH, {}, body())
        wire.close()
    for exchange in exchanges:
        record, _ = read(exchange, clock)
        assert record.error_kind == "context_exceeded"
        assert record.stream_events
    assert read(again, clock)[0].ok


@asynccontextmanager
async def faulty(*faults: str, **options: Any) -> AsyncIterator[tuple[str, Wire]]:
    async with running(Slow(), faults=faults, **options) as url:  # type: ignore[arg-type]
        wire = Wire(Origin.of(url))
        try:
            yield url, wire
        finally:
            wire.close()


async def test_loading_ends_after_some_calls() -> None:
    async with faulty("loading:2") as (_, wire):
        statuses = [(await wire.exchange(PATH, {}, body())).status for _ in range(3)]
    assert statuses == [503, 503, 200]


async def test_health_can_be_missing_while_models_are_there() -> None:
    async with faulty("health-missing") as (url, _), aiohttp.ClientSession() as session:
        async with session.get(url + "/health") as answer:
            assert answer.status == 404
        async with session.get(url + "/v1/models") as answer:
            assert answer.status == 200


async def test_an_idle_connection_is_closed_and_no_request_fails() -> None:
    async with faulty("idle-close:0.05") as (_, wire):
        for _ in range(3):
            exchange = await wire.exchange(PATH, {}, body(max_tokens=2))
            assert read(exchange, RunClock())[0].ok
            assert not exchange.reused
            await asyncio.sleep(0.3)


async def test_a_queue_lets_few_in() -> None:
    async with faulty("queue:1", slots=4) as (_, wire):
        clock = RunClock()
        asked = [wire.exchange(PATH, {}, body()) for _ in range(3)]
        records = [read(exchange, clock)[0] for exchange in await asyncio.gather(*asked)]
    assert all(record.ok for record in records)
    waited = sorted(record.ttft_s or 0.0 for record in records)
    one_s = FIRST_S + (TOKENS - 1) * STEP_S
    assert waited[2] >= FIRST_S + 2 * one_s - 0.01


async def test_an_overloaded_server_answers_some() -> None:
    async with faulty("overload:2", slots=4) as (_, wire):
        clock = RunClock()
        asked = [wire.exchange(PATH, {}, body()) for _ in range(5)]
        records = [read(exchange, clock)[0] for exchange in await asyncio.gather(*asked)]
    kinds = sorted(record.error_kind or "ok" for record in records)
    assert kinds == ["ok", "ok", "unavailable", "unavailable", "unavailable"]


async def test_a_share_is_reset_and_always_the_same() -> None:
    async def outcomes() -> list[bool]:
        async with faulty("random-reset:0.5", seed=3, time_scale=8.0) as (_, wire):
            found = []
            for _ in range(12):
                exchange = await wire.exchange(PATH, {}, body(max_tokens=24))
                found.append(exchange.ended == "reset")
        return found

    first = await outcomes()
    assert 0 < sum(first) < 12
    assert await outcomes() == first


def test_wrong_faults_are_told_in_one_line() -> None:
    for wrong, why in (
        ("cutt", "did you mean cut"),
        ("cut:x", "whole number"),
        ("cut:1:2", "it is cut:TOKENS"),
        ("stall:-1", "from 0"),
    ):
        with pytest.raises(UserError, match=why):
            parse_fault(wrong)


async def test_a_wrong_header_is_refused_in_the_dialects_words() -> None:
    seen = await measure("cutt")
    assert (seen.exchange.status, seen.record.error_kind) == (400, "refused")
    assert "did you mean cut" in (seen.record.error or "")
    seen = await measure("queue:1")
    assert "--fault" in (seen.record.error or "")
