"""What is read by shortcuts equals what is read without them, whatever a server sends.

Two shortcuts stand in the measured path: events like an earlier one are not parsed as JSON, and a
read that is one whole chunk does not go through the HTTP parser.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_server import DONE, END, chunk, delta, event, finish, raw_server, usage
from test_reading_pieces import STREAMS, body_of, cut

from headroom_bench.live import wire as wire_module
from headroom_bench.live.alike import LONGEST_RUN, Alike, Stamped
from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.exchange import Exchange, Origin
from headroom_bench.live.intake import _END_MARK, Held, Intake, any_byte
from headroom_bench.live.reading import Reading, failure, read_stream
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.live.wire import Wire, _Connection, _HttpIntake

# --- events -------------------------------------------------------------------------------------


def read(pieces: Sequence[bytes]) -> Reading:
    exchange = Exchange(status=200, headers={"content-type": "text/event-stream"})
    exchange.pieces, exchange.stamps_ns = list(pieces), list(range(1, len(pieces) + 1))
    *_, reading = read_stream(exchange)
    return reading


def read_plainly(pieces: Sequence[bytes]) -> Reading:
    """Every event parsed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alike, "take_run", lambda self, first, *more: first)
        return read(pieces)


def said(reading: Reading) -> Reading:
    """All but the running counts between the first and the last, which may be left out."""
    told = copy.copy(reading)
    told.token_counts = [*reading.token_counts[:1], *reading.token_counts[-1:]]
    return told


def shortcuts_taken(pieces: Sequence[bytes]) -> int:
    taken = 0
    original = Alike.take_run

    def counted(
        self: Alike, first: Stamped, more: Iterator[Stamped], stamps_ns: list[int], texts: list[str]
    ) -> Stamped | None:
        nonlocal taken
        left = original(self, first, more, stamps_ns, texts)
        taken += len(texts)
        return left

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alike, "take_run", counted)
        read(pieces)
    return taken


def _shapes() -> list[dict[str, Any]]:
    """One event with text of every recorded stream."""
    shapes: dict[str, dict[str, Any]] = {}
    for path in STREAMS:
        for line in body_of(path).split(b"\n"):
            if not line.startswith(b"data: {"):
                continue
            told = json.loads(line[6:])
            deltas = [c.get("delta") for c in told.get("choices") or []]
            if len(deltas) == 1 and any(isinstance(v, str) and v for v in deltas[0].values()):
                shapes.setdefault(str([list(told), list(deltas[0])]), told)
    return list(shapes.values())


SHAPES = _shapes()
HOSTILE = [
    "[DONE]", "data: [DONE]", '"finish_reason":"', '","finish_reason":"stop"', '"error"',
    '"}', "\\", "\n\n", "\r", "\u2028", "\x85", "\xa0", "\ufffd", "é", "🙂", "\ud83d", "7",
    "\t", "\x00", '"usage":{"completion_tokens":9}', ' w"', "\ufeff",
]  # fmt: skip
texts = st.sampled_from(HOSTILE) | st.text("ab 1", max_size=5)


def _choice(told: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in told["choices"] if isinstance(c, dict))
    return found


Change = Callable[[dict[str, Any], str, int], None]


def _says(name: str) -> Change:
    def change(told: dict[str, Any], text: str, number: int) -> None:
        _choice(told)["delta"] = {name: text}

    return change


def _delta_also(name: str, value: Any, *, first: bool = False) -> Change:
    def change(told: dict[str, Any], text: str, number: int) -> None:
        choice = _choice(told)
        more = {name: text if value == "TEXT" else value}
        choice["delta"] = {**more, **choice["delta"]} if first else {**choice["delta"], **more}

    return change


def _also(name: str, make: Callable[[str, int], Any], *, first: bool = False) -> Change:
    def change(told: dict[str, Any], text: str, number: int) -> None:
        more = {name: make(text, number)}
        old = dict(told)
        told.clear()
        told.update({**more, **old} if first else {**old, **more})

    return change


def _choice_also(name: str, make: Callable[[str], Any]) -> Change:
    def change(told: dict[str, Any], text: str, number: int) -> None:
        _choice(told)[name] = make(text)

    return change


def _second_choice(told: dict[str, Any], text: str, number: int) -> None:
    told["choices"].append({"index": 1, "delta": {"content": text}, "finish_reason": None})


def _stray_choice(told: dict[str, Any], text: str, number: int) -> None:
    told["choices"].insert(number % 2, text)


def _turned(told: dict[str, Any], text: str, number: int) -> None:
    old = list(told.items())
    told.clear()
    told.update(reversed(old))


