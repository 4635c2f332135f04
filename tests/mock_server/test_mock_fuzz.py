"""Whatever is sent, every dialect answers in its own words and lives on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mock_tools import Flat, chat, events, running

from headroom_bench.target import DIALECTS

CHAT = "/v1/chat/completions"
ROUTES = {
    "llamacpp": [CHAT, "/v1/completions", "/completion", "/tokenize", "/detokenize"],
    "vllm": [CHAT, "/v1/completions", "/tokenize", "/detokenize"],
    "ollama": [CHAT, "/api/chat", "/api/generate", "/api/show"],
    "sglang": [CHAT, "/v1/completions"],
    "mlx": [CHAT, "/v1/completions"],
    "openai": [CHAT, "/v1/completions"],
}
NO_SUCH_ROUTE = {
    "mlx": [b"Not Found"],
    "ollama": [b"404 page not found", b"405 method not allowed"],
}
"""What is no JSON, as gin and Python's HTTP server say it."""
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
fields = [
    "messages",
    "prompt",
    "content",
    "tokens",
    "max_tokens",
    "n_predict",
    "n",
    "seed",
    "model",
]
fields += [
    "stream",
    "stream_options",
    "stop",
    "tools",
    "temperature",
    "cache_prompt",
    "tool_choice",
]
fields += [
    "return_progress",
    "timings_per_token",
    "with_pieces",
    "options",
    "think",
    "system",
    "raw",
]
fields += ["truncate", "keep_alive", "stream_interval", "cache_salt", "min_tokens", "ignore_eos"]
fields += ["reasoning_effort", "chat_template_kwargs", "reasoning_format", "return_token_ids"]
good = {"messages": chat()["messages"], "prompt": "word", "content": "word", "max_tokens": 2}
good |= {"model": "m", "options": {"num_predict": 2}}
bodies = st.one_of(
    st.dictionaries(st.sampled_from(fields), json_values, max_size=5).map(
        lambda given: json.dumps({"max_tokens": 2} | given).encode()
    ),
    st.tuples(st.sampled_from(fields), json_values).map(
        lambda pair: json.dumps(good | {pair[0]: pair[1]}).encode()
    ),
    json_values.map(lambda value: json.dumps(value).encode()),
    st.binary(max_size=40),
)
HARD = [
    b"[" * 100_000,
    b'{"max_tokens":1e999,"prompt":"x"}',
    b'{"n":' + b"9" * 4000,
    b'{"messages":[{"role":"user","content":"\\ud800"}],"model":"m","max_tokens":2}',
    b'{"prompt":"\\ud800","model":"m","max_tokens":2}',
    json.dumps(
        good | {"tools": [{"function": {"name": "f", "parameters": {"$ref": "#"}}}]}
    ).encode(),
    b"\xff\xfe",
    b"",
]


@contextmanager
def serving(dialect: str) -> Iterator[tuple[asyncio.AbstractEventLoop, str, aiohttp.ClientSession]]:
    """A server and a session in one loop that outlives a test case of hypothesis."""
    loop = asyncio.new_event_loop()
    server = running(Flat(0.00001), slots=2, ctx=4096, dialect=dialect, alias="m")
    url = loop.run_until_complete(server.__aenter__())
    session = loop.run_until_complete(_session())
    try:
        yield loop, url, session
    finally:
        loop.run_until_complete(session.close())
        loop.run_until_complete(server.__aexit__(None, None, None))
        loop.close()


async def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession()


