"""Odd servers on raw sockets, each with the right reading (field notes: nine clients misread them).

Base case: role event at once, first content after 50 ms, then 10 ms steps, 10 content events,
finish, usage with empty choices, [DONE].
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from raw_server import (
    CLOSE,
    DONE,
    END,
    HANG,
    HEAD,
    RESET,
    Step,
    chunk,
    delta,
    event,
    finish,
    raw_server,
    usage,
)

from headroom_bench.crowd.world import Device, Request
from headroom_bench.live import intake as intake_module
from headroom_bench.live.clock import RunClock
from headroom_bench.live.exchange import Exchange, Origin
from headroom_bench.live.measured import fill_from_wire
from headroom_bench.live.reading import Reading, read_stream
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.live.wire import Wire
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment

FIRST_S = 0.05
STEP_S = 0.01
SLACK_S = 0.04
"""How late a loaded machine may be."""


def request(**device: object) -> Request:
    ask = Segment("ask", "user", "prose", "x", 5)
    return Request("p-0/c0/t0/r0", "p-0/c0", "p", 0, 0, 0, (ask,), 10, device=Device(**device))  # type: ignore[arg-type]


async def measure(
    script: Sequence[Step],
    *,
    asked: Request | None = None,
    patience_s: float | None = None,
    round_trip_s: float | None = None,
) -> tuple[RequestRecord, Reading, Exchange]:
    async with raw_server(*script) as server:
        clock = RunClock()
        wire = Wire(Origin.of(server.url), timeouts=Timeouts(first_token_s=1.0, silence_s=1.0))
        exchange = await wire.exchange("/v1/chat/completions", {}, b"{}", patience_s=patience_s)
        wire.close()
    asked = asked or request()
    record = RequestRecord(
        "run", "measured", asked.request_id, asked.conversation_id, "p", 0, 0, 0, "t", None, 0.0
    )
    *_, reading = read_stream(exchange)
    fill_from_wire(record, asked, exchange, reading, clock, round_trip_s)
    return record, reading, exchange


def stream(events: Sequence[bytes], *, last: Sequence[Step] = (END,)) -> list[Step]:
    """Role event at once, then the first event after FIRST_S, the others STEP_S apart."""
    steps: list[Step] = [HEAD, chunk(event(delta(role="assistant", content=""))), FIRST_S]
    for number, data in enumerate(events):
        steps += [STEP_S] if number else []
        steps.append(chunk(data))
    return [*steps, *last]


def answer(deltas: Sequence[dict[str, object]], tokens: int | None = None) -> list[bytes]:
    count = len(deltas) if tokens is None else tokens
    return [
        *(event(delta(**fields)) for fields in deltas),
        event(finish()) + event(usage(5, count)) + DONE,
    ]


TEN = [{"content": f" w{n}"} for n in range(10)]


def near(value: float | None, expected: float) -> bool:
    return value is not None and expected - 0.002 <= value <= expected + SLACK_S


async def test_the_base_case() -> None:
    record, reading, exchange = await measure(stream(answer(TEN)))
    assert record.ok
    assert exchange.ended == "complete"
    assert near(record.ttft_s, FIRST_S)
    assert record.completion_tokens == record.stream_events == 10
    assert record.tokens_source == "usage"
    assert record.tpot_s is not None
    assert near(record.tpot_s, STEP_S)
    assert record.decode_tok_s == pytest.approx(1 / record.tpot_s)
    assert reading.text == "".join(f" w{n}" for n in range(10))


@pytest.mark.parametrize(
    ("prompt_ms", "round_trip_s", "way_s"),
    [(10.0, 0.002, 0.002), (10.0, None, None), (None, 0.002, 0.002), (1e9, 0.002, 0.0)],
)
async def test_of_the_wait_only_the_round_trip_is_known_to_be_the_way(
    prompt_ms: float | None, round_trip_s: float | None, way_s: float | None
) -> None:
    """40 ms that the server does not tell of may be its queue as well."""
    timings = None if prompt_ms is None else {"prompt_n": 5, "prompt_ms": prompt_ms}
    end = event(finish() | ({} if timings is None else {"timings": timings})) + DONE
    record, _, _ = await measure(
        stream([event(delta(content="hi")), end]), round_trip_s=round_trip_s
    )
    assert (record.network_s, record.server_queue_s) == (way_s, None)


async def test_the_role_event_is_no_token() -> None:
    record, _, _ = await measure(stream(answer(TEN)))
    assert record.first_byte_s is not None
    assert record.sent_s is not None
    assert record.ttft_s is not None
    assert record.first_byte_s - record.sent_s < record.ttft_s - FIRST_S / 2


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_counts_as_first_token_whatever_its_key(key: str) -> None:
    thought: list[dict[str, object]] = [{key: f" t{n}"} for n in range(10)]
    script = stream(answer([*thought, *TEN]))
    record, _, _ = await measure(script, asked=request(shows_reasoning=False))
    assert record.ok
    assert near(record.ttft_s, FIRST_S)
    assert near(record.ttfv_s, FIRST_S + 10 * STEP_S)
    assert (record.completion_tokens, record.reasoning_tokens, record.visible_tokens) == (
        20,
        10,
        10,
    )


async def test_reasoning_alone_is_a_success_with_nothing_visible() -> None:
    thought: list[dict[str, object]] = [{"reasoning_content": f" t{n}"} for n in range(10)]
    record, _, _ = await measure(stream(answer(thought)), asked=request(shows_reasoning=False))
    assert record.ok
    assert near(record.ttft_s, FIRST_S)
    assert record.ttfv_s is None
    assert record.visible_tokens == 0


async def test_a_tool_call_is_a_first_token() -> None:
    call = {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}]}
    piece = {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    record, _, _ = await measure(stream(answer([call, *[piece] * 9])))
    assert record.ok
    assert near(record.ttft_s, FIRST_S)
    assert record.completion_tokens == 10


async def test_five_tokens_an_event_are_told_from_events() -> None:
    lumps: list[dict[str, object]] = [{"content": " a b c d e"} for _ in range(10)]
    record, _, _ = await measure(stream(answer(lumps, tokens=50)))
    assert record.stream_events == 10
    assert near(record.itl_p50_s, STEP_S)
    assert record.tpot_s is not None
    assert record.itl_mean_s is not None
    assert record.tpot_s < record.itl_mean_s / 4


async def test_everything_in_one_read_has_no_rate() -> None:
    whole = b"".join(answer(TEN))
    record, _, _ = await measure([HEAD, FIRST_S, chunk(whole), END])
    assert record.ok
    assert near(record.ttft_s, FIRST_S)
    assert record.decode_tok_s is None
    assert record.tpot_s is None


async def test_comments_and_keep_alives_are_skipped() -> None:
    script: list[Step] = [HEAD, chunk(b":\n\n"), 0.02, chunk(b": keep-alive\n\n"), FIRST_S]
    script += [chunk(data) for data in answer(TEN)] + [END]
    record, _, _ = await measure(script)
    assert record.ok
    assert near(record.ttft_s, FIRST_S + 0.02)


@pytest.mark.parametrize(
    ("start", "end"), [(b"data:", b"\n\n"), (b"data: ", b"\r\n\r\n"), (b"data: ", b"\r\r")]
)
async def test_tight_and_foreign_line_ends(start: bytes, end: bytes) -> None:
    events = [event(delta(content=" w"), start=start, end=end) for _ in range(10)]
    tail = [event(finish(), start=start, end=end), event(usage(5, 10), start=start, end=end)]
    record, _, _ = await measure(stream([*events, *tail, start + b"[DONE]" + end]))
    assert record.ok
    assert record.completion_tokens == record.stream_events == 10


async def test_an_event_cut_inside_a_letter_is_stamped_when_it_is_whole() -> None:
    first = event(delta(content="é"))
    cut = first.index("é".encode()) + 1
    script: list[Step] = [HEAD, chunk(first[:cut]), FIRST_S, chunk(first[cut:])]
    script += [chunk(data) for data in answer(TEN[1:], tokens=10)] + [END]
    record, reading, _ = await measure(script)
    assert reading.text.startswith("é w1")
    assert near(record.ttft_s, FIRST_S)


async def test_unicode_line_separators_do_not_split_events() -> None:
    deltas: list[dict[str, object]] = [{"content": "a\u2028b\u0085c"}, *TEN[1:]]
    record, reading, _ = await measure(stream(answer(deltas)))
    assert record.ok
    assert reading.text.startswith("a\u2028b\u0085c")


@pytest.mark.parametrize("tokens", [0, 4])
async def test_an_error_inside_a_200_stream_is_a_failure(tokens: int) -> None:
    broken = event({"error": {"message": "out of memory", "code": 500}}) + DONE
    record, _, _ = await measure(stream([*(event(delta(**d)) for d in TEN[:tokens]), broken]))
    assert not record.ok
    assert record.error_kind == "stream_error"
    assert record.error == "out of memory"
    assert (record.ttft_s is not None) == (tokens > 0)


async def test_the_old_error_field_of_llamacpp_is_a_failure() -> None:
    told = b'error: {"code":400,"message":"too long for the context size, exceeds it"}\n\n'
    record, _, _ = await measure([HEAD, chunk(told + DONE), END])
    assert not record.ok
    assert record.error_kind == "context_exceeded"


@pytest.mark.parametrize(
    ("last", "kind"), [((END,), "truncated"), ((CLOSE,), "truncated"), ((RESET,), "reset")]
)
async def test_an_answer_that_breaks_off_is_no_success(last: tuple[Step, ...], kind: str) -> None:
    half = [event(delta(**fields)) for fields in TEN[:4]]
    record, _, _ = await measure(stream(half, last=last))
    assert not record.ok
    assert record.error_kind == kind
    assert record.stream_events == 4
    assert near(record.ttft_s, FIRST_S)


async def test_done_without_a_finish_reason_is_truncated() -> None:
    record, _, _ = await measure(stream([*(event(delta(**d)) for d in TEN), DONE]))
    assert record.error_kind == "truncated"


async def test_a_body_left_open_ends_at_done() -> None:
    record, _, exchange = await measure(stream(answer(TEN), last=(HANG,)))
    assert record.ok
    assert exchange.ended == "marker"
    assert near(record.e2e_s, FIRST_S + 10 * STEP_S)


async def test_done_inside_an_answer_is_text() -> None:
    deltas: list[dict[str, object]] = [{"content": "data: [DONE]"}, {"content": "[DONE]"}, *TEN]
    record, reading, _ = await measure(stream(answer(deltas)))
    assert record.ok
    assert record.completion_tokens == 12
    assert reading.text.startswith("data: [DONE][DONE]")


@pytest.mark.parametrize(
    ("tail", "source", "tokens"),
    [
        (event(finish()) + DONE, "events", 10),
        (event({**finish(), "usage": {"prompt_tokens": 5, "completion_tokens": 10}}) + DONE,
         "usage", 10),
        (event(finish()) + event({"choices": None, "usage": {"prompt_tokens": 5,
         "completion_tokens": 10}}) + DONE, "usage", 10),
        (event(finish()) + event(usage(0, 0)) + DONE, "events", 10),
        (event({**finish(), "timings": {"cache_n": 2, "prompt_n": 3, "prompt_ms": 50.0,
         "predicted_n": 10, "predicted_ms": 90.0}}) + DONE, "timings", 10),
    ],
    ids=["none", "in the last choice", "null choices", "all zeros", "timings only"],
)  # fmt: skip
async def test_wherever_the_counts_stand(tail: bytes, source: str, tokens: int) -> None:
    record, _, _ = await measure(stream([*(event(delta(**d)) for d in TEN), tail]))
    assert record.ok
    assert record.tokens_source == source
    assert record.completion_tokens == tokens
    assert record.prompt_tokens == (None if source == "events" else 5)


async def test_a_finish_without_a_token_is_empty() -> None:
    record, _, _ = await measure(stream([event(finish("stop")) + DONE]))
    assert record.error_kind == "empty"


async def test_one_byte_writes() -> None:
    whole = b"".join(answer(TEN[:2]))
    pieces: list[Step] = [chunk(whole[n : n + 1]) for n in range(len(whole))]
    record, _, _ = await measure([HEAD, *pieces, END])
    assert record.ok
    assert record.completion_tokens == 2


async def test_a_byte_order_mark_and_empty_data_are_skipped() -> None:
    whole = b"\xef\xbb\xbf" + b"".join(answer(TEN[:1])) + b"data:\n\n" + DONE
    record, _, _ = await measure([HEAD, chunk(whole), END])
    assert record.ok
    assert record.completion_tokens == 1


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, b'{"error":{"message":"Invalid API Key"}}', "unauthorized"),
        (404, b"nope", "not_found"),
        (429, b"", "rate_limited"),
        (503, b'{"error":{"message":"Loading model"}}', "unavailable"),
        (500, b"<html>boom</html>", "server_error"),
        (400, b'{"error":{"message":"bad","type":"invalid_request_error"}}', "refused"),
        (400, b'{"error":{"type":"exceed_context_size_error","message":"x"}}', "context_exceeded"),
        (200, b"<html>hello</html>", "nonsense"),
        (200, b"", "nonsense"),
    ],
)
async def test_plain_answers_have_named_kinds(status: int, body: bytes, kind: str) -> None:
    head = b"HTTP/1.1 %d X\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % (
        status,
        len(body),
    )
    record, _, _ = await measure([head + body])
    assert not record.ok
    assert record.error_kind == kind
    assert record.error


async def test_what_is_not_http_is_named() -> None:
    record, _, _ = await measure([b"SSH-2.0-OpenSSH_9.2\r\n", CLOSE])
    assert record.error_kind == "not_http"


async def test_a_connection_closed_at_once_is_a_reset() -> None:
    record, _, _ = await measure([CLOSE])
    assert record.error_kind == "reset"


async def test_nobody_listens() -> None:
    async with raw_server() as server:
        pass
    wire = Wire(Origin.of(server.url))
    exchange = await wire.exchange("/x", {}, b"{}")
    assert exchange.ended == "connect_failed"


async def test_silence_runs_out_and_patience_runs_out_earlier() -> None:
    record, _, _ = await measure([HEAD, HANG])
    assert record.error_kind == "timeout"
    record, _, _ = await measure([HEAD, HANG], patience_s=0.05)
    assert record.error_kind == "abandoned"
    assert near(record.e2e_s, 0.05)


async def test_a_stream_that_moves_keeps_the_person() -> None:
    record, _, _ = await measure(stream(answer(TEN)), patience_s=FIRST_S + SLACK_S)
    assert record.ok


async def test_connections_are_reused_and_a_closed_one_is_not() -> None:
    async with raw_server(*stream(answer(TEN[:2]))) as server:
        wire = Wire(Origin.of(server.url))
        for number in range(3):
            exchange = await wire.exchange("/x", {}, b"{}")
            assert exchange.ended == "complete"
            assert exchange.reused == (number > 0)
        assert server.connections == 1
        wire.close()
    async with raw_server(*stream(answer(TEN[:2])), CLOSE) as server:
        wire = Wire(Origin.of(server.url))
        for _ in range(2):
            exchange = await wire.exchange("/x", {}, b"{}")
            assert exchange.ended == "complete"
            while wire._idle and wire._idle[0].usable:  # the close is on its way
                await asyncio.sleep(0)
        assert server.connections == 2
        wire.close()


async def test_interrupt_ends_what_is_in_flight() -> None:
    async with raw_server(HEAD, chunk(event(delta(content=" a"))), HANG) as server:
        wire = Wire(Origin.of(server.url))
        sent = asyncio.Event()
        going = asyncio.create_task(wire.exchange("/x", {}, b"{}", on_sent=lambda _: sent.set()))
        await sent.wait()
        assert wire.in_flight == 1
        wire.interrupt()
        exchange = await going
        assert exchange.ended == "interrupted"
        assert wire.in_flight == 0
        wire.close()


async def test_the_request_is_what_http_wants() -> None:
    async with raw_server(*stream(answer(TEN[:1]))) as server:
        wire = Wire(Origin.of(f"{server.url}/api/v1/"))
        await wire.exchange("/v1/chat/completions", {"Authorization": "Bearer k"}, b'{"a":1}')
        wire.close()
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /api/v1/chat/completions HTTP/1.1"
    assert f"Host: 127.0.0.1:{server.port}" in lines
    assert "Authorization: Bearer k" in lines
    assert "Content-Length: 7" in lines
    assert body == b'{"a":1}'


async def test_a_token_that_decodes_to_nothing_is_a_first_token() -> None:
    def counted(n: int, **fields: object) -> bytes:
        return event({**delta(**fields), "usage": {"prompt_tokens": 5, "completion_tokens": n}})

    events = [counted(1, content=""), *(counted(n + 2, content=f" w{n}") for n in range(9))]
    tail = event(finish()) + event(usage(5, 10)) + DONE
    record, _, _ = await measure(stream([*events, tail]))
    assert record.ok
    assert near(record.ttft_s, FIRST_S)
    assert record.stream_events == 10
    assert record.tpot_s is not None
    assert near(record.tpot_s, STEP_S)


async def test_running_counts_tell_the_tokens_of_the_first_event() -> None:
    """llama.cpp holds the first token's text back until the second makes it whole."""

    def counted(n: int, text: str) -> bytes:
        return event({**delta(content=text), "timings": {"predicted_n": n}})

    events = [counted(n + 2, f" w{n}") for n in range(9)]
    record, _, _ = await measure(stream([*events, event(finish()) + event(usage(5, 10)) + DONE]))
    assert record.stream_events == 9
    assert record.tpot_s == pytest.approx(record.itl_mean_s)