CHANGES: list[Change] = [
    *[_says(name) for name in ("content", "reasoning_content", "reasoning", "role")] * 3,
    _delta_also("content", "TEXT"),
    _delta_also("content", "TEXT", first=True),
    _delta_also("content", ""),
    _delta_also("reasoning", "TEXT"),
    _delta_also("tool_calls", [{"index": 0, "function": {"arguments": '{"content":"x"}'}}]),
    _delta_also("note", {"content": "x"}, first=True),
    _choice_also("finish_reason", lambda _: "stop"),
    _choice_also("finish_reason", lambda _: ""),
    _choice_also("finish_reason", lambda text: text),
    _choice_also("text", lambda text: text),
    _choice_also("logprobs", lambda text: {"content": [{"token": text, "logprob": -0.1}]}),
    _also("usage", lambda _, n: {"prompt_tokens": 5, "completion_tokens": n}),
    _also("usage", lambda _, n: {"prompt_tokens": 5, "completion_tokens": n}, first=True),
    _also("usage", lambda _, __: None),
    _also("timings", lambda _, n: {"predicted_n": n, "predicted_ms": n * 1.25e-7}),
    _also("timings", lambda _, n: {"predicted_n": n, "predicted_ms": n * 1.25}),
    _also("error", lambda _, __: None),
    _also("error", lambda _, __: ""),
    _also("error", lambda text, _: {"message": text}),
    _also("note", lambda text, _: {"delta": {"content": text}}, first=True),
    _also("note", lambda _, __: {"content": "a"}, first=True),
    _second_choice,
    _stray_choice,
    _turned,
]
"""Ways in which one event may differ from the one before it."""

FRAMES = [(b"data: ", b"\n\n")] * 6 + [
    (b"data:", b"\n\n"),
    (b"data: ", b"\r\n\r\n"),
    (b"data: ", b"\r\r"),
    (b"data:  ", b" \n\n"),
    (b"event: x\ndata: ", b"\n\n"),
    (b": hello\ndata: ", b"\n\n"),
    (b"data: ", b"\n\n\n"),
    (b"id: 3\ndata: ", b"\nretry: 5\n\n"),
]
SPACING = [(",", ":"), (", ", ": "), (",", ": "), (" , ", " : ")]


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Events of one server, nearly all alike, as the bytes of each."""
    base = draw(st.sampled_from(SHAPES))
    habits = draw(st.lists(st.sampled_from(CHANGES), max_size=2))
    spacing, plain = draw(st.sampled_from(SPACING)), draw(st.booleans())
    frame = draw(st.sampled_from(FRAMES))
    events = []
    for number in range(draw(st.integers(2, 9))):
        told = copy.deepcopy(base)
        says = draw(st.sampled_from(["content", "content", "reasoning_content"]))
        odd = draw(st.lists(st.sampled_from(CHANGES), max_size=1)) if draw(st.booleans()) else []
        for change in [_says(says), *habits, *odd]:
            change(told, draw(texts), number + 1)
        written = json.dumps(told, separators=spacing, ensure_ascii=plain)
        data = written.encode("utf-8", "surrogatepass")
        start, end = frame if draw(st.integers(0, 5)) else draw(st.sampled_from(FRAMES))
        events.append(start + data + end)
    if draw(st.booleans()):
        events.append(event(finish()) + event(usage(5, 9)) + DONE)
    return events


def damaged(body: bytes, places: list[tuple[int, int]]) -> bytes:
    """With some bytes replaced."""
    changed = bytearray(body)
    for at, value in places:
        changed[at % len(changed)] = value
    return bytes(changed)


@given(bodies(), st.lists(st.integers(0, 2**31), max_size=4))
@settings(max_examples=300, deadline=None)
def test_reading_by_likeness_is_reading(events: list[bytes], places: list[int]) -> None:
    plain = said(read_plainly(events))
    assert said(read(events)) == plain
    pieces = [piece for whole in events for piece in cut(whole, places)]
    assert said(read(pieces)) == said(read_plainly(pieces))


not_numbers = st.integers(0, 255).filter(lambda byte: byte not in b"0123456789.")


@given(bodies(), st.lists(st.tuples(st.integers(0, 2**31), not_numbers), max_size=3))
@settings(max_examples=150, deadline=None)
def test_broken_events_are_seen(events: list[bytes], places: list[tuple[int, int]]) -> None:
    """All but a broken number, for which nobody looks."""
    body = b"\0".join(events)
    pieces = [piece for piece in damaged(body, places).split(b"\0") if piece]
    broken = said(read(pieces))
    assert broken == said(read_plainly(pieces))


def test_nearly_all_events_of_a_stream_take_the_shortcut() -> None:
    """Else the tests above compare nothing."""
    for shape in SHAPES:
        events = []
        for number in range(10):
            told = copy.deepcopy(shape)
            told["choices"][0]["delta"] = {"content": f" w{number}"}
            told["choices"][0]["finish_reason"] = None
            if "usage" in told:
                told["usage"] = {"completion_tokens": number + 1}
            events.append(event(told))
        assert shortcuts_taken(events) >= 8


def counted(n: int, text: str, table: str = "usage", name: str = "completion_tokens") -> bytes:
    return event({**delta(content=text), table: {"prompt_tokens": 5, name: n}})


def test_the_latest_of_the_running_counts_is_the_one_that_counts() -> None:
    """Where the finish has none of its own, the usage of the last text is the answer's."""
    events = [counted(n + 1, f" w{n}") for n in range(9)] + [event(finish("stop"))]
    assert read(events).usage == {"prompt_tokens": 5, "completion_tokens": 9}
    assert read(events[:-1]).usage == {"prompt_tokens": 5, "completion_tokens": 9}


