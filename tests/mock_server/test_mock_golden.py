"""The mock's answers have the shape of the real server's."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from mock_tools import LLAMACPP, Flat, chat, events, recorded, replay, running, shape

from mock_server.designs import box_of
from mock_server.options import MockOptions

STREAMS = [
    "chat_stream",
    "chat_stream_usage",
    "chat_stream_stop",
    "chat_stream_nocache",
    "chat_stream_timings_per_token",
    "chat_max_tokens_0",
    "chat_max_tokens_1",
    "chat_ignore_eos",
    "chat_stream_logprobs",
    "chat_stream_verbose",
    "oai_completion_stream",
    "oai_completion_stream_usage",
    "native_completion_stream",
    "err_empty_prompt",
]
OLDER = [
    (folder, name, form)
    for folder, form in (("llamacpp/b7551/http", "J4"), ("llamacpp/b9713/http", "J6"))
    for name in (
        "chat_stream",
        "chat_stream_usage",
        "chat_stream_timings_per_token",
        "chat_max_tokens_1",
        "oai_completion_stream_usage",
        "err_bad_json",
        "err_no_messages",
        "err_context_exceeded",
    )
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
    "err_tool_no_jinja",
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


@pytest.mark.parametrize(("folder", "name", "form"), OLDER)
async def test_older_builds_look_recorded(folder: str, name: str, form: str) -> None:
    real = recorded(name, folder)
    async with running(ctx=1024, slots=2, journal_format=form) as url:
        status, _, writes = await replay(url, name, folder)
    assert status == real.status
    if name.startswith("err_"):
        assert shape(json.loads(b"".join(writes))) == shape(json.loads(real.body))
        return
    ours = [shape(event) for event in events(b"".join(writes))]
    theirs = [shape(event) for event in events(real.body)]
    assert ours[:2] == theirs[:2]
    assert ours[-2:] == theirs[-2:]
    assert {str(event) for event in ours} == {str(event) for event in theirs}


async def test_one_token_has_a_million_a_second_in_older_builds() -> None:
    rates = {}
    for form in ("J4", "J6", "J8"):
        async with running(journal_format=form) as url:
            _, _, writes = await replay(url, "chat_max_tokens_1")
        timings = next(e["timings"] for e in events(b"".join(writes)) if "timings" in e)
        rates[form] = timings["predicted_per_second"]
    assert rates == {"J4": 1e6, "J6": 1e6, "J8": 0.0}


def kinds(told: list[Any]) -> list[str]:
    """What each event brings, runs of the same as one."""
    found: list[str] = []
    for event in told:
        kind = _kind(event)
        if not found or found[-1] != kind:
            found.append(kind)
    return found


def _kind(event: Any) -> str:
    if event == "[DONE]" or "error" in event:
        return "done" if event == "[DONE]" else "error"
    if not event["choices"]:
        return "usage"
    choice = event["choices"][0]
    if choice["finish_reason"]:
        return f"finish {choice['finish_reason']}"
    told = "progress" if "prompt_progress" in event else ""
    calls = choice["delta"].get("tool_calls")
    if calls:
        return "call" if "id" in calls[0] else "arguments"
    return told or " ".join(choice["delta"])


async def test_reasoning_looks_recorded() -> None:
    name = "chat_stream_reasoning_then_content"
    async with running(reasoning=6, slots=1) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert kinds(theirs)[:3] == ["role content", "reasoning_content", "content"]
    assert kinds(ours)[:3] == kinds(theirs)[:3]
    assert [shape(event) for event in ours[:3]] == [shape(event) for event in theirs[:3]]


async def test_reasoning_stays_in_the_content_where_asked() -> None:
    name = "chat_stream_reasoning_none"
    async with running(reasoning=3, slots=1) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert kinds(ours)[:2] == kinds(theirs)[:2] == ["role content", "content"]
    first = [told[1]["choices"][0]["delta"]["content"] for told in (ours, theirs)]
    assert all(text.startswith("<think>\n") for text in first)


async def test_tool_calls_look_recorded() -> None:
    name = "chat_stream_tool_calls"
    async with running(slots=1) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert kinds(theirs)[:3] == ["role content", "call", "arguments"]  # the model called twice
    assert kinds(ours) == [*kinds(theirs)[:3], *kinds(theirs)[5:]]
    assert [shape(event) for event in ours[:3]] == [shape(event) for event in theirs[:3]]
    assert shape(ours[-2]) == shape(theirs[-2])


async def test_progress_looks_recorded() -> None:
    name = "chat_stream_progress"
    async with running(slots=1) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert kinds(ours) == kinds(theirs)
    assert shape(ours[0]) == shape(theirs[0])


async def test_drafts_look_recorded() -> None:
    name = "chat_stream_spec_draft"
    async with running(slots=1, draft_tokens=4) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert shape(ours[-2]) == shape(theirs[-2])
    told = ours[-2]["timings"]
    assert told["draft_n"] >= told["draft_n_accepted"] > 0
    assert max(len(events(write)) for write in writes[1:-2]) > 1  # a burst shares a write


async def test_a_full_shared_memory_kills_all_as_recorded() -> None:
    name = "chat_stream_kvu_exhausted_a"
    options = {"slots": 2, "ctx": 512, "kv_unified": True}
    async with running(**options) as url:
        one, two = await asyncio.gather(replay(url, name), replay(url, name))
    theirs = events(recorded(name).body)
    for _, _, writes in (one, two):
        ours = events(b"".join(writes))
        assert ours[-1] == theirs[-1]
        assert kinds(ours) == kinds(theirs)


@pytest.mark.parametrize(
    ("told", "memory"),
    [
        ({}, "split_slots"),
        ({"runtime": "lm-studio"}, "unified_slots"),
        ({"runtime": "lm-studio", "kv_unified": False}, "split_slots"),
        ({"kv_unified": True}, "unified_slots"),
    ],
)
def test_slots_share_memory_as_the_runtime_s_do_unless_told(
    told: dict[str, Any], memory: str
) -> None:
    assert box_of(MockOptions(**told))[1].memory == memory


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


async def test_each_native_token_has_its_timings_where_asked() -> None:
    name = "native_completion_stream_ignore_eos"
    async with running(slots=1) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    assert len(ours) == len(theirs)
    assert shape(ours[0]) == shape(theirs[0])
    assert shape(ours[-2]) == shape(theirs[-2])


async def test_an_idle_slot_tells_what_it_ran_last_as_recorded() -> None:
    real = json.loads(recorded("slots_after").body)
    async with running(slots=1) as url, aiohttp.ClientSession() as session:
        async with session.post(url + "/v1/chat/completions", json=chat()) as answer:
            await answer.read()
        async with session.get(url + "/slots") as slots:
            (ours,) = json.loads(await slots.read())
    assert shape(ours) == shape(real[0])
    assert (ours["is_processing"], ours["params"]["max_tokens"]) == (False, 8)


async def test_a_stream_pings_as_often_as_its_request_says() -> None:
    """The recorded server was told to ping each second; one was asked for the same here."""
    async with running(Flat(0.002, 0.05), slots=1) as url, aiohttp.ClientSession() as session:
        body = chat("word " * 20, stream=True, max_tokens=2, sse_ping_interval=1)
        async with session.post(url + "/v1/chat/completions", json=body) as answer:
            told = await answer.read()
    assert told.startswith(b":\n\n")
    assert recorded("chat_stream_ping_1s").body.startswith(b":\n\n")


async def test_completions_tell_log_probabilities() -> None:
    async with running(slots=1) as url, aiohttp.ClientSession() as session:
        asked = {"prompt": "word", "n_probs": 3, "max_tokens": 2}
        async with session.post(url + "/completion", json=asked) as answer:
            whole = await answer.json()
        async with session.post(url + "/v1/completions", json=asked) as answer:
            choice = (await answer.json())["choices"][0]
    for told in (whole["completion_probabilities"], choice["logprobs"]["content"]):
        assert [list(token) for token in told] == [
            ["id", "token", "bytes", "logprob", "top_logprobs"]
        ] * 2
        assert all(len(token["top_logprobs"]) == 3 for token in told)
        assert all(token["top_logprobs"][0]["id"] == token["id"] for token in told)


def families(body: bytes) -> list[str]:
    return [line for line in body.decode().splitlines() if line.startswith("#")]


@pytest.mark.parametrize(
    ("folder", "name", "form"),
    [
        (LLAMACPP, "metrics_after", "J8"),
        (LLAMACPP, "metrics_spec_draft", "J8"),
        ("llamacpp/b9713/http", "metrics_after", "J6"),
        ("llamacpp/b7551/http", "metrics_after", "J4"),
    ],
)
async def test_metrics_have_the_real_names_and_words(folder: str, name: str, form: str) -> None:
    drafts = 4 if "spec" in name else None
    async with (
        running(metrics=True, journal_format=form, draft_tokens=drafts) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(url + "/v1/chat/completions", json=chat(max_tokens=40)) as answer:
            await answer.read()
        async with session.get(url + "/metrics") as answer:
            ours = await answer.read()
    assert families(ours) == families(recorded(name, folder).body)


async def test_each_scrape_starts_the_rates_anew() -> None:
    async def rate() -> float:
        async with session.get(url + "/metrics") as answer:
            text = await answer.text()
        (line,) = [row for row in text.splitlines() if row.startswith("llamacpp:predicted_tok")]
        return float(line.split()[1])

    async with (
        running(Flat(0.002), metrics=True) as url,
        aiohttp.ClientSession() as session,
    ):
        rates = [await rate()]
        async with session.post(url + "/v1/chat/completions", json=chat(max_tokens=9)) as answer:
            await answer.read()
        rates += [await rate(), await rate()]
    assert rates == [0, pytest.approx(9 / (8 * 0.002)), 0]


async def test_drafts_are_counted_as_recorded() -> None:
    def values(text: str) -> dict[str, str]:
        lines = (line.split() for line in text.splitlines() if line.startswith("llamacpp:"))
        return {line[0]: line[1] for line in lines}

    async with running(metrics=True, draft_tokens=4, slots=1) as url:
        _, _, writes = await replay(url, "chat_stream_spec_draft")
        _, _, body = await replay(url, "metrics_after")
    ours = values(b"".join(body).decode())
    told = events(b"".join(writes))[-2]["timings"]
    assert int(ours["llamacpp:spec_decode_num_draft_tokens_total"]) == told["draft_n"]
    assert int(ours["llamacpp:spec_decode_num_accepted_tokens_total"]) == told["draft_n_accepted"]


async def test_answers_503_while_loading() -> None:
    async with running(loading_s=6.0, time_scale=20.0) as url, aiohttp.ClientSession() as session:
        async with session.get(url + "/health") as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["message"] == "Loading model"
        await asyncio.sleep(0.35)
        async with session.get(url + "/health") as answer:
            assert answer.status == 200


def of_index(told: list[Any], index: int) -> list[Any]:
    """The shapes of one choice's events."""
    return [
        shape(event)
        for event in told
        if event != "[DONE]" and event["choices"] and event["choices"][0]["index"] == index
    ]


