"""Whatever is sent, every dialect answers in its own words and lives on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager

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