def test_an_earlier_count_is_not_taken_for_a_later_event() -> None:
    events = [*(counted(n + 1, f" w{n}") for n in range(4)), event(delta(content='"'))]
    assert read(events).token_counts[-1] is None


def test_a_text_of_the_same_look_elsewhere() -> None:
    def told(inner: str, text: str) -> bytes:
        return event({"note": {"content": inner}, **delta(content=text)})

    events = [told("a", "a"), *(told("b", "") for _ in range(4)), event(finish())]
    reading = read(events)
    assert reading.text == "a"
    assert len(reading.stamps_ns) == 1


def test_a_text_with_line_ends_of_its_own_is_no_whole_event() -> None:
    events = [event(delta(content=" w")) for _ in range(3)]
    cut_up = events[0].replace(b" w", b"a\n\nb")
    assert said(read([*events, cut_up])) == said(read_plainly([*events, cut_up]))
    assert read([*events, cut_up]).nonsense is not None


def test_a_field_after_the_text_is_no_part_of_it() -> None:
    events = [event(delta(content="a")), event(delta(content="b", note="c"))]
    assert read(events).text == read_plainly(events).text == "ab"


def test_a_text_whose_end_is_not_its_own_is_no_pattern() -> None:
    """What follows is the visible text, of which the pattern would see its numbers alone."""
    says = [{"reasoning": "a"}] + [{"reasoning": "b", "content": n} for n in ("", "7", "42")]
    events = [*(event(delta(**each)) for each in says), event(finish())]
    assert read(events).text == read_plainly(events).text == "742"
    assert said(read(events)) == said(read_plainly(events))


def test_an_event_that_is_no_pattern_changes_none() -> None:
    """Else the usage of the last text before an event without any is lost."""
    odd = event(delta(role="x", content="c", z=1))
    events = [counted(1, "a"), counted(2, "b"), odd, counted(4, "d"), event(delta(content='"'))]
    assert said(read(events)) == said(read_plainly(events))
    assert read(events).usage == {"prompt_tokens": 5, "completion_tokens": 4}


@pytest.mark.parametrize("after", [delta(content="\n"), delta(role="assistant")])
def test_counts_of_a_text_read_by_likeness_outlast_it(after: dict[str, Any]) -> None:
    events = [*(counted(n + 1, f"a{n}") for n in range(5)), event(after), event(finish())]
    assert read(events).usage == {"prompt_tokens": 5, "completion_tokens": 5}


def test_more_events_than_are_read_at_one_go() -> None:
    """None is lost between two goes, and others get their turn between them."""
    events = [event(delta(content=f" w{n}")) for n in range(3 * LONGEST_RUN + 7)]
    exchange = Exchange(status=200, headers={"content-type": "text/event-stream"})
    exchange.pieces, exchange.stamps_ns = events, list(range(1, len(events) + 1))
    *turns, reading = read_stream(exchange)
    assert reading.stamps_ns == exchange.stamps_ns
    assert reading.text == "".join(f" w{n}" for n in range(len(events)))
    assert len(turns) >= 5


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\x01"])
def test_broken_letters_are_no_broken_answer(bad: bytes) -> None:
    """Tokens came, whatever they spell; and both ways of reading agree on it."""
    events = [event(delta(content=" w")).replace(b" w", b" w" + bad) for _ in range(3)]
    reading = read([*events, event(finish()) + event(usage(5, 3)) + DONE])
    assert reading.nonsense is None
    assert len(reading.stamps_ns) == 3
    assert said(read(events)) == said(read_plainly(events))


