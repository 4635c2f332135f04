"""What servers say beside, after or instead of an answer, and what of it is believed."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest
from raw_server import DONE, END, HANG, HEAD, RESET, Step, chunk, delta, event, finish, usage
from test_stream_behaviours import measure

from headroom_bench.live.measured import suspicion

WORDS = [event(delta(content=f" w{n}")) for n in range(4)]
TAIL = event(finish()) + event(usage(5, 4)) + DONE
HUGE = "1" + "0" * 400


def streamed(*events: bytes, end: Step = END) -> list[Step]:
    """Each event in a chunk of its own, 10 ms apart."""
    steps: list[Step] = [HEAD]
    for data in events:
        steps += [chunk(data), 0.01]
    return [*steps, end]


def with_count(table: str, told: str) -> list[bytes]:
    """The words, each with a running count."""
    return [word.rstrip()[:-1] + b"," + (table % told).encode() + b"}\n\n" for word in WORDS]


# --- counts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table", ['"usage":{"completion_tokens":%s}', '"timings":{"predicted_n":%s}']
)
@pytest.mark.parametrize("told", [HUGE, str(2**64), "true", "-1", "1.5", '"4"'])
@pytest.mark.parametrize("whole", [True, False])
async def test_a_running_count_that_is_none_is_unknown(table: str, told: str, whole: bool) -> None:
    record, _, _ = await measure(streamed(*with_count(table, told), *([TAIL] if whole else [])))
    assert record.ok == whole
    assert record.completion_tokens == 4
    assert record.tokens_source == ("usage" if whole else "events")
    assert record.tpot_s is not None
    assert 0.005 < record.tpot_s < 0.05


async def test_running_counts_that_the_last_one_belies_are_not_used() -> None:
    fast = with_count('"usage":{"completion_tokens":%s}', "1000")
    record, _, _ = await measure(streamed(*WORDS[:1], *fast, event(finish()), TAIL))
    assert record.completion_tokens == 4
    assert record.decode_tok_s is not None
    assert record.decode_tok_s < 200


async def test_final_counts_and_times_that_cannot_be_are_unknown() -> None:
    timings = {"prompt_n": 5, "prompt_ms": -100.0, "predicted_n": 4, "predicted_ms": 1e300}
    last = event({**finish(), "usage": {"prompt_tokens": 10**14}, "timings": timings})
    record, _, _ = await measure(streamed(*WORDS, last, DONE))
    assert record.ok
    assert (record.server_prefill_s, record.server_decode_s) == (None, None)
    assert (record.prompt_tokens, record.completion_tokens) == (5, 4)


async def test_times_longer_than_the_request_are_suspect() -> None:
    timings = {"prompt_n": 5, "prompt_ms": 1e6, "predicted_n": 4, "predicted_ms": 20.0}
    record, _, _ = await measure(streamed(*WORDS, event({**finish(), "timings": timings}), DONE))
    told = "the server's own times are longer than the request took"
    assert (record.server_prefill_s, suspicion(record, None)) == (1000.0, told)


# --- after the end ------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    "late",
    [
        b"data: garbage\n\n",
        b'data: {"error":{"message":"late"}}\n\n',
        b"event: error\ndata: late\n\n",
        WORDS[0],
        b"".join(WORDS) + TAIL,
    ],
)
async def test_what_comes_after_the_end_is_no_part_of_the_answer(
    late: bytes, together: bool
) -> None:
    ends = [TAIL + late] if together else [TAIL, late]
    record, reading, _ = await measure(streamed(*WORDS, *ends))
    assert (record.ok, record.error_kind, suspicion(record, None)) == (True, None, None)
    assert reading.text == " w0 w1 w2 w3"
    assert record.stream_events == 4


async def test_counts_after_the_end_still_count() -> None:
    record, _, _ = await measure(streamed(*WORDS, event(finish()) + DONE, event(usage(5, 6))))
    assert (record.ok, record.completion_tokens, record.tokens_source) == (True, 6, "usage")


async def test_a_reset_after_the_finish_reason_is_as_good_as_a_close() -> None:
    last = event(finish()) + event(usage(5, 4))
    record, _, _ = await measure([*streamed(*WORDS, last, end=0.05), RESET])
    assert (record.ok, record.completion_tokens) == (True, 4)


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told",
    [
        b"event: error\ndata: boom\n\n",
        b'event: error\ndata: {"message":"boom"}\n\n',
        b'data: {"object":"error","message":"boom","code":400}\n\n',
        b'data: {"detail":"boom"}\n\n',
    ],
)
async def test_an_error_however_it_is_told(told: bytes) -> None:
    record, _, _ = await measure(streamed(*WORDS[:2], told))
    assert (record.error_kind, record.error) == ("stream_error", "boom")
    assert record.stream_events == 2


@pytest.mark.parametrize(
    "told",
    [
        b'event: status\ndata: {"detail":"loading the model"}\n\n',
        b'data: {"detail":"cheap","usage":{"prompt_tokens":5,"completion_tokens":4}}\n\n',
        b'data: {"detail":"","choices":[]}\n\n',
    ],
)
async def test_a_detail_beside_an_answer_is_no_error(told: bytes) -> None:
    last = event(finish()) + event(usage(5, 4)) + DONE
    record, _, _ = await measure(streamed(*WORDS[:2], told, *WORDS[2:], last))
    assert (record.ok, record.error, record.stream_events) == (True, None, 4)


@pytest.mark.parametrize("told", [b'data: {"error":1}\n\n', b"event: error\ndata: boom\n\n"])
async def test_an_error_is_an_end_and_not_waited_past(told: bytes) -> None:
    record, _, exchange = await measure(streamed(*WORDS[:2], told, end=HANG))
    assert exchange.ended == "marker"
    assert record.error_kind == "stream_error"


@pytest.mark.parametrize("said", [b"event: ping\ndata: ping\n\n", b"event: ping\ndata: {}\n\n"])
async def test_an_event_of_another_name_says_what_it_likes(said: bytes) -> None:
    record, _, _ = await measure(streamed(*WORDS[:2], said, *WORDS[2:], TAIL))
    assert (record.ok, record.error, record.stream_events) == (True, None, 4)


@pytest.mark.parametrize("reason", ["error", "abort"])
async def test_an_answer_that_was_given_up_by_the_server_is_a_failure(reason: str) -> None:
    record, _, _ = await measure(streamed(*WORDS, event(finish(reason)), event(usage(5, 4)), DONE))
    assert record.error_kind == "stream_error"
    assert record.error == f"the answer ended with the finish reason {reason}"


# --- one event, one moment ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "also",
    [
        {"reasoning_content": "hm"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
    ],
)
async def test_an_event_on_two_channels_is_one_event(also: dict[str, Any]) -> None:
    events = [event(delta(content=f" w{n}", **also)) for n in range(4)]
    record, reading, _ = await measure(streamed(*events, TAIL))
    assert (record.stream_events, suspicion(record, None)) == (4, None)
    assert set(reading.channels) == {"content"}
    assert record.itl_p50_s is not None
    assert record.itl_p50_s > 0.005


async def test_two_choices_in_an_event_are_one_event() -> None:
    choice = {"delta": {"content": " w"}, "finish_reason": None}
    both = event({"choices": [{"index": 0, **choice}, {"index": 1, **choice}]})
    record, _, _ = await measure(streamed(*[both] * 4, event(finish()), event(usage(5, 8)), DONE))
    assert (record.stream_events, record.completion_tokens) == (4, 8)


@pytest.mark.parametrize("told", [None, "four", -1, 10**9])
async def test_a_count_that_cannot_be_is_not_told_and_events_are_counted(told: Any) -> None:
    last = event({**finish(), "timings": {"prompt_n": 5, "predicted_n": told}})
    record, _, _ = await measure(streamed(*WORDS, last, DONE))
    assert (record.ok, record.completion_tokens, record.tokens_source) == (True, 4, "events")


async def test_a_rate_is_not_of_reasoning_that_was_kept_back() -> None:
    """40 hidden tokens before four words, in no event: they came with the first."""
    told = usage(5, 44, completion_tokens_details={"reasoning_tokens": 40})
    record, _, _ = await measure(streamed(*WORDS, event(finish()) + event(told) + DONE))
    assert (record.reasoning_tokens, record.visible_tokens, record.stream_events) == (40, 4, 4)
    assert record.last_token_s is not None
    assert record.ttft_s is not None
    assert record.tpot_s == pytest.approx((record.last_token_s - record.ttft_s) / 3)


# --- packed bodies ------------------------------------------------------------------------------

WHOLE = b"".join([*WORDS, TAIL])


def packed(body: bytes, encoding: str, end: Step = END) -> list[Step]:
    head = HEAD[:-2] + f"Content-Encoding: {encoding}\r\n\r\n".encode()
    return [head, chunk(body), end]


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (gzip.compress(WHOLE), "gzip"),
        (gzip.compress(WHOLE), "GZIP "),
        (gzip.compress(WHOLE), "identity, x-gzip"),
        (gzip.compress(WHOLE) + b"\0\0\0", "gzip"),
        (gzip.compress(WHOLE) + b"and more", "gzip"),
        (b"\0\0\0".join(gzip.compress(word) for word in [*WORDS, TAIL]), "gzip"),
        (b"".join(gzip.compress(word) for word in [*WORDS, b"", TAIL]), "gzip"),
        (zlib.compress(WHOLE) + b"and more", "deflate"),
        (b"".join(gzip.compress(word) for word in [*WORDS, TAIL]), "gzip"),
        (zlib.compress(WHOLE), "deflate"),
        (bare_deflate(WHOLE), "deflate"),
        (WHOLE, "identity"),
        (WHOLE, "none"),
        (WHOLE, "UTF-8"),
    ],
)
@pytest.mark.parametrize("end", [END, HANG])
async def test_a_packed_answer_is_read_and_its_end_seen(
    body: bytes, encoding: str, end: Step
) -> None:
    record, reading, exchange = await measure(packed(body, encoding, end))
    assert (record.ok, record.error) == (True, None)
    assert (record.stream_events, reading.text) == (4, " w0 w1 w2 w3")
    assert exchange.ended == ("complete" if end == END else "marker")


@pytest.mark.parametrize(
    ("body", "encoding", "told"),
    [
        (WHOLE, "br", "the body is packed with 'br', which nobody asked for"),
        (WHOLE, "gzip, zstd", "the body is packed with 'gzip, zstd', which nobody asked for"),
        (WHOLE, "gzip", "the body is no gzip as it says"),
        (b"\0\0" + gzip.compress(WHOLE), "gzip", "the body is no gzip as it says"),
        (gzip.compress(b"") * 1001, "gzip", "more than 1,000 empty members are packed in it"),
        (gzip.compress(WHOLE)[:12] + b"?" * 40, "gzip", "the body is no gzip as it says: Error -3"),
    ],
)
@pytest.mark.parametrize("end", [END, HANG])
async def test_a_body_that_nobody_can_unpack_says_so(
    body: bytes, encoding: str, told: str, end: Step
) -> None:
    record, _, _ = await measure(packed(body, encoding, end))
    assert record.error_kind == "nonsense"
    assert (record.error or "").startswith(told)


async def test_a_packed_body_that_breaks_off_is_read_as_far_as_it_goes() -> None:
    packer = zlib.compressobj(wbits=31)
    begun = packer.compress(b"".join(WORDS)) + packer.flush(zlib.Z_SYNC_FLUSH)
    record, reading, _ = await measure(packed(begun, "gzip"))
    assert record.error_kind == "truncated"
    assert reading.text == " w0 w1 w2 w3"
