"""The mock's answers have the shape of the real server's."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest
from mock_tools import events, recorded, replay, running, shape

STREAMS = [
    "chat_stream",
    "chat_stream_usage",
    "chat_stream_stop",
    "chat_stream_nocache",
    "chat_stream_timings_per_token",
    "chat_max_tokens_0",
    "chat_max_tokens_1",
    "chat_ignore_eos",
    "oai_completion_stream",
    "oai_completion_stream_usage",
    "native_completion_stream",
    "err_empty_prompt",
]
WHOLE = [
    "chat_nonstream",
    "native_completion_nonstream",
    "err_404",
    "err_no_messages",
    "err_bad_type",
    "err_bad_json",
    "err_context_exceeded",
    "models",
    "slots_idle",
    "health",
    "tokenize",
    "apply_template",
]


def without_lengths(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [h for h in headers if h[0] not in ("Content-Length", "Connection")]


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_look_recorded(name: str) -> None:
    real = recorded(name)
    async with running(ctx=2048, slots=1) as url:
        status, headers, writes = await replay(url, name)
    assert (status, without_lengths(headers)) == (real.status, without_lengths(real.headers))
    theirs = [[shape(event) for event in events(write)] for write in real.writes]
    ours = [[shape(event) for event in events(write)] for write in writes]
    assert ours[0] == theirs[0]
    assert ours[-2:] == theirs[-2:]
    assert {str(write) for write in ours[1:-2]} == {str(write) for write in theirs[1:-2]}
    if name != "chat_stream_stop":  # the real answer came to its full stop when it liked
        assert len(ours) == len(theirs)


@pytest.mark.parametrize("name", WHOLE)
async def test_answers_look_recorded(name: str) -> None:
    real = recorded(name)
    async with running(ctx=4096, slots=2) as url:
        status, headers, body = await replay(url, name)
    assert (status, without_lengths(headers)) == (real.status, without_lengths(real.headers))
    assert shape(json.loads(b"".join(body))) == shape(json.loads(real.body))


async def test_refused_key_looks_recorded() -> None:
    real = recorded("err_unauthorized")
    async with running(api_key="secret") as url:
        status, _, body = await replay(url, "err_unauthorized")
        assert (status, b"".join(body)) == (real.status, real.body)
        async with aiohttp.ClientSession() as session:
            key = {"Authorization": "Bearer secret"}
            async with session.get(url + "/v1/models", headers=key) as answer:
                assert answer.status == 200
            async with session.get(url + "/health") as answer:
                assert answer.status == 200


async def test_props_hold_what_the_real_ones_do() -> None:
    real = json.loads(recorded("props").body)
    async with running(ctx=4096, slots=2) as url:
        _, _, body = await replay(url, "props")
    ours = json.loads(b"".join(body))
    mock = ours.pop("mock")
    assert mock["slip_s"] >= 0
    ours["ui_settings"] = real["ui_settings"]
    assert shape(ours) == shape(real)
    assert (ours["total_slots"], ours["default_generation_settings"]["n_ctx"]) == (2, 2048)


async def test_busy_slot_looks_recorded() -> None:
    real = json.loads(recorded("slots_busy").body)[0]
    async with running(slots=1) as url, aiohttp.ClientSession() as session:
        body = {"messages": [{"role": "user", "content": "Go."}], "max_tokens": 500, "stream": True}
        async with session.post(url + "/v1/chat/completions", json=body) as answer:
            await answer.content.readuntil(b"\n\n")
            async with session.get(url + "/slots") as slots:
                (ours,) = json.loads(await slots.read())
            answer.close()
    assert shape(ours) == shape(real)


async def test_metrics_have_the_real_names() -> None:
    names = {
        line.split()[2]
        for line in recorded("metrics_after").body.decode().splitlines()
        if line.startswith("# TYPE")
    }
    async with running(metrics=True) as url:
        _, _, body = await replay(url, "metrics_after")
    ours = {
        line.split()[2]
        for line in b"".join(body).decode().splitlines()
        if line.startswith("# TYPE")
    }
    assert ours == {name for name in names if "spec_decode" not in name}


async def test_answers_503_while_loading() -> None:
    async with running(loading_s=6.0, time_scale=20.0) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/health") as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["message"] == "Loading model"
        await asyncio.sleep(0.35)
        async with session.get(url + "/health") as answer:
            assert answer.status == 200