# --- chunks -------------------------------------------------------------------------------------

EXTENSIONS = [b""] * 6 + [b";a", b";a=b", b';a="b;c"']
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@st.composite
def chunked(draw: st.DrawFn) -> tuple[bytes, list[int]]:
    """A chunked message, and the places between its chunks."""
    raw, ends = HEAD, [len(HEAD)]
    for _ in range(draw(st.integers(1, 6))):
        data = draw(
            st.binary(min_size=1, max_size=40)
            | st.sampled_from([b"\r\n", b"0\r\n\r\n", b"5\r\nhello\r\n", b"x" * 14, b"x" * 255])
        )
        size = b"%x" % len(data)
        if draw(st.integers(0, 3)) == 0:
            size = draw(st.sampled_from([b"0" + size, size.upper(), b"000" + size]))
        raw += size + draw(st.sampled_from(EXTENSIONS)) + b"\r\n" + data + b"\r\n"
        ends.append(len(raw))
    raw += b"0" + draw(st.sampled_from(EXTENSIONS)) + b"\r\n"
    raw += draw(st.sampled_from([b"", b"", b"Content-Type: text/html\r\nX: y\r\n"])) + b"\r\n"
    return raw, ends


class _Told:
    """A transport that only knows whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def write(self, data: bytes) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    close = abort


async def received(parts: Sequence[bytes], *, shortcut: bool) -> tuple[Exchange, bool]:
    """What a connection makes of reads, and whether it would be used again."""
    with pytest.MonkeyPatch.context() as patch:
        if not shortcut:
            patch.setattr(wire_module, "_HEADS", {})
        connection, transport = _Connection(), _Told()
        connection.connection_made(transport)  # type: ignore[arg-type]
        exchange = Exchange(sent_ns=1)
        intake = _HttpIntake(exchange, connection.abort, Timeouts(), None, any_byte, Held())
        connection.send(intake, b"")
        for part in parts:
            if connection.open:
                connection.data_received(part)
        open_at_end = connection.open
        intake.finish("interrupted")
    return exchange, open_at_end


def made_of(exchange: Exchange) -> tuple[object, ...]:
    return (exchange.body, exchange.status, exchange.headers, exchange.ended, exchange.problem)


AFTER = [b"", b"", b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nhi", b"x", b"\r\n", b"5\r\n"]


@given(
    chunked(), st.lists(st.integers(0, 2**31), max_size=8), st.booleans(), st.sampled_from(AFTER)
)
@settings(max_examples=200, deadline=None)
def test_chunks_by_their_size_line_are_chunks(
    message: tuple[bytes, list[int]], places: list[int], between: bool, after: bytes
) -> None:
    raw, ends = message
    parts = cut(raw + after, [*places, *(ends if between else [])])

    async def compare() -> None:
        plain, plain_open = await received(parts, shortcut=False)
        quick, quick_open = await received(parts, shortcut=True)
        assert made_of(quick) == made_of(plain)
        assert quick_open == plain_open
        assert quick.ended == "complete"
        assert quick.status == 200
        assert quick.headers["content-type"] == "text/event-stream"
        if after != b"\r\n":  # which says nothing, and harms nobody
            assert quick_open == (not after)

    asyncio.run(compare())


async def test_a_whole_chunk_does_not_go_through_the_parser() -> None:
    """Else the test above compares nothing."""
    connection, transport = _Connection(), _Told()
    connection.connection_made(transport)  # type: ignore[arg-type]
    intake = _HttpIntake(Exchange(sent_ns=1), connection.abort, Timeouts(), None, any_byte, Held())
    connection.send(intake, b"")
    connection.data_received(HEAD + b"2\r\nhi\r\n")
    intake.parser = None  # type: ignore[assignment]
    connection.data_received(b"5\r\nhello\r\n")
    assert intake.exchange.pieces == [b"hi", b"hello"]
    intake.finish("interrupted")


LOOKS_WHOLE = [
    [b"2\r\nhi\r\n1", b"5\r\nhello\r\n", b"x" * 14 + b"\r\n"],  # the size of it began before
    [b"2\r\nhi\r\n", b"5\r\nhelloxx", b"y\r\n"],  # as long as one, and broken
    [b"2\r\nhi\r\n", b"6\r\nhello\r\n", b"x\r\n"],  # of another size than it says
]


@pytest.mark.parametrize("reads", LOOKS_WHOLE)
async def test_what_only_looks_like_a_whole_chunk_is_parsed(reads: list[bytes]) -> None:
    parts = [HEAD + reads[0], *reads[1:], b"0\r\n\r\n"]
    plain, plain_open = await received(parts, shortcut=False)
    quick, quick_open = await received(parts, shortcut=True)
    assert made_of(quick) == made_of(plain)
    assert quick_open == plain_open


@pytest.mark.parametrize("why", [None, ConnectionResetError("gone")])
async def test_a_close_at_every_byte_has_its_name(why: Exception | None) -> None:
    """Nothing before the finish reason is a success, nothing after the end a failure."""
    whole = event(delta(content=" a")) + event(finish())
    body = [whole, event(usage(5, 1)), DONE]
    raw = HEAD + b"".join(b"%x\r\n%b\r\n" % (len(data), data) for data in body) + b"0\r\n\r\n"
    finished, done = raw.index(b'"length"') + len(b'"length"'), raw.index(b"[DONE]") + 6
    for length in range(len(raw) + 1):
        connection, transport = _Connection(), _Told()
        connection.connection_made(transport)  # type: ignore[arg-type]
        exchange = Exchange(sent_ns=1)
        intake = _HttpIntake(exchange, connection.abort, Timeouts(), None, any_byte, Held())
        connection.send(intake, b"")
        if length:
            connection.data_received(raw[:length])
        connection.connection_lost(why)
        assert not intake.open
        *_, reading = read_stream(exchange)
        problem = failure(exchange, reading)
        if length == len(raw):
            assert (exchange.ended, problem) == ("complete", None)
        elif length >= done:
            assert (exchange.ended, problem) == ("marker", None)
        elif reading.finish_reason:
            assert length >= finished
            assert problem is None
        else:
            assert length <= finished + len(b"}]}\n\n")
            assert problem is not None
            torn = why is None and length >= len(HEAD)
            assert problem[0] == ("truncated" if torn else "reset")


async def test_an_answer_leaves_nothing_to_the_collector() -> None:
    """What only the collector finds stays in memory with all that was read, and costs a pause."""
    script = [HEAD, chunk(event(delta(content=" a")) + event(finish()) + event(usage(5, 1))), END]
    gc.collect()
    gc.disable()
    try:
        async with raw_server(*script) as server:
            wire = Wire(Origin.of(server.url))
            for _ in range(3):
                assert (await wire.exchange("/x", {}, b"{}")).ended == "complete"
            left = [each for each in gc.get_objects() if isinstance(each, (_HttpIntake, Exchange))]
            assert wire.opened == 1
            wire.close()
    finally:
        gc.enable()
    assert not left


SHREDS = [
    b"data: [DONE]", b"data:[DONE]", b"\n\n", b"\r\n", b"\n", b"[DONE]", b"data: ", b'{"error":',
    b'{ "error": ', b"null", b'{"message":"x"}', b'{ "a":1', b'"boom"', b'""', b"}", b"error: {",
    b'{"choices":[{"delta":{"content":"', b'"}}]}', b" ", b"x" * 30,
]  # fmt: skip


@given(st.lists(st.sampled_from(SHREDS), min_size=1, max_size=12), st.lists(st.integers(0, 999)))
@settings(max_examples=400, deadline=None)
def test_an_end_is_seen_however_it_is_cut(shreds: list[bytes], places: list[int]) -> None:
    body = b"".join(shreds)

    async def seen(pieces: list[bytes]) -> bool:
        intake = Intake(Exchange(sent_ns=1), lambda: None, Timeouts(), None, any_byte, Held())
        for piece in pieces:
            intake.take_raw(len(piece))
            intake.on_body(piece)
        intake.finish("interrupted")
        return intake.exchange.ended == "marker"

    assert asyncio.run(seen(cut(body, places))) == bool(_END_MARK.search(body))


async def test_looking_for_the_first_token_gives_way_to_others() -> None:
    """A body may be long before it holds one, and every other stream wants its stamps."""
    steps = 0

    def slowly(_: Exchange) -> Iterator[bool]:
        nonlocal steps
        for _ in range(40):
            time.sleep(0.001)
            steps += 1
            yield False

    timeouts = Timeouts(first_token_s=0.01)
    exchange = Exchange(sent_ns=monotonic_ns())
    intake = Intake(exchange, lambda: None, timeouts, None, slowly, Held())
    intake.on_body(b"data: {}\n\n")
    turns = 0
    while steps < 40:
        await asyncio.sleep(0)
        turns += 1
    await intake.ended()
    assert turns >= 20
    assert (exchange.ended, steps) == ("timeout", 40)
