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


async def test_two_choices_look_recorded() -> None:
    name = "chat_stream_n2"
    async with running(**TINY | {"slots": 4, "request_metrics": False}) as url:
        _, _, writes = await replay(url, name, VLLM)
    ours, theirs = events(b"".join(writes)), events(recorded(name, VLLM).body)
    for told in (ours, theirs):
        for index in (0, 1):
            own = [e for e in told[:-2] if e["choices"][0]["index"] == index]
            reasons = [event["choices"][0]["finish_reason"] for event in own]
            assert reasons == [None] * (len(own) - 1) + ["length"]
            assert own[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert told[-2]["usage"]["completion_tokens"] == 8  # of both
        assert told[-2]["usage"]["total_tokens"] == told[-2]["usage"]["prompt_tokens"] + 8
        assert told[-1] == "[DONE]"
    assert {str(shape(event)) for event in ours} == {str(shape(event)) for event in theirs}


async def test_log_probabilities_look_recorded() -> None:
    name = "completion_stream_logprobs"
    async with running(**TINY) as url:
        _, _, writes = await replay(url, name, VLLM)
        async with aiohttp.ClientSession() as session:
            asked = chat(logprobs=True, top_logprobs=2)
            async with session.post(url + "/v1/chat/completions", json=asked) as answer:
                whole = await answer.json()
    ours, theirs = events(b"".join(writes)), events(recorded(name, VLLM).body)
    for told in (*ours[:-1], *theirs[:-1]):  # the alternatives are keyed by their text
        told["choices"][0]["logprobs"]["top_logprobs"] = None
    assert [shape(event) for event in ours] == [shape(event) for event in theirs]
    places = [event["choices"][0]["logprobs"]["text_offset"][0] for event in ours[:-1]]
    texts = [event["choices"][0]["text"] for event in ours[:-1]]
    assert places == [len("".join(texts[:at])) for at in range(len(texts))]
    tokens = whole["choices"][0]["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens) == whole["choices"][0]["message"]["content"]
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)


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
    if name == "err_context":  # our template has fewer letters, our longest token too
        assert ours["error"]["param"] == theirs["error"]["param"] == "input_text"
        plain = [re.sub(r"(?<!length is )\d+", "N", e["error"]["message"]) for e in (ours, theirs)]
        assert plain[0] == plain[1]
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
    assert float(values["vllm:iteration_tokens_total_count"]) >= 16
    assert families(ours) == families(recorded("metrics_after", VLLM).body.decode())


def families(text: str) -> list[tuple[str, ...]]:
    """Name, help, type and labels of each family, without birthdays, and the config's labels."""
    found = re.findall(r"^# HELP (vllm:\S+) (.*)\n# TYPE \S+ (\w+)\n\S+?\{(.*?)\} ", text, re.M)
    named = [(*family, *re.findall(r"(\w+)=", labels)) for *family, labels in found]
    born = [family for family in named if not family[0].endswith("_created")]
    return [family[:3] if family[0] == "vllm:cache_config_info" else family for family in born]


async def test_drafts_are_counted_by_place() -> None:
    options = TINY | {"draft_tokens": 4}
    async with running(Flat(0.002), **options) as url, aiohttp.ClientSession() as session:
        body = chat(max_tokens=40, stream=True, stream_options={"include_usage": True})
        async with session.post(url + "/v1/chat/completions", json=body) as told:
            pieces = events(await told.read())
        async with session.get(url + "/metrics") as answer:
            ours = await answer.text()
    theirs = recorded("metrics_after", "vllm/0.32.0/http-spec-ngram").body.decode()
    assert families(ours) == families(theirs)
    count = dict(re.findall(r"^vllm:spec_decode_num_(\w+)_total\{[^p]*\} (\S+)$", ours, re.M))
    places = re.findall(r'accepted_tokens_per_pos_total.*position="\d"\} (\S+)', ours)
    assert sum(map(float, places)) == float(count["accepted_tokens"]) > 0
    assert sorted(places, key=float, reverse=True) == places
    assert len(places) == 4
    assert float(count["drafts"]) == len(pieces) - 4  # role, first token, usage, done


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