async def test_two_choices_look_recorded() -> None:
    name = "chat_stream_n2"
    async with running(slots=2) as url:
        _, _, writes = await replay(url, name)
    ours, theirs = events(b"".join(writes)), events(recorded(name).body)
    for index in (0, 1):
        assert of_index(ours, index) == of_index(theirs, index)
    assert (ours[-1], ours.count("[DONE]")) == ("[DONE]", 1)
    for told in (ours, theirs):  # each choice tells its own usage
        usages = [event for event in told if event != "[DONE]" and not event["choices"]]
        assert [usage["usage"]["completion_tokens"] for usage in usages] == [6, 6]
        assert shape(usages[0]) == shape(usages[1])
    texts = [
        "".join(
            event["choices"][0]["delta"].get("content") or ""
            for event in ours
            if event != "[DONE]" and event["choices"] and event["choices"][0]["index"] == index
        )
        for index in (0, 1)
    ]
    assert texts[0] != texts[1]


async def test_more_choices_than_slots_are_refused() -> None:
    async with running(slots=2) as url, aiohttp.ClientSession() as session:
        async with session.post(url + "/v1/chat/completions", json=chat(n=3)) as answer:
            told = await answer.json()
            assert answer.status == 400
        async with session.post(
            url + "/completion", json={"prompt": "a", "n": 2, "n_predict": 3}
        ) as a:
            both = await a.json()
    assert "number of slots" in told["error"]["message"]
    assert [one["index"] for one in both] == [0, 1]


@pytest.mark.parametrize(("folder", "form"), [("b7551", "J4"), ("b9713", "J6")])
@pytest.mark.parametrize("name", ["models", "props", "slots_after", "native_completion_stream"])
async def test_older_builds_tell_their_state_as_recorded(folder: str, form: str, name: str) -> None:
    where = f"llamacpp/{folder}/http"
    real = recorded(name, where)
    async with (
        running(ctx=1024, slots=1, journal_format=form) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(url + "/v1/chat/completions", json=chat(max_tokens=2)) as answer:
            await answer.read()
        _, headers, writes = await replay(url, name, where)
    if name.startswith("native"):
        assert ("X-Accel-Buffering", "no") not in headers
        ours, theirs = events(b"".join(writes))[-1], events(real.body)[-1]
    else:
        ours, theirs = json.loads(b"".join(writes)), json.loads(real.body)
    if name == "props":
        del ours["mock"]
    assert names_in(ours) == names_in(theirs)


def names_in(value: Any) -> Any:
    """Keys in their order, however deep."""
    if isinstance(value, dict):
        return [(key, names_in(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [names_in(inner) for inner in value[:1] if isinstance(inner, dict)]
    return None
