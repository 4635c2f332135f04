"""What is SGLang's own."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
from mock_tools import Flat, chat, events, running

SGLANG: dict[str, Any] = {"dialect": "sglang", "alias": "m", "model": "qwen3-8b", "quant": "Q4_K_M"}
CHAT = "/v1/chat/completions"


async def post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> Any:
    async with session.post(url, json=body) as answer:
        if body.get("stream"):
            return events(await answer.read())
        return await answer.json()


async def test_every_field_stands_in_every_event() -> None:
    async with running(**SGLANG) as url, aiohttp.ClientSession() as session:
        usage = {"include_usage": True, "continuous_usage_stats": True}
        body = chat(stream=True, max_tokens=3, stream_options=usage, rid="mine")
        told = await post(session, url + CHAT, body)
        plain = await post(session, url + CHAT, chat(stream=True, max_tokens=1))
    delta = ["role", "content", "reasoning_content", "tool_calls"]
    choice = ["index", "delta", "logprobs", "finish_reason", "matched_stop"]
    for event in told[:-2]:
        assert list(event) == ["id", "object", "created", "model", "choices", "usage"]
        assert list(event["choices"][0]) == choice
        assert list(event["choices"][0]["delta"]) == delta
        assert event["id"] == "mine"
    counts = [event["usage"]["completion_tokens"] for event in told[:4]]
    assert counts == [1, 1, 2, 3]  # the role comes with the first token
    assert told[-2]["usage"]["completion_tokens"] == 3
    assert all(event["usage"] is None for event in plain[:-1])
    assert re.fullmatch("[0-9a-f]{32}", plain[0]["id"])


async def test_native_text_grows_from_event_to_event() -> None:
    asked = {"text": "Go on.", "sampling_params": {"max_new_tokens": 5, "temperature": 0}}
    async with running(**SGLANG) as url, aiohttp.ClientSession() as session:
        told = await post(session, url + "/generate", asked | {"stream": True})
        whole = await post(session, url + "/generate", asked)
        fault = {"X-Mock-Fault": "error-in-stream:2"}
        streamed = asked | {"stream": True}
        async with session.post(url + "/generate", json=streamed, headers=fault) as answer:
            broken = events(await answer.read())
        async with session.post(url + "/generate", json={"sampling_params": {}}) as answer:
            refused = (answer.status, await answer.json())
    texts = [event["text"] for event in told[:-1]]
    assert told[-1] == "[DONE]"
    assert len(texts) == 5
    assert all(after.startswith(before) for before, after in pairwise(texts))
    assert texts[-1] == whole["text"]
    assert [len(event["output_ids"]) for event in told[:-1]] == [1, 2, 3, 4, 5]
    meta = whole["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 5}
    assert (meta["completion_tokens"], meta["prompt_tokens"]) == (5, 3)
    assert meta["e2e_latency"] > 0
    assert [list(event) for event in broken[:-1]] == [["text", "output_ids", "meta_info"]] * 2 + [
        ["error"]
    ]
    assert list(broken[-2]["error"]) == ["message"]
    assert refused[0] == 400
    assert list(refused[1]["error"]) == ["message"]


async def test_a_flushed_or_salted_cache_is_cold_and_then_warms_again() -> None:
    async def cached(**more: Any) -> int:
        whole = await post(session, url + CHAT, chat("word " * 200, max_tokens=1, **more))
        found: int = whole["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    async with running(**SGLANG) as url, aiohttp.ClientSession() as session:
        first = [await cached(), await cached()]
        salted = [await cached(cache_salt="a"), await cached(cache_salt="a")]
        async with session.post(url + "/flush_cache") as answer:
            assert (answer.status, "flushed" in await answer.text()) == (200, True)
        after = [await cached(), await cached()]
    assert first[0] == salted[0] == after[0] == 0
    assert min(first[1], salted[1], after[1]) >= 192


async def test_a_conversation_under_a_salt_finds_its_answers_again() -> None:
    async with running(**SGLANG) as url, aiohttp.ClientSession() as session:
        body = chat("word " * 50, max_tokens=40, cache_salt="a")
        first = await post(session, url + CHAT, body)
        said = first["choices"][0]["message"]["content"]
        body["messages"] += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": "On."},
        ]
        second = await post(session, url + CHAT, body)
    held = first["usage"]["total_tokens"] - 1  # the last token was never read
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == held


async def test_metrics_and_log_tell_what_they_should(tmp_path: Path) -> None:
    log = tmp_path / "sglang.log"
    options = SGLANG | {"metrics": True, "draft_tokens": 3, "slots": 2}
    async with (
        running(Flat(0.001), log, **options) as url,
        aiohttp.ClientSession() as session,
    ):
        body = chat(max_tokens=150)
        await asyncio.gather(*(post(session, url + CHAT, body) for _ in range(2)))
        async with session.get(url + "/metrics") as answer:
            text = await answer.text()
    names = set(re.findall(r"^# TYPE sglang:(\S+)", text, re.M))
    assert names >= {
        "time_to_first_token_seconds", "inter_token_latency_seconds",
        "request_time_per_output_token_seconds", "e2e_request_latency_seconds",
        "queue_time_seconds", "per_stage_req_latency_seconds", "prompt_tokens_total",
        "generation_tokens_total", "cached_tokens_total", "cache_hit_rate", "gen_throughput",
        "num_running_reqs", "num_queue_reqs", "token_usage", "spec_accept_length",
        "spec_accept_rate", "num_retracted_reqs",
    }  # fmt: skip
    assert 'sglang:inter_token_latency_seconds_count{model_name="m"} 298.0' in text
    lines = log.read_text()
    assert "#queue-req: 0, #pending-token: 0, cuda graph: False, input throughput" in lines
    assert re.search(r"Decode batch, .*accept len: \d\.\d\d, accept rate: 0\.\d\d, cuda", lines)
