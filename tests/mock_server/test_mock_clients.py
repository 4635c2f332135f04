"""Clients of the mock: the official one, many at once, rude ones."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from mock_tools import Flat, chat, events, running

from headroom_bench.errors import UserError
from headroom_bench.journal.join import ServerTimings, join
from headroom_bench.journal.llamacpp import LlamaCppParser
from headroom_bench.records import JournalRecord, JournalSample
from mock_server.__main__ import main
from mock_server.app import make_app
from mock_server.options import MockOptions
from mock_server.prompts import render
from mock_server.stream import Stream
from mock_server.tokens import count

CHAT = "/v1/chat/completions"
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


async def stream(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> list[Any]:
    async with session.post(url + CHAT, json=body | USAGE) as answer:
        assert answer.status == 200, await answer.text()
        return events(await answer.read())


def text_of(told: list[Any]) -> str:
    return "".join(e["choices"][0]["delta"].get("content") or "" for e in told[:-2])


def journal_of(path: Path) -> list[JournalRecord | JournalSample]:
    parser = LlamaCppParser("mock")
    found = [entry for line in path.read_text().splitlines() for entry in parser.feed(line)]
    return found + parser.close()


async def test_official_client() -> None:
    messages: Any = [{"role": "user", "content": "Tell me of rivers."}]
    asked: dict[str, Any] = {"model": "any", "messages": messages, "max_tokens": 12}
    streamed: dict[str, Any] = asked | {"stream": True, "stream_options": {"include_usage": True}}
    async with running() as url:
        client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none")
        whole = await client.chat.completions.create(**asked)
        parts = [part async for part in await client.chat.completions.create(**streamed)]
        plain = openai.OpenAI(base_url=f"{url}/v1", api_key="none")
        sync_whole, sync_parts, names = await asyncio.to_thread(
            lambda: (
                plain.chat.completions.create(**asked),
                list(plain.chat.completions.create(**streamed)),
                [model.id for model in plain.models.list()],
            )
        )
        await client.close()
    assert names == ["gpt-oss-20b-MXFP4.gguf"]
    said = whole.choices[0].message.content
    assert said
    assert count(said) == 12
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage
    assert whole.usage.prompt_tokens == count(render([("user", "Tell me of rivers.")]))
    assert sync_whole.choices[0].message.content == said
    for got in (parts, sync_parts):
        assert "".join(p.choices[0].delta.content or "" for p in got if p.choices) == said
        assert got[-1].usage
        assert got[-1].usage.completion_tokens == 12


async def test_no_limit_and_stop_strings_end_with_stop() -> None:
    async with running(Flat(0.0002)) as url, aiohttp.ClientSession() as session:
        told = await stream(session, url, {"messages": chat()["messages"]})
        cut = await stream(session, url, {"messages": chat()["messages"], "stop": ["."]})
    assert told[-3]["choices"][0]["finish_reason"] == "stop"
    assert told[-2]["usage"]["completion_tokens"] == 256
    assert cut[-3]["choices"][0]["finish_reason"] == "stop"
    assert text_of(cut) == text_of(told).partition(".")[0]


async def test_an_answer_sent_back_is_found_in_the_slot() -> None:
    async with running(slots=2) as url, aiohttp.ClientSession() as session:
        messages = [
            {"role": "system", "content": "You are kind. " * 20},
            {"role": "user", "content": "Tell me of rivers."},
        ]
        kept = 0
        for turn in range(4):
            told = await stream(session, url, {"messages": messages, "max_tokens": 30 + turn})
            usage = told[-2]["usage"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == kept
            kept = usage["total_tokens"] - 1
            messages += [
                {"role": "assistant", "content": text_of(told)},
                {"role": "user", "content": f"And what of number {turn}?"},
            ]
        fresh = {"messages": messages, "max_tokens": 4, "cache_prompt": False}
        told = await stream(session, url, fresh)
        assert told[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_shared_beginnings_are_found_in_blocks() -> None:
    whole = {"model": "qwen3-8b", "quant": "Q4_K_M"}  # every layer sees everything
    async with running(slots=1, **whole) as url, aiohttp.ClientSession() as session:
        shared = " ".join(["word"] * 100)
        await stream(session, url, chat(shared + " first"))
        told = await stream(session, url, chat(shared + " second"))
    assert told[-2]["usage"]["prompt_tokens_details"]["cached_tokens"] == 96


async def test_a_full_context_cuts_the_answer() -> None:
    async with running(slots=1, ctx=256) as url, aiohttp.ClientSession() as session:
        told = await stream(session, url, chat("word " * 200, max_tokens=500))
    assert told[-3]["choices"][0]["finish_reason"] == "length"
    assert told[-2]["usage"]["total_tokens"] == 256
    assert count(text_of(told)) == told[-2]["usage"]["completion_tokens"]


async def test_the_journal_joins_exactly_to_a_burst(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    pricer = Flat(0.003, 0.00002)
    async with (
        running(pricer, path, slots=4, time_scale=2.0) as url,
        aiohttp.ClientSession() as session,
    ):
        bodies = [chat(f"word {n} " * (n + 5), max_tokens=5 + 3 * n) for n in range(12)]
        answers = await asyncio.gather(*(stream(session, url, body) for body in bodies))
        too_long = await session.post(url + CHAT, json=chat("word " * 9000))
        assert too_long.status == 400
    records = [entry for entry in journal_of(path) if isinstance(entry, JournalRecord)]
    requests = [
        ServerTimings(
            str(n),
            *(told[-2]["timings"][key] for key in ("prompt_n", "cache_n", "prompt_ms")),
            *(told[-2]["timings"][key] for key in ("predicted_n", "predicted_ms")),
        )
        for n, told in enumerate(answers)
    ]
    report = join(records, requests)
    assert (report.matched, report.ambiguous, report.unmatched_requests) == (12, 0, ())
    done = [record for record in records if record.outcome == "done"]
    assert [record.outcome for record in records if record.outcome != "done"] == ["error"]
    for record in done:
        told = answers[int(record.request_id or -1)][-2]
        assert record.cached_tokens == told["timings"]["cache_n"]
        assert record.rate_rule in ("n-1", None)
    tasks = sorted(record.task for record in done)
    assert len(set(tasks)) == 12
    assert tasks != list(range(12))


async def test_long_answers_and_prompts_are_told_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    pricer = Flat(0.02, 0.005)
    async with (
        running(pricer, path, slots=1, time_scale=40.0) as url,
        aiohttp.ClientSession() as session,
    ):
        await stream(session, url, chat("word " * 3000, max_tokens=400))
    samples = [entry for entry in journal_of(path) if isinstance(entry, JournalSample)]
    assert [sample.gen_tokens >= 100 for sample in samples] == [True] * len(samples)
    assert len(samples) == 2  # 8 s of answer
    assert samples[0].tok_s_3s == pytest.approx(50, rel=0.02)
    assert "prompt processing, n_tokens = " in path.read_text()


async def test_hanging_up_frees_the_slot_and_is_journalled(tmp_path: Path) -> None:
    path = tmp_path / "journal.log"
    async with running(Flat(0.005), path, slots=1) as url, aiohttp.ClientSession() as session:
        answer = await session.post(url + CHAT, json=chat(max_tokens=5000, stream=True))
        await answer.content.readuntil(b"\n\n")
        waiting = asyncio.ensure_future(stream(session, url, chat("Another.", max_tokens=3)))
        queued = asyncio.ensure_future(stream(session, url, chat("A third.", max_tokens=3)))
        whole = asyncio.ensure_future(session.post(url + CHAT, json=chat(max_tokens=3)))
        await asyncio.sleep(0.05)
        queued.cancel()
        whole.cancel()
        answer.close()
        told = await asyncio.wait_for(waiting, 2)
        assert told[-2]["usage"]["completion_tokens"] == 3
        async with session.get(url + "/slots") as slots:
            assert [slot["is_processing"] for slot in await slots.json()] == [False]
    outcomes = [e.outcome for e in journal_of(path) if isinstance(e, JournalRecord)]
    assert sorted(outcomes) == ["cancelled", "cancelled", "cancelled", "done"]


async def test_a_client_that_does_not_read_is_cut_off() -> None:
    pricer = Flat(0.00001)
    async with running(pricer, slots=1, ctx=200_000, time_scale=1.0) as url:
        host, port = url.removeprefix("http://").split(":")
        lazy = socket.create_connection((host, int(port)))
        body = json.dumps(chat(max_tokens=150_000, stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        lazy.sendall(head + body)
        async with aiohttp.ClientSession() as session:
            told = await asyncio.wait_for(stream(session, url, chat(max_tokens=3)), 20)
        lazy.close()
    assert told[-2]["usage"]["completion_tokens"] == 3


async def test_fifty_streams_complete() -> None:
    async with running(slots=50, ctx=50 * 512) as url:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            bodies = [chat(f"Number {n}.", max_tokens=40) for n in range(50)]
            answers = await asyncio.gather(*(stream(session, url, body) for body in bodies))
    assert [told[-2]["usage"]["completion_tokens"] for told in answers] == [40] * 50
    assert [count(text_of(told)) for told in answers] == [40] * 50


async def test_progress_is_told() -> None:
    async with running() as url, aiohttp.ClientSession() as session:
        told = await stream(session, url, chat(return_progress=True))
    progress = [event["prompt_progress"] for event in told[:-1] if "prompt_progress" in event]
    assert [p["processed"] for p in progress] == [0, progress[0]["total"]]


async def test_tokens_and_detokenize_agree() -> None:
    text = "Hello, world! Ünïcødé 🙂\nTwo lines."
    async with running() as url, aiohttp.ClientSession() as session:
        asked = {"content": text, "with_pieces": True, "add_special": True}
        async with session.post(url + "/tokenize", json=asked) as answer:
            pieces = (await answer.json())["tokens"]
        ids = [piece["id"] for piece in pieces]
        async with session.post(url + "/detokenize", json={"tokens": ids}) as answer:
            assert (await answer.json())["content"] == text
        raw = {"prompt": ids, "n_predict": 2}
        async with session.post(url + "/completion", json=raw) as answer:
            assert (await answer.json())["tokens_evaluated"] == len(ids) == count(text)
    assert pieces[0]["piece"] == "Hello"
    assert [piece["piece"] for piece in pieces if not isinstance(piece["piece"], str)]


async def test_a_body_that_is_too_big_is_refused() -> None:
    async with running() as url, aiohttp.ClientSession() as session:
        async with session.post(url + CHAT, data=b" " * (33 << 20)) as answer:
            assert answer.status == 413
            assert (await answer.json())["error"]["code"] == 413
        async with session.get(url + "/health") as answer:
            assert answer.status == 200


async def test_old_clients_get_their_stream() -> None:
    body = json.dumps(chat(stream=True)).encode()
    async with running() as url:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        head = f"POST {CHAT} HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body)
        told = (await reader.read()).partition(b"\r\n\r\n")[2]
        writer.close()
    assert events(told)[-1] == "[DONE]"


def test_wrong_options_are_told_in_one_line() -> None:
    for wrong in ({"dialect": "none"}, {"model": "none"}, {"slots": 0}, {"time_scale": 0.0}):
        with pytest.raises(UserError):
            make_app(MockOptions(**wrong))


def test_wrong_flags_are_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--nope"], ["--slots", "x"], ["--ctx", "many"], ["--fault", "cutt"]):
        assert main(wrong) == 2
        told = capsys.readouterr().err
        assert told.startswith("python -m mock_server: ")
        assert told.count("\n") == 1


def test_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--list-faults"])
    assert end.value.code == 0
    assert "| `cut:TOKENS=4` |" in capsys.readouterr().out


async def test_a_taken_port_is_told() -> None:
    async with running() as url:
        with pytest.raises(UserError, match="cannot start"):
            async with running(port=int(url.rpartition(":")[2])):
                pass


@pytest.mark.skipif(os.name == "nt", reason="signals are another thing there")
def test_command_line_starts_says_so_and_ends_when_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal.log"
    args = ["--journal-file", str(journal), "--slots", "2", "--ctx", "4Ki", "--alias", "me"]
    command = [sys.executable, "-m", "mock_server", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        line = process.stdout.readline().decode()
        assert line.startswith("listening on http://127.0.0.1:")
        port = int(line.rpartition(":")[2])
        body = json.dumps(chat(max_tokens=1900, stream=True)).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(head + body)
            assert b'"model":"me"' in client.recv(4096) + client.recv(4096)
            process.send_signal(signal.SIGTERM)
            assert process.wait(1.5) == 0
        assert process.stderr.read() == b""
    assert "listening on" in journal.read_text()


async def test_a_client_that_hangs_up_before_the_bodys_end_is_no_error() -> None:
    """llm-grill does as soon as it has read `[DONE]`, and then the end cannot be written."""
    stream_ = Stream(make_mocked_request("POST", "/"), {})

    class Gone(web.StreamResponse):
        async def write_eof(self, data: bytes = b"") -> None:
            raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")

    stream_.response = Gone()
    await stream_.finish()
    assert not stream_.open
