"""Where an answer ends, and where it only seems to."""

from __future__ import annotations

import gzip
from collections.abc import Sequence

import pytest
from raw_server import CLOSE, DONE, END, HANG, HEAD, RESET, Step, chunk, delta, event, finish, usage
from test_stream_behaviours import TEN, answer, measure, stream

from headroom_bench.live import intake as intake_module

PLAIN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
TAIL = event(finish()) + event(usage(5, 3)) + DONE
SLOW = [event(delta(content=" w")), 0.4, event(delta(content=" w")), 0.1, event(delta(content="."))]
"""Two stretches of silence, longer than the grace after an end."""


def bytewise(data: bytes) -> list[Step]:
    return [chunk(data[n : n + 1]) for n in range(len(data))]


def chunks(steps: Sequence[Step]) -> list[Step]:
    return [chunk(step) if isinstance(step, bytes) else step for step in steps]


@pytest.mark.parametrize("text", ["data: [DONE]", 'error: {"', 'data: {"error":{"x'])
async def test_an_end_mark_in_a_text_that_comes_byte_by_byte(text: str) -> None:
    """Looked at through a window of some bytes, it stands at the window's beginning."""
    data = event(delta(content=f" says {text} and goes on after it for a long while"))
    script: list[Step] = [HEAD, *bytewise(data), 0.4, *chunks([*SLOW[2:], TAIL]), END]
    record, reading, exchange = await measure(script)
    assert record.ok
    assert exchange.ended == "complete"
    assert text in reading.text
    assert record.stream_events == 3


@pytest.mark.parametrize("told", ["null", '""', "{}"])
async def test_an_error_field_without_an_error_is_none(told: str) -> None:
    steps: list[Step] = [
        step.replace(b'{"choices"', b'{"error": %b, "choices"' % told.encode())
        if isinstance(step, bytes)
        else step
        for step in SLOW
    ]
    record, _, exchange = await measure([HEAD, *chunks([*steps, TAIL]), END])
    assert record.ok
    assert exchange.ended == "complete"
    assert record.stream_events == 3


@pytest.mark.parametrize("told", ['{"message":"boom"}', '{ "message": "boom" }', '"boom"'])
@pytest.mark.parametrize("cut", [False, True])
async def test_an_error_ends_it_however_it_is_written(told: str, cut: bool) -> None:
    data = b'data: {"error": ' + told.encode() + b"}\n\n"
    steps = bytewise(data) if cut else [chunk(data)]
    record, _, exchange = await measure([HEAD, chunk(event(delta(content=" w"))), *steps, HANG])
    assert (record.error_kind, record.error) == ("stream_error", "boom")
    assert exchange.ended == "marker"


async def test_an_empty_finish_reason_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "FINISHED_GRACE_S", 0.1)
    steps: list[Step] = [
        step.replace(b'"finish_reason": null', b'"finish_reason": ""')
        if isinstance(step, bytes)
        else step
        for step in SLOW
    ]
    record, _, exchange = await measure([HEAD, *chunks([*steps, TAIL]), END])
    assert record.ok
    assert exchange.ended == "complete"


async def test_a_finish_reason_in_a_text_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "FINISHED_GRACE_S", 0.1)
    texts = ['{"finish_reason":"stop"}', '"error"', '"},"finish_reason":"stop"}]}\n\ndata: [DONE]']
    events: list[Step] = [step for text in texts for step in (event(delta(content=text)), 0.3)]
    record, reading, exchange = await measure([HEAD, *chunks([*events, TAIL]), END])
    assert record.ok
    assert exchange.ended == "complete"
    assert reading.text == "".join(texts)
    assert record.finish_reason == "length"


@pytest.mark.parametrize("last", [(RESET,), (CLOSE,), (b"\x00garbage\r\n", HANG), (HANG,)])
async def test_after_done_nothing_can_go_wrong(last: tuple[Step, ...]) -> None:
    """The answer is whole: a reset, a close without the last chunk, or nonsense is no failure."""
    record, _, exchange = await measure(stream(answer(TEN), last=last))
    assert record.ok, record.error
    assert exchange.ended == "marker"
    assert record.completion_tokens == 10