@pytest.mark.parametrize("dialect", DIALECTS)
def test_whatever_is_sent_is_answered_in_json(dialect: str) -> None:
    async def one(route: str, body: bytes) -> None:
        async with session.post(url + route, data=body) as answer:
            told = await answer.read()
            assert answer.status in (200, 400, 404) or b"Failed to parse tools" in told, told
            if answer.content_type == "text/event-stream":
                assert events(told)
            elif answer.content_type == "application/x-ndjson":
                assert all(isinstance(json.loads(line), dict) for line in told.splitlines())
            else:
                assert isinstance(json.loads(told), dict)

    @given(st.sampled_from(ROUTES[dialect]), bodies)
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(route: str, body: bytes) -> None:
        loop.run_until_complete(one(route, body))

    with serving(dialect) as (loop, url, session):
        ask()
        for route in ROUTES[dialect]:
            for hard in HARD:
                loop.run_until_complete(one(route, hard))


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_unknown_routes_wrong_methods_and_slow_senders(dialect: str) -> None:
    async with running(dialect=dialect) as url, aiohttp.ClientSession() as session:
        for method, path in (("GET", "/nope"), ("POST", "/v1/nope"), ("GET", CHAT), ("PUT", CHAT)):
            async with session.request(method, url + path) as answer:
                assert answer.status in (404, 405)
                told = await answer.read()
                if dialect in NO_SUCH_ROUTE:
                    assert told in NO_SUCH_ROUTE[dialect]
                else:
                    assert isinstance(json.loads(told), dict)
        host, port = url.removeprefix("http://").split(":")
        _, slow = await asyncio.open_connection(host, int(port))
        slow.write(f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: 400\r\n\r\n{{".encode())
        _, broken = await asyncio.open_connection(host, int(port))
        broken.write(b"NONSENSE\r\n\r\n")
        await asyncio.sleep(0.05)
        model = (await (await session.get(url + "/v1/models")).json())["data"][0]["id"]
        async with session.post(url + CHAT, json=chat(model=model)) as answer:
            assert answer.status == 200
        slow.close()
        broken.close()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_wrong_key_and_a_big_body_are_refused(dialect: str) -> None:
    async with (
        running(dialect=dialect, api_key="secret") as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(url + CHAT, json=chat()) as answer:
            assert answer.status == 401
            assert isinstance(json.loads(await answer.read()), dict)
        key = {"Authorization": "Bearer secret"}
        async with session.post(url + CHAT, data=b" " * (33 << 20), headers=key) as answer:
            assert answer.status == 413
            assert isinstance(json.loads(await answer.read()), dict)
        async with session.get(url + "/v1/models", headers=key) as answer:
            assert answer.status == 200


LIMITS = ["max_tokens", "max_completion_tokens", "n_predict", "n", "logprobs", "top_logprobs"]
LIMITS += ["n_probs", "min_tokens", "stream_interval", "sse_ping_interval", "seed", "temperature"]
EDGES = [-1, 0, 1.5, 10**30, True, "1", [], {}]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_numbers_at_their_edges_are_taken_or_refused(dialect: str) -> None:
    async with (
        running(Flat(0.00001), slots=2, ctx=4096, dialect=dialect, alias="m") as url,
        aiohttp.ClientSession() as session,
    ):
        for field in LIMITS:
            for edge in EDGES:
                body = good | {field: edge, "stream": edge in (-1, 0)}
                async with session.post(url + CHAT, json=body) as answer:
                    told = await answer.read()
                    assert answer.status in (200, 400), (body, told)
                    if answer.content_type == "text/event-stream":
                        assert events(told)[-1] == "[DONE]", (body, told)
                    else:
                        assert isinstance(json.loads(told), dict)


def wire(body: bytes, more: str = "", version: str = "1.1", method: str = "POST") -> bytes:
    head = f"{method} {CHAT} HTTP/{version}\r\nHost: x\r\nContent-Length: {len(body)}\r\n{more}\r\n"
    return head.encode("latin-1") + body


ASKED = json.dumps(good | {"stream": True}).encode()
WIRES = [
    wire(ASKED, version="1.0"),
    wire(ASKED, version="3.7"),
    wire(ASKED, method="BREW"),
    wire(b"", method="HEAD"),
    wire(b"", method="OPTIONS"),
    wire(ASKED)[:-10] + b"xxxxxxxxxxyyyyyy",
    wire(ASKED, "Content-Length: 3\r\n"),
    wire(ASKED, "Content-Encoding: gzip\r\n"),
    wire(ASKED, "Content-Encoding: br\r\n"),
    wire(ASKED, "Content-Type: text/x; charset=nonsense\r\n"),
    wire(ASKED, "Expect: wonders\r\n"),
    wire(ASKED, "X-A: " + "a" * 9000 + "\r\n"),
    wire(ASKED, "".join(f"X-{n}: a\r\n" for n in range(300))),
    wire(ASKED, "X A: b\r\n"),
    wire(ASKED, "X-A: a\0b\r\n"),
    wire(ASKED, "X-Mock-Fault: nope\r\n"),
    wire(ASKED, "X-Mock-Fault: stall:nan\r\n"),
    wire(ASKED, 'X-Request-Id: \xe9"\\<\r\n'),
    wire(ASKED).replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX: "),
    wire(ASKED) * 3,
    b"GET /v1/models\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00" + bytes(60),
    bytes(range(256)),
]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whatever_comes_over_the_wire_is_answered_and_complained_of_in_a_line(
    dialect: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log"
    options = {"slots": 2, "dialect": dialect, "alias": "m"}
    async with running(Flat(0.00001), log, **options) as url, aiohttp.ClientSession() as session:
        host, port = url.removeprefix("http://").split(":")
        for sent in WIRES:
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert (await asyncio.wait_for(reader.read(5), 5)) == b"HTTP/", sent[:200]
            writer.transport.abort()
        body = good | {"stream": False}
        async with session.post(url + CHAT, json=body) as answer:
            assert answer.status == 200
        async with session.get(url + "/truth") as answer:
            told = await answer.json()
    assert {request["outcome"] for request in told["requests"]} <= {"done", "cancelled"}
    assert "Traceback" not in log.read_text() + "".join(capfd.readouterr())


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_hung_up_faulty_streams_leave_nothing_behind(dialect: str) -> None:
    async with (
        running(Flat(0.01), slots=1, dialect=dialect, alias="m") as url,
        aiohttp.ClientSession() as session,
    ):
        before = len(asyncio.all_tasks())
        for fault in ("merge", "stall:5", "never-closes", "one-write", "split-utf8"):
            body = good | {"stream": True, "max_tokens": 500}
            headers = {"X-Mock-Fault": fault}
            answer = await session.post(url + CHAT, json=body, headers=headers)
            answer.close()
        async with session.post(url + CHAT, json=good | {"stream": False}) as answer:
            assert answer.status == 200  # the one slot is free again
        async with asyncio.timeout(5):
            while len(asyncio.all_tasks()) > before + 1:  # this session's own connection
                await asyncio.sleep(0.01)


async def test_what_is_under_way_at_the_end_is_in_the_truth_file(tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    async with running(Flat(0.01), truth_file=truth) as url, aiohttp.ClientSession() as session:
        body = chat(stream=True, max_tokens=5000)
        answer = await session.post(url + CHAT, json=body)
        await answer.content.readany()
    answer.close()
    (told,) = map(json.loads, truth.read_text().splitlines())
    assert told["outcome"] == "cancelled"
    assert told["completion_tokens"] > 0
