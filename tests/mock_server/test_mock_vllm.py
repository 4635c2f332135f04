"""The vLLM dialect looks recorded."""

from __future__ import annotations

import json
import re
from typing import Any

import aiohttp
import pytest
from mock_tools import VLLM, Flat, chat, events, recorded, replay, running, shape

STREAMS = [
    "chat_stream",
    "chat_stream_usage",
    "chat_stream_continuous",
    "chat_stream_ignore_eos",
    "chat_stream_interval4",
    "chat_stream_cache_salt",
    "chat_stream_token_ids",
    "chat_max1",
    "completion_stream",
    "completion_stream_usage",
]
ERRORS = [
    "err_404",
    "err_bad_json",
    "err_bad_type",
    "err_context",
    "err_context_max_tokens",
    "err_max0",
    "err_model",
    "err_no_messages",
]
TINY = {"dialect": "vllm", "alias": "tiny", "slots": 1, "ctx": 2048}


def named(headers: list[tuple[str, str]]) -> dict[str, str]:
    untold = ("date", "content-length", "connection")
    return {key.lower(): value for key, value in headers if key.lower() not in untold}


@pytest.mark.parametrize("name", STREAMS)
async def test_streams_look_recorded(name: str) -> None:
    real = recorded(name, VLLM)
    async with running(**TINY) as url:
        status, headers, writes = await replay(url, name, VLLM)
    assert (status, named(headers)) == (real.status, named(real.headers))
    theirs = [[shape(event) for event in events(write)] for write in real.writes]
    ours = [shape(event) for event in events(b"".join(writes))]
    flat = [event for write in theirs for event in write]
    assert len(ours) == len(flat)
    assert ours == flat


async def test_a_whole_answer_looks_recorded() -> None:
    real = recorded("chat_nonstream", VLLM)
    async with running(**TINY) as url:
        status, headers, body = await replay(url, "chat_nonstream", VLLM)
    assert (status, named(headers)) == (real.status, named(real.headers))
    assert shape(json.loads(b"".join(body))) == shape(json.loads(real.body))


@pytest.mark.parametrize("name", ERRORS)
async def test_errors_look_recorded(name: str) -> None:
    real = recorded(name, VLLM)
    async with running(**TINY) as url:
        status, _, body = await replay(url, name, VLLM)
    ours, theirs = json.loads(b"".join(body)), json.loads(real.body)
    assert status == real.status
    assert shape(ours) == shape(theirs)
    for key in ("type", "code"):
        assert ours.get("error", {}).get(key) == theirs.get("error", {}).get(key)
    if name in ("err_max0", "err_model", "err_context_max_tokens", "err_bad_json", "err_bad_type"):
        assert ours == theirs


async def test_a_dead_engine_says_so_and_done() -> None:
    real = recorded("chat_stream_engine_killed", "vllm/0.32.0/http-spec-ngram")
    theirs = events(real.body)
    fault = {"X-Mock-Fault": "error-in-stream:3"}
    async with running(**TINY) as url, aiohttp.ClientSession() as session:
        asked = chat(stream=True)
        async with session.post(url + "/v1/chat/completions", json=asked, headers=fault) as answer:
            ours = events(await answer.read())
    assert shape(ours[-2]) == shape(theirs[-2])
    assert (ours[-1], ours[-2]["error"]["code"]) == ("[DONE]", 500)


async def test_state_looks_recorded() -> None:
    async with running(**TINY) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/v1/models") as answer:
            models = await answer.json()
        async with session.get(url + "/version") as answer:
            assert await answer.json() == {"version": "0.32.0"}
        async with session.get(url + "/health") as answer:
            assert (answer.status, await answer.read()) == (200, b"")
        asked = {"model": "tiny", "prompt": "river stone"}
        async with session.post(url + "/tokenize", json=asked) as answer:
            told = await answer.json()
    assert models["data"][0]["max_model_len"] == 2048
    assert list(told) == ["count", "max_model_len", "tokens", "token_strs"]
    assert told["count"] == len(told["tokens"]) == 2


async def test_metrics_have_the_real_names_and_count() -> None:
    async with running(Flat(0.002), **TINY) as url, aiohttp.ClientSession() as session:
        for _ in range(2):
            async with session.post(url + "/v1/chat/completions", json=chat("word " * 64)) as told:
                await told.read()
        async with session.get(url + "/metrics") as answer:
            ours = await answer.text()
    values = dict(re.findall(r"^(vllm:\S+?)(?:\{.*\})? (\S+)$", ours, re.M))
    assert values["vllm:generation_tokens_total"] == "16.0"
    assert values["vllm:inter_token_latency_seconds_count"] == "14.0"
    assert float(values["vllm:inter_token_latency_seconds_sum"]) == pytest.approx(0.028, rel=1e-3)
    assert float(values["vllm:prefix_cache_hits_total"]) > 0
    assert values["vllm:request_success_total"] == "0.0"  # the last reason: repetition
    names = set(re.findall(r"^# TYPE (\S+)", ours, re.M))
    real = re.findall(r"^# TYPE (vllm:\S+)", VLLM_TYPES, re.M)
    assert names == set(real)


async def test_reasoning_and_answers_are_apart_in_merged_events() -> None:
    async with running(reasoning=5, **TINY) as url, aiohttp.ClientSession() as session:
        asked: dict[str, Any] = chat(max_tokens=12, stream=True, stream_interval=4)
        asked["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
        async with session.post(url + "/v1/chat/completions", json=asked) as answer:
            told = events(await answer.read())
    deltas = [e["choices"][0]["delta"] for e in told[:-2]]
    assert [next(iter(delta)) for delta in deltas[1:]] == ["reasoning"] * 2 + ["content"] * 2
    assert [e["usage"]["completion_tokens"] for e in told[:-2]] == [0, 1, 5, 9, 12]
    assert told[-3]["choices"][0]["finish_reason"] == "length"


VLLM_TYPES = """
# TYPE vllm:num_requests_running gauge
# TYPE vllm:num_requests_waiting gauge
# TYPE vllm:kv_cache_usage_perc gauge
# TYPE vllm:prefix_cache_queries_total counter
# TYPE vllm:prefix_cache_hits_total counter
# TYPE vllm:num_preemptions_total counter
# TYPE vllm:prompt_tokens_total counter
# TYPE vllm:prompt_tokens_by_source_total counter
# TYPE vllm:prompt_tokens_cached_total counter
# TYPE vllm:generation_tokens_total counter
# TYPE vllm:request_success_total counter
# TYPE vllm:request_prompt_tokens histogram
# TYPE vllm:request_generation_tokens histogram
# TYPE vllm:request_max_num_generation_tokens histogram
# TYPE vllm:request_params_n histogram
# TYPE vllm:request_params_max_tokens histogram
# TYPE vllm:time_to_first_token_seconds histogram
# TYPE vllm:inter_token_latency_seconds histogram
# TYPE vllm:request_time_per_output_token_seconds histogram
# TYPE vllm:e2e_request_latency_seconds histogram
# TYPE vllm:request_queue_time_seconds histogram
# TYPE vllm:request_inference_time_seconds histogram
# TYPE vllm:request_prefill_time_seconds histogram
# TYPE vllm:request_decode_time_seconds histogram
# TYPE vllm:request_num_preemptions histogram
# TYPE vllm:request_prefill_kv_computed_tokens histogram
# TYPE vllm:cache_config_info gauge
"""
"""From the recorded `/metrics` of 0.32.0, without what says nothing here: birthdays, media, other
machines, reasons of the queue."""
