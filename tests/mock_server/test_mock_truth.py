"""The ground truth, and how the mock holds to it."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import ssl
import time
import tracemalloc
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from mock_tools import Flat, chat, events, running

from headroom_bench.errors import UserError
from mock_server.answers import NOTHING
from mock_server.jobs import Job
from mock_server.options import MockOptions
from mock_server.replies import WholeReply
from mock_server.tls import context_of
from mock_server.truth import KEPT_REQUESTS, Truth

CHAT = "/v1/chat/completions"
SLACK_S = 0.05


async def truths(url: str, **query: str) -> list[dict[str, Any]]:
    asked = url + "/truth"
    async with aiohttp.ClientSession() as session, session.get(asked, params=query) as answer:
        return list((await answer.json())["requests"])


async def post(url: str, **more: Any) -> bytes:
    body = chat(stream=True, **more)
    async with aiohttp.ClientSession() as session, session.post(url + CHAT, json=body) as answer:
        return await answer.read()


async def test_each_tokens_times_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "truth.jsonl"
    began_ns = time.monotonic_ns()
    async with running(Flat(0.01, 0.0001), truth_file=path, slots=2) as url:
        told = events(await post(url, max_tokens=20))
        await asyncio.gather(post(url, max_tokens=5), post(url, max_tokens=5))
        found = await truths(url, id=told[0]["id"])
        everything = await truths(url)
    (truth,) = found
    assert (truth["outcome"], truth["completion_tokens"]) == ("done", 20)
    due, sent = np.array(truth["token_due_ns"]), np.array(truth["token_sent_ns"])
    assert len(due) == len(sent) == 20
    assert (np.diff(due) >= 1e7 - 1e3).all()  # a slip of a loaded machine only adds
    assert np.median(np.diff(due)) == pytest.approx(1e7, rel=1e-3)
    assert (sent >= due - 1_000_000).all()
    assert np.median(sent - due) < SLACK_S * 1e9
    assert began_ns < truth["arrived_ns"] < sent[0] < time.monotonic_ns()
    assert truth["prefill_s"] == pytest.approx(0.01 + truth["prompt_tokens"] * 0.0001)
    assert set(truth["batch"]) == {1}
    assert max(max(other["batch"]) for other in everything[1:]) == 2
    assert [json.loads(line) for line in path.read_text().splitlines()] == everything


async def test_the_first_to_hang_up_frees_its_slot_at_the_next_pass() -> None:
    pass_s = 0.1
    async with running(Flat(pass_s), slots=1) as url, aiohttp.ClientSession() as session:
        answer = await session.post(url + CHAT, json=chat(max_tokens=500, stream=True))
        await answer.content.readuntil(b"\n\n")
        waiting = asyncio.ensure_future(post(url, max_tokens=2))
        await asyncio.sleep(pass_s / 2)
        left_ns = time.monotonic_ns()
        answer.close()
        await waiting
        first, second = await truths(url)
    assert (first["outcome"], second["outcome"]) == ("cancelled", "done")
    assert second["admitted_ns"] - left_ns < (pass_s + SLACK_S) * 1e9


async def test_what_is_not_streamed_has_no_send_times() -> None:
    async with running() as url, aiohttp.ClientSession() as session:
        async with session.post(
            url + CHAT, json=chat(), headers={"X-Request-Id": "mine"}
        ) as answer:
            await answer.read()
        (truth,) = await truths(url, id="mine")
        assert await truths(url, id="other") == []
    assert (len(truth["token_due_ns"]), truth["token_sent_ns"]) == (8, [])


def test_the_ring_is_bounded() -> None:
    async def fill() -> tuple[int, int]:
        truth = Truth()
        for number in range(KEPT_REQUESTS + 50):
            answer_to = WholeReply()
            job = Job(str(number), (), 1, NOTHING, "", 1, answer_to)
            truth.over(job, "mock", int)
        return len(truth.latest()), truth.lost

    assert asyncio.run(fill()) == (KEPT_REQUESTS, 50)


def test_a_file_that_cannot_be_written_is_told() -> None:
    with pytest.raises(UserError, match="cannot write"):
        Truth(Path("/nowhere/at/all.jsonl"))


async def test_preempted_sequences_go_on_where_they_were() -> None:
    options = {"dialect": "vllm", "alias": "m", "slots": 4, "ctx": 512, "pool": 640}
    async with running(Flat(0.0005), **options) as url, aiohttp.ClientSession() as session:
        asked = [post(url, text=f"Question {n} " * 20, max_tokens=200) for n in range(4)]
        answers = [events(body) for body in await asyncio.gather(*asked)]
        found = await truths(url)
        metrics = await (await session.get(url + "/metrics")).text()
    assert sum(truth["preemptions"] for truth in found) > 0
    assert [truth["completion_tokens"] for truth in found] == [200] * 4
    assert all(len(truth["token_sent_ns"]) == 200 for truth in found)
    assert all(told[-2]["choices"][0]["finish_reason"] == "length" for told in answers)
    assert 'vllm:num_preemptions_total{engine="0",model_name="m"} 0.0' not in metrics


async def test_memory_stays_flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mock_server.truth.KEPT_REQUESTS", 50)
    monkeypatch.setattr("mock_server.prompts._KEPT_SEGMENTS", 50)
    monkeypatch.setattr("headroom_bench.designs.MIB", 2**6)  # what --cache-ram counts by
    async with running(Flat(0.00001), slots=4) as url, aiohttp.ClientSession() as session:

        async def ask(count: int) -> int:
            for _ in range(count):
                numbers.append(1)
                body = chat(f"Question {len(numbers)}.", max_tokens=3, stream=True)
                async with session.post(url + CHAT, json=body) as answer:
                    await answer.read()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        numbers: list[int] = []
        tracemalloc.start()
        try:
            before = await ask(200)
            after = await ask(400)
        finally:
            tracemalloc.stop()
    assert after - before < 400 * 200  # 200 bytes a request: a leak is more


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")
async def test_tls_with_a_certificate_of_its_own() -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with running(tls_self_signed=True) as url, aiohttp.ClientSession() as session:
        assert url.startswith("https://")
        async with session.post(url + CHAT, json=chat(stream=True), ssl=trusting) as answer:
            assert events(await answer.read())[-1] == "[DONE]"
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(url + "/health")


def test_tls_that_cannot_be_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="both"):
        context_of(MockOptions(tls_cert=Path("x")))
    with pytest.raises(UserError, match="cannot use the certificate"):
        context_of(MockOptions(tls_cert=Path("/x"), tls_key=Path("/y")))
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UserError, match="openssl"):
        context_of(MockOptions(tls_self_signed=True))
