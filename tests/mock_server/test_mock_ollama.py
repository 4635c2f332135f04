"""The Ollama dialect, through the official client and as bytes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import ollama
import pytest
from mock_tools import Flat, chat, events, running

from mock_server.tokens import count

OLLAMA = {"dialect": "ollama", "alias": "m"}
_NS = 1_000_000_000


def ask(text: str = "Tell me of rivers.") -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


async def native(url: str, path: str, **body: Any) -> tuple[int, list[dict[str, Any]]]:
    asked = {"model": "m"} | body
    async with aiohttp.ClientSession() as session, session.post(url + path, json=asked) as answer:
        lines = (await answer.read()).splitlines()
        return answer.status, [json.loads(line) for line in lines]


async def test_official_client() -> None:
    async with running(**OLLAMA) as url:
        client = ollama.AsyncClient(host=url)
        options = {"num_predict": 12}
        whole = await client.chat(model="m", messages=ask(), options=options)
        parts = [
            part
            async for part in await client.chat(
                model="m", messages=ask(), options=options, stream=True
            )
        ]
        made = await client.generate(model="m", prompt="Tell me.", options=options)
        listed, shown = await client.list(), await client.show("m")
        loaded = await client.ps()
        plain = ollama.Client(host=url)
        sync_whole = await asyncio.to_thread(
            lambda: plain.chat(model="m", messages=ask(), options=options)
        )
        with pytest.raises(ollama.ResponseError, match="not found") as refused:
            await client.chat(model="none", messages=ask())
    assert refused.value.status_code == 404
    said = whole.message.content
    assert said
    assert count(said) == whole.eval_count == 12
    assert sync_whole.message.content == said == "".join(p.message.content or "" for p in parts)
    assert (parts[-1].done, parts[-1].done_reason) == (True, "length")
    assert parts[-1].prompt_eval_count == whole.prompt_eval_count
    assert made.response
    assert [model.model for model in listed.models] == ["m:latest"]
    assert shown.capabilities
    assert loaded.models[0].size_vram


async def test_durations_are_nanoseconds_and_zeros_are_left_out() -> None:
    async with running(Flat(0.01, 0.0001), **OLLAMA) as url:
        _, lines = await native(url, "/api/chat", messages=ask(), options={"num_predict": 11})
        _, one = await native(url, "/api/chat", messages=ask("Other."), options={"num_predict": 1})
    last = lines[-1]
    assert [line["done"] for line in lines] == [False] * 11 + [True]
    assert last["eval_duration"] == pytest.approx(10 * 0.01 * _NS)
    read_s = 0.01 + last["prompt_eval_count"] * 0.0001
    assert last["prompt_eval_duration"] == pytest.approx(read_s * _NS)
    parts = last["eval_duration"] + last["prompt_eval_duration"] + last.get("load_duration", 0)
    assert last["total_duration"] == pytest.approx(parts, abs=10)
    assert "prompt_eval_cached_count" not in last
    assert "eval_duration" not in one[-1]


async def test_the_queue_is_told_as_load_duration() -> None:
    async with running(Flat(0.01), slots=1, **OLLAMA) as url:
        asked = {"messages": ask(), "options": {"num_predict": 10}, "stream": False}
        answers = await asyncio.gather(*(native(url, "/api/chat", **asked) for _ in range(3)))
    waited = sorted(lines[0].get("load_duration", 0) / _NS for _, lines in answers)
    assert waited[0] < 0.02
    assert waited[2] == pytest.approx(0.2, abs=0.05)


async def test_a_long_chat_loses_its_oldest_messages_in_silence(tmp_path: Path) -> None:
    log = tmp_path / "ollama.log"
    history = [{"role": "system", "content": "Be kind."}]
    for number in range(20):
        role = "assistant" if number % 2 else "user"
        history.append({"role": role, "content": f"number {number} " + "word " * 60})
    history.append(ask("And now?")[0])
    async with running(journal=log, slots=1, ctx=512, **OLLAMA) as url:
        options = {"num_predict": 4}
        status, lines = await native(url, "/api/chat", messages=history, options=options)
        refused = await native(url, "/api/chat", messages=history, options=options, truncate=False)
        async with aiohttp.ClientSession() as session:
            truth = await (await session.get(url + "/truth")).json()
    assert status == 200
    assert lines[-1]["prompt_eval_count"] < 512
    told = truth["requests"][0]
    assert told["cut_tokens"] > 500
    assert told["prompt_tokens"] == lines[-1]["prompt_eval_count"]
    assert refused[0] == 400
    assert "exceeds the context length" in refused[1][0]["error"]
    assert "truncating input messages" in log.read_text()


async def test_one_message_that_is_too_long_is_cut_to_half_the_window(tmp_path: Path) -> None:
    log = tmp_path / "ollama.log"
    async with running(journal=log, slots=1, ctx=2048, **OLLAMA) as url:
        asked = {"messages": ask("word " * 9000), "options": {"num_predict": 4}}
        status, lines = await native(url, "/api/chat", **asked)
        smaller = asked | {"options": {"num_predict": 4, "num_ctx": 1024}}
        _, less = await native(url, "/api/chat", **smaller)
    assert status == 200
    assert lines[-1]["prompt_eval_count"] == 2048 // 2 + 2
    assert less[-1]["prompt_eval_count"] == 1024 // 2 + 2
    assert 'truncating input prompt" limit=2048 prompt=90' in log.read_text()


async def test_another_context_length_loads_the_model_anew() -> None:
    async with running(loading_s=2.0, time_scale=20.0, ctx=8192, slots=1, **OLLAMA) as url:
        small = {"num_ctx": 1024, "num_predict": 2}
        first = await native(url, "/api/chat", messages=ask(), options={"num_predict": 2})
        second = await native(url, "/api/chat", messages=ask(), options=small)
        third = await native(url, "/api/chat", messages=ask(), options=small)
    loads = [lines[-1].get("load_duration", 0) / _NS for _, lines in (first, second, third)]
    assert [round(load) for load in loads] == [2, 2, 0]


async def test_what_is_loaded_is_told_while_it_is() -> None:
    async with running(slots=1, **OLLAMA) as url:
        client = ollama.AsyncClient(host=url)
        counts = [len((await client.ps()).models)]
        await client.chat(model="m", messages=ask(), options={"num_predict": 1, "num_ctx": 2048})
        loaded = (await client.ps()).models
        await client.generate(model="m", prompt="", keep_alive=0)
        counts += [len(loaded), len((await client.ps()).models)]
    assert counts == [0, 1, 0]
    assert loaded[0].context_length == 2048


async def test_generate_tells_a_context_that_a_next_request_can_go_on_from() -> None:
    async with running(slots=1, model="qwen3-8b", quant="Q4_K_M", **OLLAMA) as url:
        options = {"num_predict": 20}
        _, first = await native(url, "/api/generate", prompt="Go.", stream=False, options=options)
        told = first[0]
        _, second = await native(
            url, "/api/generate", prompt="On.", stream=False, context=told["context"]
        )
    assert len(told["context"]) == told["prompt_eval_count"] + told["eval_count"]
    assert second[0]["prompt_eval_count"] > len(told["context"])


async def test_errors_are_gos_and_gins() -> None:
    async with running(**OLLAMA) as url, aiohttp.ClientSession() as session:
        status, lines = await native(url, "/api/chat", messages=3)
        go = "json: cannot unmarshal number into Go struct field .messages of type []interface {}"
        assert (status, lines) == (400, [{"error": go}])
        async with session.post(url + "/v1/chat/completions", json={"model": "x"}) as answer:
            told = {"message": "model 'x' not found", "type": "not_found_error"}
            assert answer.status == 404
            assert await answer.json() == {"error": told | {"param": None, "code": None}}
        async with session.get(url + "/nope") as answer:
            assert (answer.content_type, await answer.text()) == (
                "text/plain",
                "404 page not found",
            )
            assert "Server" not in answer.headers


async def test_its_events_have_go_s_order() -> None:
    usage = {"stream_options": {"include_usage": True}}
    async with running(**OLLAMA) as url, aiohttp.ClientSession() as session:
        asked = chat(model="m", stream=True, max_tokens=2, n=3, **usage)
        async with session.post(url + "/v1/chat/completions", json=asked) as answer:
            told = events(await answer.read())
        asked = {"model": "m", "prompt": "Go.", "stream": True, "max_tokens": 2}
        async with session.post(url + "/v1/completions", json=asked) as answer:
            raw = events(await answer.read())
    head = ["id", "object", "created", "model", "system_fingerprint", "choices"]
    assert [list(event) for event in told[:-2]] == [head] * 3
    assert list(told[-2]) == [*head, "usage"]
    head = ["id", "object", "created", "choices", "model", "system_fingerprint"]
    assert [list(event) for event in raw[:-1]] == [head] * 3
    assert list(raw[0]["choices"][0]) == ["text", "index", "finish_reason"]


async def test_thoughts_and_calls_have_their_own_fields() -> None:
    tool = {"name": "get_time", "parameters": {"properties": {"city": {"type": "string"}}}}
    async with running(**OLLAMA) as url:
        client = ollama.AsyncClient(host=url)
        thought = await client.chat(model="m", messages=ask(), think=True)
        called = await client.chat(
            model="m", messages=ask(), tools=[{"type": "function", "function": tool}]
        )
        answered = await client.chat(
            model="m",
            messages=[*ask(), called.message, {"role": "tool", "content": "noon"}],
            tools=[{"type": "function", "function": tool}],
        )
        _, lines = await native(url, "/api/chat", messages=ask(), think=True)
    assert thought.message.thinking
    assert count(thought.message.thinking) == 64
    assert thought.message.content
    assert called.message.tool_calls
    assert isinstance(called.message.tool_calls[0].function.arguments["city"], str)
    assert not answered.message.tool_calls
    assert answered.message.content
    streamed = "".join(line["message"].get("thinking", "") for line in lines)
    assert streamed == thought.message.thinking


async def test_the_openai_routes_are_as_odd_as_the_real_ones() -> None:
    usage = {"stream": True, "stream_options": {"include_usage": True}, "model": "m"}
    async with running(reasoning=3, **OLLAMA) as url, aiohttp.ClientSession() as session:
        path = url + "/v1/chat/completions"
        async with session.post(path, json=chat(**usage)) as answer:
            told = events(await answer.read())
        fault = {"X-Mock-Fault": "kv-exhausted:3"}
        async with session.post(path, json=chat(**usage), headers=fault) as answer:
            broken = events(await answer.read())
    assert told[0]["choices"][0]["delta"]["role"] == "assistant"
    assert told[0]["choices"][0]["delta"]["content"] == ""
    assert told[0]["choices"][0]["delta"]["reasoning"]
    assert told[0]["system_fingerprint"] == "fp_ollama"
    assert told[-2]["usage"]["completion_tokens"] == 8
    assert told[-1] == "[DONE]"
    assert broken[-1]["choices"][0] == {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "finish_reason": None,
    }


async def test_a_failed_native_stream_ends_with_an_error_line() -> None:
    async with running(**OLLAMA) as url, aiohttp.ClientSession() as session:
        body = {"model": "m", "messages": ask(), "options": {"num_predict": 9}}
        for fault in ("kv-exhausted:3", "error-in-stream:3"):
            headers = {"X-Mock-Fault": fault}
            async with session.post(url + "/api/chat", json=body, headers=headers) as answer:
                lines = [json.loads(line) for line in (await answer.read()).splitlines()]
            assert [list(line) for line in lines[-2:]][1] == ["error"]
            assert not any(line.get("done") for line in lines)


async def test_its_journal_has_lines_of_both_servers(tmp_path: Path) -> None:
    log = tmp_path / "ollama.log"
    async with running(journal=log, **OLLAMA) as url:
        await native(url, "/api/chat", messages=ask(), options={"num_predict": 4})
    text = log.read_text()
    assert '| POST     "/api/chat"' in text
    assert "time=20" in text
    assert "slot print_timing: id" in text
    assert " I slot " not in text


async def test_too_many_waiting_are_turned_away() -> None:
    async with running(Flat(0.02), slots=1, max_queue=1, **OLLAMA) as url:
        asked = {"messages": ask(), "options": {"num_predict": 9}}
        told = await asyncio.gather(*(native(url, "/api/chat", **asked) for _ in range(5)))
    statuses = sorted(status for status, _ in told)
    assert statuses == [200, 200, 503, 503, 503]
    assert "busy" in next(lines[0]["error"] for status, lines in told if status == 503)