@pytest.mark.parametrize("done", [b"data:[DONE]\n\n", b"data:  [DONE] \n\n", b"data: [DONE]"])
async def test_done_however_it_is_written(done: bytes) -> None:
    script = stream([*(event(delta(**d)) for d in TEN), event(finish()), event(usage(5, 10)), done])
    record, reading, _ = await measure(script)
    assert record.ok, record.error
    assert reading.done_mark


@pytest.mark.parametrize(
    "kind",
    [b"Content-Type: Text/Event-Stream; charset=utf-8\r\n", b"", b"Content-Type: text/plain\r\n"],
)
async def test_a_stream_that_is_not_named_one(kind: bytes) -> None:
    """Home-made servers forget the type, or spell it their own way."""
    head = b"HTTP/1.1 200 OK\r\n" + kind + b"Transfer-Encoding: chunked\r\n\r\n"
    script: list[Step] = [head, *chunks([b"\xef\xbb\xbf" + event(delta(content=" w")), TAIL]), END]
    record, _, _ = await measure(script)
    assert record.ok, record.error
    assert record.completion_tokens == 3


async def test_a_page_that_looks_like_a_stream_is_a_page() -> None:
    body = b"data: hello"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    record, _, _ = await measure([head + body])
    assert record.error_kind == "nonsense"


async def test_a_packed_error_is_unpacked() -> None:
    body = gzip.compress(b'{"error":{"message":"no such model"}}')
    head = b"HTTP/1.1 404 X\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    record, _, _ = await measure([head + body])
    assert record.error == "HTTP 404: no such model"


# --- HTTP ---------------------------------------------------------------------------------------

WHOLE = b"".join(answer(TEN))


@pytest.mark.parametrize(
    "script",
    [
        [b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", WHOLE, CLOSE],
        [PLAIN_HEAD + b"\r\n", *(WHOLE[n : n + 1] for n in range(0, 300)), WHOLE[300:], CLOSE],
        [PLAIN_HEAD + b"Content-Length: %d\r\n\r\n" % len(WHOLE), WHOLE],
        [b"HTTP/1.1 100 Continue\r\n\r\n", HEAD, chunk(WHOLE), END],
        [b"HTTP/1.1 103 Early Hints\r\nContent-Type: text/html\r\n\r\n" + HEAD, chunk(WHOLE), END],
        [HEAD, b"%X;ext=1\r\n" % len(WHOLE), WHOLE, b"\r\n", END],
        [HEAD, b"%08x\r\n" % len(WHOLE), WHOLE, b"\r", b"\n", END],
        [HEAD, chunk(WHOLE), b"0\r\nContent-Type: text/html\r\nX-Time: 1\r\n\r\n"],
        [HEAD, chunk(WHOLE) + END + b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno"],
        [HEAD, chunk(WHOLE) + END + b"nonsense"],
        [*(HEAD[n : n + 1] for n in range(len(HEAD))), chunk(WHOLE), END],
    ],
    ids=[
        "http/1.0", "until the close", "with a length", "100", "103", "extension", "leading zeros",
        "trailer", "a second answer", "nonsense after it", "slow head",
    ],
)  # fmt: skip
async def test_a_whole_answer_in_every_frame(script: list[Step]) -> None:
    record, _, _ = await measure(script)
    assert record.ok, record.error
    assert record.completion_tokens == 10


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        ([b"data: hello\n\n", CLOSE], "not_http"),
        ([b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HANG], "not_http"),
        ([b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", HANG], "not_http"),
        ([b"HTTP/1.1 101 X\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\nhi", HANG], "not_http"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], "nonsense"),
        ([b"HTTP/1.1 304 Not Modified\r\n\r\n"], "refused"),
        ([b"HTTP/1.1 307 X\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n"], "refused"),
        ([HEAD, b"zz\r\n", HANG], "not_http"),
        ([HEAD, b"5\r\nhello!!\r\n", HANG], "not_http"),
        ([HEAD, chunk(event(delta(content=" w"))), b"ffffffffffffffffff\r\n", HANG], "not_http"),
        ([PLAIN_HEAD + b"Content-Length: 900\r\n\r\n", WHOLE[:300], CLOSE], "truncated"),
        ([b"HTTP/1.1 200 OK\r\nContent-Ty", CLOSE], "reset"),
    ],
)
async def test_what_is_no_answer_has_a_name(script: list[Step], kind: str) -> None:
    record, _, exchange = await measure(script)
    assert record.error_kind == kind, record.error
    assert record.error
    assert exchange.end_ns
