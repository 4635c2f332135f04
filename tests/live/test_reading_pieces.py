"""However a body is cut into pieces, it says the same, and says it when its pieces have come."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_recordings import CAPTURES

from headroom_bench.live.exchange import Exchange
from headroom_bench.live.reading import Reading, _json, read_stream
from headroom_bench.live.sse import stream_events

STREAMS = sorted(
    path
    for pattern in ("llamacpp/*/http/chat_stream*.resp", "vllm/0.32.0/*/chat_stream*.resp")
    for path in CAPTURES.glob(pattern)
    if b"text/event-stream" in path.read_bytes() and path.stat().st_size < 20_000
)


def body_of(path: Path) -> bytes:
    """The body without its chunk framing."""
    _, _, framed = path.read_bytes().partition(b"\r\n\r\n")
    body = b""
    while framed:
        size, _, rest = framed.partition(b"\r\n")
        length = int(size or b"0", 16)
        body, framed = body + rest[:length], rest[length + 2 :]
    return body


def read(pieces: list[bytes]) -> Reading:
    exchange = Exchange(status=200, headers={"content-type": "text/event-stream"})
    exchange.pieces, exchange.stamps_ns = pieces, list(range(1, len(pieces) + 1))
    *_, reading = read_stream(exchange)
    return reading


def said(reading: Reading) -> tuple[object, ...]:
    """Everything but the stamps and the running counts between first and last."""
    counts = reading.token_counts
    return (
        reading.text,
        reading.channels,
        counts[:1],
        counts[-1:],
        reading.finish_reason,
        reading.usage,
        reading.error,
        reading.nonsense,
        reading.done_mark,
    )


def cut(body: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % (len(body) + 1) for place in places} | {len(body)})
    return [body[a:b] for a, b in zip([0, *ends], ends, strict=False) if b > a]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_byte_by_byte_says_what_event_by_event_says(path: Path) -> None:
    body = body_of(path)
    events = [part + b"\n\n" for part in body.split(b"\n\n") if part.strip()]
    whole = said(read([body]))
    assert said(read(events)) == whole
    assert said(read([body[n : n + 1] for n in range(len(body))])) == whole


@given(st.sampled_from(STREAMS), st.lists(st.integers(0, 2**31), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_cut_says_the_same(path: Path, places: list[int]) -> None:
    body = body_of(path)
    reading = read(cut(body, places))
    assert said(reading) == said(read([body]))
    stamps = reading.stamps_ns
    assert stamps == sorted(stamps)


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_any_bytes_are_read_without_raising(pieces: list[bytes]) -> None:
    assert read(pieces).events == sum(
        1
        for event in stream_events(enumerate(pieces))
        if event and event.data.strip() not in (b"", b"[DONE]")
    )


@given(
    st.lists(st.text(alphabet="ab:é\u2028 ", min_size=1, max_size=8), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 2**31), max_size=10),
)
def test_events_come_back_whole_with_any_line_end(
    texts: list[str], line_end: str, places: list[int]
) -> None:
    body = "".join(f"data: {text}{line_end}{line_end}" for text in texts).encode()
    pieces = list(enumerate(cut(body, places)))
    assert [event.data.decode() for event in stream_events(pieces) if event] == texts


@pytest.mark.parametrize(
    ("recorded", "tokens"),
    [
        ("vllm/0.32.0/http/chat_stream_token_ids.resp", 3),
        ("llamacpp/b11549/http/chat_stream_logprobs.resp", None),
    ],
)
def test_events_that_list_their_tokens_are_counted(recorded: str, tokens: int | None) -> None:
    body = body_of(CAPTURES / recorded)
    reading = read([part + b"\n\n" for part in body.split(b"\n\n") if part.strip()])
    counts = reading.token_counts
    assert counts == list(range(1, len(counts) + 1))
    assert reading.usage is None or reading.usage["completion_tokens"] == counts[-1]
    assert len(counts) == (tokens or len(counts)) > 1


@pytest.mark.parametrize("field", ["token_ids", "logprobs"])
def test_several_tokens_an_event(field: str) -> None:
    def told(text: str, ids: list[int]) -> bytes:
        lists = {"content": [{"id": one, "logprob": -0.5} for one in ids]}
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
        choice[field] = ids if field == "token_ids" else lists
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    reading = read([told(" a", [1, 2, 3]), told("", [4]), told(" b", [5, 6]), told(" c", [7, 8])])
    assert reading.token_counts == [3, 4, 6, 8]
    assert reading.channels == [
        "content", "silent", "content", "content",
    ]  # fmt: skip


NUMBERS = ["-0", "1e400", "1e-400", "0.1", "-1E+2", "9" * 30, "NaN", "-Infinity", "01"]
TEXTS = [r'"\ud800"', r'"\u00e9\n"', '"a\nb"', r'"\/"', '""', '"\t"', '"\x7f"', r'"\q"']


@given(
    st.recursive(
        st.sampled_from(["null", "true", *NUMBERS, *TEXTS]) | st.text(max_size=4).map(json.dumps),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
            | st.lists(st.tuples(st.sampled_from(['"a"', '"b"']), inner), max_size=3).map(
                lambda each: f"{{{','.join(f'{key}:{value}' for key, value in each)}}}"
            )
        ),
        max_leaves=6,
    )
)
@settings(max_examples=500, deadline=None)
def test_a_fast_decoder_says_what_the_usual_one_does(text: str) -> None:
    try:
        usual = json.loads(text, strict=False)
    except ValueError:
        usual = None
    assert repr(_json(text.encode("utf-8", "surrogatepass"))) == repr(usual)
