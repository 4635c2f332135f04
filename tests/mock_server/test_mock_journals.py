"""Journals of three forms, read by our own parser, whole and damaged."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from mock_tools import CAPTURES, Flat, chat, events, running

from headroom_bench.journal.join import ServerTimings, join
from headroom_bench.journal.llamacpp import LlamaCppParser
from headroom_bench.records import JournalRecord

CHAT = "/v1/chat/completions"
REAL = {
    "J6": CAPTURES / "llamacpp/b9713/journal/two-slots.log",
    "J8": CAPTURES / "llamacpp/b11549/journal/suite-np2-lv3.log",
}


async def burst(journal: Path, count: int = 8, **options: Any) -> list[dict[str, Any]]:
    """Asks `count` things at once; returns the answers' timings."""

    async def one(number: int) -> dict[str, Any]:
        asked = chat(f"word {number} " * (number + 5), max_tokens=5 + 3 * number, stream=True)
        async with session.post(url + CHAT, json=asked) as answer:
            told = events(await answer.read())
        return dict(next(event["timings"] for event in told if "timings" in event))

    pricer = Flat(0.003, 0.00002)
    async with (
        running(pricer, journal, slots=4, time_scale=2.0, **options) as url,
        aiohttp.ClientSession() as session,
    ):
        return list(await asyncio.gather(*(one(number) for number in range(count))))


def records_of(text: str) -> list[JournalRecord]:
    parser = LlamaCppParser("mock")
    found = [entry for line in text.splitlines() for entry in parser.feed(line)]
    return [entry for entry in [*found, *parser.close()] if isinstance(entry, JournalRecord)]


def joined(text: str, answers: list[dict[str, Any]]) -> int:
    """How many answers find their record."""
    keys = ("prompt_n", "cache_n", "prompt_ms", "predicted_n", "predicted_ms")
    asked = [ServerTimings(str(n), *(told[key] for key in keys)) for n, told in enumerate(answers)]
    return join(records_of(text), asked).matched


@pytest.mark.parametrize("form", ["J6", "J8"])
async def test_every_answer_finds_its_record(form: str, tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    answers = await burst(log, journal_format=form)
    assert joined(log.read_text(), answers) == len(answers)
    rules = {record.rate_rule for record in records_of(log.read_text())}
    assert rules - {None} == {"n-1" if form == "J8" else "n"}


def grammar(text: str) -> set[str]:
    """Lines of slots with their numbers taken out."""
    lines = re.findall(r"slot +(?:print_timing|launch_slot_|release|get_availabl): .*", text)
    return {re.sub(r" *-?[0-9]+(?:\.[0-9]+)?", " N", line) for line in lines}


@pytest.mark.parametrize("form", REAL)
async def test_lines_are_spelt_as_recorded(form: str, tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    await burst(log, journal_format=form)
    real = grammar(REAL[form].read_text("utf-8", "replace"))
    ours = grammar(log.read_text())
    assert len(ours) >= 7
    assert ours <= real


async def test_the_oldest_form_has_bare_lines_after_a_header(tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    await burst(log, 2, journal_format="J4")
    text = log.read_text()
    block = (
        r"^slot print_timing: id +\d+ \| task \d+ \| \n"
        r"prompt eval time = +[\d.]+ ms / +\d+ tokens \( +[\d.]+ ms per token, .*\)\n"
        r"       eval time = +[\d.]+ ms / +\d+ tokens \( +[\d.]+ ms per token, .*\)\n"
        r"      total time = +[\d.]+ ms / +\d+ tokens\n"
        r"slot      release: id +\d+ \| task \d+ \| stop processing: n_tokens = \d+, truncated = 0$"
    )
    assert len(re.findall(block, text, re.M)) == 2
    assert "tg =" not in text


async def test_headers_wait_for_the_first_token_in_the_oldest_build() -> None:
    async def waited_s(form: str) -> float:
        loop = asyncio.get_running_loop()
        async with (
            running(Flat(0.2), journal_format=form) as url,
            aiohttp.ClientSession() as session,
        ):
            asked = loop.time()
            async with session.post(url + CHAT, json=chat(stream=True, max_tokens=1)) as answer:
                waited = loop.time() - asked
                assert events(await answer.read())[-1] == "[DONE]"
        return waited

    assert await waited_s("J4") >= 0.2
    assert await waited_s("J8") < 0.15


async def test_draft_acceptance_is_journalled(tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    await burst(log, 3, draft_tokens=4)
    told = records_of(log.read_text())
    assert all(record.draft_tokens for record in told)
    real = (CAPTURES / "llamacpp/b11549/journal/spec-draft-simple-lv4.log").read_text()
    assert {line for line in grammar(log.read_text()) if "draft" in line} <= grammar(real)


async def test_split_writes_lose_nothing(tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    answers = await burst(log, faults=("log-split",))
    assert joined(log.read_text(), answers) == len(answers)


async def test_lost_lines_leave_partial_records(tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    answers = await burst(log, 12, faults=("log-lost:0.2",))
    assert 0 < joined(log.read_text(), answers) < len(answers)


async def test_a_clock_that_jumps_changes_no_join(tmp_path: Path) -> None:
    log = tmp_path / "journal.log"
    answers = await burst(log, faults=("log-clock-jump:3600:0.02",))
    assert joined(log.read_text(), answers) == len(answers)
    assert re.search(r"^60\.\d\d\.", log.read_text(), re.M)


async def test_vllm_logs_its_averages_and_exchanges(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    async with (
        running(Flat(0.05), log, dialect="vllm", time_scale=50.0) as url,
        aiohttp.ClientSession() as session,
        session.post(url + CHAT, json=chat(max_tokens=250)) as answer,
    ):
        await answer.read()
    text = log.read_text()
    told = r'INFO:     127\.0\.0\.1:\d{4,5} - "POST /v1/chat/completions HTTP/1\.1" 200 OK'
    assert re.search(told, text)
    rates = re.findall(r"Avg generation throughput: ([\d.]+) tokens/s, Running: 1 reqs", text)
    assert rates  # fewer than 20 where a loaded machine let the box's time slip
    assert all(0 < float(rate) <= 21 for rate in rates)
    assert sum(float(rate) for rate in rates) * 10 <= 250


async def test_vllm_tells_its_drafts_as_recorded(tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    async with (
        running(Flat(0.05), log, dialect="vllm", time_scale=100.0, draft_tokens=4) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.post(url + CHAT, json=chat(max_tokens=60)) as answer:
            await answer.read()
        async with asyncio.timeout(5):
            while "SpecDecoding" not in log.read_text():
                await asyncio.sleep(0.02)
    real = CAPTURES / "vllm/0.32.0/log/spec-ngram-cut.stdout.log"
    lines = [
        re.sub(r"\d+", "N", line).partition("] ")[2]
        for text in (log.read_text(), real.read_text())
        for line in text.splitlines()
        if "SpecDecoding" in line
    ]
    assert len(lines) >= 3
    assert len(set(lines)) == 1


async def test_sglang_logs_batches(tmp_path: Path) -> None:
    log = tmp_path / "sglang.log"
    async with (
        running(Flat(0.001), log, dialect="sglang") as url,
        aiohttp.ClientSession() as session,
        session.post(url + CHAT, json=chat(max_tokens=100)) as answer,
    ):
        await answer.read()
    text = log.read_text()
    assert "Prefill batch, #new-seq: 1, #new-token: " in text
    assert len(re.findall(r"Decode batch, #running-req: 1, #token: \d+", text)) == 2
