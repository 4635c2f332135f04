"""The official OpenAI client on every dialect, and what is special to one."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any, Literal

import aiohttp
import openai
import pydantic
import pytest
from mock_tools import Flat, chat, events, running

from headroom_bench.target import DIALECTS
from mock_server.asks import parse_messages
from mock_server.prompts import render
from mock_server.tokens import count
from mock_server.tool_calls import choose_call

CHAT = "/v1/chat/completions"
THOUGHT_KEY = {"vllm": "reasoning", "ollama": "reasoning", "mlx": "reasoning"}
MESSAGES: Any = [{"role": "user", "content": "Tell me of rivers."}]


class Place(pydantic.BaseModel):
    city: Literal["Oslo", "Rome"]
    zip: int = pydantic.Field(ge=1000, le=9999)


class Trip(pydantic.BaseModel):
    start: Place
    stops: list[Place] = pydantic.Field(min_length=2)
    mode: Literal["train", "bus"] | None
    days: float = pydantic.Field(gt=0, lt=10)
    note: str = pydantic.Field(min_length=12, max_length=40)
    first_class: bool


TOOLS: Any = [
    {"type": "function", "function": {"name": "plan", "parameters": Trip.model_json_schema()}},
    {"type": "function", "function": {"name": "find", "parameters": Place.model_json_schema()}},
]
FORMS = {"plan": Trip, "find": Place}


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_official_client_asks_and_streams(dialect: str) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 12}
    streamed = asked | {"stream": True, "stream_options": {"include_usage": True}}
    async with running(dialect=dialect, alias="m", reasoning=4) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        whole = await client.chat.completions.create(**asked)
        parts = [part async for part in await client.chat.completions.create(**streamed)]
        plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        sync_parts, names, text = await asyncio.to_thread(
            lambda: (
                list(plain.chat.completions.create(**streamed)),
                [model.id for model in plain.models.list()],
                plain.completions.create(model="m", prompt="Rivers", max_tokens=7),
            )
        )
        with pytest.raises(openai.APIStatusError):
            await client.chat.completions.create(model="m", messages=[])
        await client.close()
    key = THOUGHT_KEY.get(dialect, "reasoning_content")
    said = whole.choices[0].message.content or ""
    thought = (whole.choices[0].message.model_extra or {})[key]
    assert (count(said), count(thought)) == (8, 4)
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage
    assert whole.usage.prompt_tokens == count(render(parse_messages({"messages": MESSAGES})))
    for got in (parts, sync_parts):
        deltas = [part.choices[0].delta for part in got if part.choices]
        assert "".join(delta.content or "" for delta in deltas) == said
        shown = [(delta.model_extra or {}).get(key) or "" for delta in deltas]
        assert "".join(shown) == thought
        reasons = [part.choices[0].finish_reason for part in got if part.choices]
        assert [reason for reason in reasons if reason] == ["length"]
        assert got[-1].usage
        assert got[-1].usage.completion_tokens == 12
    assert names == (["m:latest"] if dialect == "ollama" else ["m"])
    assert count(text.choices[0].text) == 7


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tools_are_called_with_arguments_that_their_schema_accepts(dialect: str) -> None:
    async with running(Flat(0.0005), dialect=dialect, alias="m") as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        create = client.chat.completions.create
        for number in range(4):
            messages: Any = [{"role": "user", "content": f"Question {number}"}]
            whole = await create(model="m", messages=messages, tools=TOOLS)
            name, arguments = "", ""
            finish = None
            async for part in await create(model="m", messages=messages, tools=TOOLS, stream=True):
                for choice in part.choices:
                    finish = choice.finish_reason or finish
                    for call in choice.delta.tool_calls or []:
                        assert call.function
                        name += call.function.name or ""
                        arguments += call.function.arguments or ""
            (made,) = whole.choices[0].message.tool_calls or []
            assert isinstance(made, openai.types.chat.ChatCompletionMessageFunctionToolCall)
            assert (made.function.name, made.function.arguments) == (name, arguments)
            assert whole.choices[0].finish_reason == finish == "tool_calls"
            FORMS[name].model_validate_json(arguments)
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [made.model_dump()]},
            {"role": "tool", "tool_call_id": made.id, "content": "done"},
        ]
        answered = await create(model="m", messages=messages, tools=TOOLS)
        wanted: Any = {"type": "function", "function": {"name": "find"}}
        forced = await create(model="m", messages=messages, tools=TOOLS, tool_choice=wanted)
        none = await create(model="m", messages=MESSAGES, tools=TOOLS, tool_choice="none")
        await client.close()
    assert answered.choices[0].message.content
    assert not answered.choices[0].message.tool_calls
    assert not none.choices[0].message.tool_calls
    (call,) = forced.choices[0].message.tool_calls or []
    assert isinstance(call, openai.types.chat.ChatCompletionMessageFunctionToolCall)
    assert call.function.name == "find"


def test_calls_fit_many_schemas() -> None:
    functions = [tool["function"] for tool in TOOLS]
    names = set()
    for number in range(200):
        call = choose_call(str(number), functions)
        FORMS[call.name].model_validate_json(call.arguments)
        names.add(call.name)
    assert names == {"plan", "find"}


async def test_a_call_that_was_sent_back_is_found_in_the_slot() -> None:
    async with running(slots=1) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        first = await client.chat.completions.create(model="m", messages=MESSAGES, tools=TOOLS)
        assert first.usage
        message = first.choices[0].message
        again = await client.chat.completions.create(
            model="m",
            messages=[*MESSAGES, message.model_dump(), {"role": "user", "content": "More."}],
            tools=TOOLS,
            max_tokens=3,
        )
        await client.close()
    assert again.usage
    assert again.usage.prompt_tokens_details
    assert again.usage.prompt_tokens_details.cached_tokens == first.usage.total_tokens - 1


async def told(url: str, **more: Any) -> list[Any]:
    body = chat(stream=True, **more)
    async with aiohttp.ClientSession() as session, session.post(url + CHAT, json=body) as answer:
        return events(await answer.read())


def text_of(stream: list[Any]) -> str:
    chunks = [event for event in stream if event != "[DONE]" and event["choices"]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


async def test_equal_prompts_get_equal_text_in_lockstep_at_temperature_0() -> None:
    async with running(slots=4) as url:
        same = await asyncio.gather(*(told(url, temperature=0) for _ in range(3)))
        hot = [text_of(await told(url, temperature=0.8)) for _ in range(3)]
        seeded = [text_of(await told(url, temperature=0.8, seed=5)) for _ in range(2)]
    assert len({text_of(stream) for stream in same}) == 1
    assert len(set(hot)) == 3
    assert len(set(seeded)) == 1


async def test_forced_lengths_ignore_stops_and_fill_the_context() -> None:
    async with running(Flat(0.0002), dialect="vllm", alias="m", slots=1, ctx=512) as url:
        forced = await told(url, max_tokens=40, min_tokens=40, ignore_eos=True, stop=["."])
        endless = await told(url, max_tokens=None, ignore_eos=True)
    assert count(text_of(forced)) == 40
    assert endless[-2]["choices"][0]["finish_reason"] == "length"
    assert count(text_of(endless)) > 400


async def test_mlx_closes_as_http_1_0_does_and_tells_progress_in_comments() -> None:
    async with running(Flat(0.03, 0.00002), dialect="mlx") as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(chat("word " * 6000, stream=True, max_tokens=3)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        raw = await reader.read()
        writer.close()
        long = chat("word " * 40_000)
        async with aiohttp.ClientSession() as session, session.post(url + CHAT, json=long) as told:
            assert (told.status, list(await told.json())) == (404, ["error"])
    head, _, said = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert b"chunked" not in head.lower()
    comments = [line for line in said.split(b"\n") if line.startswith(b": keepalive ")]
    counts = [tuple(map(int, line.split()[-1].split(b"/"))) for line in comments]
    assert counts == sorted(counts)
    assert len(counts) >= 3
    assert counts[-1][0] == counts[-1][1]


async def test_a_seed_runs_alone_on_mlx() -> None:
    async with running(Flat(0.01), dialect="mlx", slots=4) as url:
        await asyncio.gather(*(told(url, seed=1, max_tokens=9) for _ in range(3)))
        await asyncio.gather(*(told(url, max_tokens=9) for _ in range(3)))
        async with aiohttp.ClientSession() as session:
            truth = (await (await session.get(url + "/truth")).json())["requests"]
    assert {max(request["batch"]) for request in truth[:3]} == {1}
    assert max(max(request["batch"]) for request in truth[3:]) == 3


async def test_sglang_tells_what_matched() -> None:
    async with running(dialect="sglang") as url:
        stream = await told(url, max_tokens=100, stop=["."])
    first, finish = stream[0]["choices"][0], stream[-2]["choices"][0]
    assert list(first["delta"]) == ["role", "content", "reasoning_content", "tool_calls"]
    assert (finish["finish_reason"], finish["matched_stop"]) == ("stop", ".")


async def test_mlx_events_have_its_order_and_its_errors_its_words() -> None:
    usage = {"stream_options": {"include_usage": True}}
    head = ["id", "system_fingerprint", "object", "model", "created", "choices"]
    async with running(dialect="mlx", alias="m") as url, aiohttp.ClientSession() as session:
        body = chat(stream=True, max_tokens=2, n=2, logprobs=3, **usage)
        async with session.post(url + CHAT, json=body) as answer:
            told = events(await answer.read())
        async with session.post(url + CHAT, data=b"{bad") as answer:
            refused = (answer.status, await answer.json())
        async with session.get(url + "/nope") as answer:
            lost = (answer.status, await answer.read())
    assert [list(event) for event in told[:-1]] == [head, head, head, [*head, "usage"]]
    assert list(told[0]["choices"][0]) == ["index", "finish_reason", "delta"]
    assert told[-2]["object"] == "chat.completion"
    assert refused[0] == 400
    assert refused[1]["error"].startswith("Invalid JSON in request body: ")
    assert lost == (404, b"Not Found")


@pytest.mark.parametrize("dialect", ["openai", "vllm", "sglang", "llamacpp"])
async def test_the_official_client_reads_log_probabilities(dialect: str) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 5, "logprobs": True}
    async with running(dialect=dialect, alias="m") as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        create = client.chat.completions.create
        whole = await create(**asked, top_logprobs=3)
        parts = [part async for part in await create(**asked, top_logprobs=3, stream=True)]
        with pytest.raises(openai.BadRequestError):
            await create(**asked, top_logprobs=21)
        with pytest.raises(openai.BadRequestError):
            await create(**asked | {"logprobs": False}, top_logprobs=2)
        await client.close()
    told = whole.choices[0].logprobs
    assert told
    assert told.content
    choices = [choice for part in parts for choice in part.choices if choice.logprobs]
    streamed = [token for c in choices if c.logprobs for token in c.logprobs.content or []]
    assert streamed == told.content
    assert "".join(token.token for token in streamed) == whole.choices[0].message.content
    for token in streamed:
        chances = [top.logprob for top in token.top_logprobs]
        assert chances == sorted(chances, reverse=True)
        assert sum(math.exp(chance) for chance in chances) <= 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_official_client_gets_several_choices(dialect: str) -> None:
    asked: dict[str, Any] = {"model": "m", "messages": MESSAGES, "max_tokens": 6, "n": 3}
    streamed = asked | {"stream": True, "stream_options": {"include_usage": True}}
    async with running(dialect=dialect, alias="m", slots=4) as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        create = client.chat.completions.create
        whole = await create(**asked)
        parts = [part async for part in await create(**streamed)]
        await client.close()
        async with aiohttp.ClientSession() as session, session.get(url + "/truth") as answer:
            told = (await answer.json())["requests"]
    many = 1 if dialect in ("ollama", "mlx") else 3  # which answer one, whatever is asked
    assert [choice.index for choice in whole.choices] == list(range(many))
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == many
    for index in range(many):
        said = [
            choice.delta.content or ""
            for part in parts
            for choice in part.choices
            if choice.index == index
        ]
        assert "".join(said) == texts[index]
    usages = [part.usage for part in parts if part.usage]
    counts = [usage.completion_tokens for usage in usages]
    assert counts == ([6] * many if dialect == "llamacpp" else [6 * many])
    assert len(told) == 2 * many
    assert all(request["outcome"] == "done" for request in told)
    assert sum(len(request["token_sent_ns"]) for request in told) == 6 * many


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_hang_up_ends_every_choice(dialect: str) -> None:
    async with (
        running(Flat(0.005), dialect=dialect, alias="m", slots=3) as url,
        aiohttp.ClientSession() as session,
    ):
        body = chat(stream=True, model="m", max_tokens=2000, n=3)
        async with session.post(url + CHAT, json=body) as answer:
            await answer.content.readany()
            answer.close()
        async with session.post(url + CHAT, json=chat(model="m", max_tokens=2)) as answer:
            assert answer.status == 200
        async with session.get(url + "/truth") as answer:
            told = (await answer.json())["requests"]
    assert {request["outcome"] for request in told} == {"cancelled", "done"}
    assert len(told) == (2 if dialect in ("ollama", "mlx") else 4)