async def test_an_error_event_before_an_open_body_ends_the_answer() -> None:
    broken = event({"error": {"message": "boom"}})
    record, _, exchange = await measure(stream([event(delta(content=" a")), broken], last=(HANG,)))
    assert record.error_kind == "stream_error"
    assert exchange.ended == "marker"
    assert record.e2e_s is not None
    assert record.e2e_s < FIRST_S + STEP_S + SLACK_S


async def test_a_finish_before_an_open_body_without_done_ends_the_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(intake_module, "FINISHED_GRACE_S", 0.1)
    tail = event(finish()) + event(usage(5, 10))
    record, _, exchange = await measure(
        stream([*(event(delta(**d)) for d in TEN), tail], last=(HANG,))
    )
    assert record.ok
    assert exchange.ended == "marker"
    assert near(record.e2e_s, FIRST_S + 10 * STEP_S)


async def test_usage_may_come_late_after_the_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "FINISHED_GRACE_S", 0.1)
    steps = stream([*(event(delta(**d)) for d in TEN), event(finish())], last=())
    late = [0.06, chunk(b": wait\n\n"), 0.06, chunk(event(usage(5, 10)) + DONE), END]
    record, _, exchange = await measure([*steps, *late])
    assert exchange.ended == "complete"
    assert record.tokens_source == "usage"


async def test_keep_alive_comments_do_not_please_a_person() -> None:
    comments: list[Step] = [step for _ in range(20) for step in (chunk(b":\n\n"), 0.02)]
    record, _, _ = await measure([HEAD, *comments, HANG], patience_s=0.1)
    assert record.error_kind == "abandoned"
    assert near(record.e2e_s, 0.1)


async def test_a_word_and_the_end_of_sequence_are_no_buffered_stream() -> None:
    """llama.cpp counts the end of sequence, which comes in no event."""
    record, _, _ = await measure(stream(answer([{"content": " Yes"}], tokens=2)))
    assert (record.ok, record.stream_events, record.completion_tokens) == (True, 1, 2)
    assert not record.buffered


async def test_a_buffered_stream_is_flagged() -> None:
    record, _, _ = await measure([HEAD, FIRST_S, chunk(b"".join(answer(TEN))), END])
    assert record.buffered is True
    record, _, _ = await measure(stream(answer(TEN)))
    assert record.buffered is False
