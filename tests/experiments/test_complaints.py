"""What is said of answers that are not what they seem."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from raw_server import DONE, END, HEAD, Step, chunk, delta, event, finish, raw_server, usage
from record_makers import record
from run_tools import Running

from headroom_bench.experiments.complaints import complaints, first_failures
from headroom_bench.records import RequestRecord


async def test_an_answer_that_the_way_holds_back_is_told(tmp_path: Path) -> None:
    word = chunk(event(delta(content=" a")))
    timings = {"prompt_n": 20, "prompt_ms": 5.0, "predicted_n": 3, "predicted_ms": 20.0}
    last = chunk(event({**finish(), "timings": timings}) + event(usage(20, 3)) + DONE)
    held_back: list[Step] = [HEAD, word, 0.5, word, 0.01, word, last, END]
    async with raw_server(*held_back) as server:
        words = ("run", server.url, "--users", "1", "--prompt-tokens", "20", "--output-tokens", "3")
        running = await Running.start(*words, "--requests", "2", "--json", out=tmp_path)
        ran = await running.ended()
    assert ran.code == 0, ran.err
    (told,) = [w for w in json.loads(ran.out)["warnings"] if "came later than the server" in w]
    assert told.startswith("2 answers came later than the server wrote them, by 0.")


@pytest.mark.parametrize(
    ("events", "tokens", "told"), [(20, 100, True), (99, 100, False), (1, 2, False), (2, 3, False)]
)
def test_events_of_several_tokens_are_told(events: int, tokens: int, told: bool) -> None:
    answers = [record(stream_events=events, completion_tokens=tokens, tokens_source="usage")] * 3
    found = [line for line in complaints(answers) if "tokens on average" in line]
    assert len(found) == told
    drafted = record(stream_events=events, completion_tokens=tokens, draft_tokens=90)
    assert not complaints([drafted])


def test_reasoning_that_is_kept_back_merges_no_events() -> None:
    hidden = record(
        stream_events=20, completion_tokens=100, reasoning_tokens=80, visible_tokens=20,
        tokens_source="usage",
    )  # fmt: skip
    assert complaints([hidden] * 3) == []


def test_the_first_failure_of_each_kind_is_quoted() -> None:
    def failed(name: str, kind: str, error: str | None) -> RequestRecord:
        return record(request_id=name, ok=False, error_kind=kind, error=error)

    records = [
        record(),
        failed("a/t0/r0", "abandoned", "nothing arrived"),
        failed("b/t0/r0", "reset", "by\n peer"),
        failed("c/t0/r0", "reset", "again"),
        failed("d/t0/r0", "interrupted", "stopped"),
        failed("e/t0/r0", "timeout", None),
    ]
    assert first_failures(records) == [
        "reset, first in b/t0/r0: by peer",
        "timeout, first in e/t0/r0: no message",
    ]


@pytest.mark.parametrize(("late_s", "told"), [(0.2, 0), (0.32, 0), (0.38, 1)])
def test_a_quarter_of_a_second_and_a_tenth_late_is_held_back(late_s: float, told: int) -> None:
    """Of an answer that the server wrote in a second."""
    late = record(server_decode_s=1.0, ttft_s=0.5, last_token_s=1.5 + late_s)
    assert len([line for line in complaints([late]) if "held them back" in line]) == told
