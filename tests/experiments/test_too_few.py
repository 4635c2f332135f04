"""What is said where a run was too short for a verdict."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headroom_bench.cli.app import run_app
from headroom_bench.crowd.crowd import crowd_of, load_crowd
from headroom_bench.experiments.too_few import too_few

BOX = ("--hardware", "dgx-spark", "--model", "gpt-oss-20b", "--quant", "MXFP4")


def simulated(capsys: pytest.CaptureFixture[str], out: Path, *words: str) -> dict[str, Any]:
    assert run_app(["simulate", *BOX, *words, "--json", "--out", str(out)]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


@pytest.mark.parametrize(
    ("crowd", "duration", "said"),
    [
        (["--persona", "chat-reader:3"], "5s", "nobody asked anything in 5 s (people come within"),
        (["--persona", "chat-reader:5", "--persona", "ide-coder:2"], "30s", "too few turns"),
        (["--crowd", "demo"], "30s", "too few turns"),
        (["--persona", "chat-reader:3"], "10m", "too few turns"),
    ],
)
def test_the_duration_that_is_named_gives_a_verdict(
    crowd: list[str],
    duration: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = simulated(capsys, tmp_path, *crowd, "--duration", duration)
    assert short["verdict"] == "not enough data"
    (note,) = short["notes"]
    assert note.startswith(said)
    enough = re.search(r"; --duration (\w+) should do$", note)
    assert enough is not None, note
    long = simulated(capsys, tmp_path, *crowd, "--duration", enough[1])
    assert long["verdict"] != "not enough data"
    assert long["notes"] == []


def test_first_asks_are_told_as_they_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--persona", "chat-reader:3")
    (note,) = simulated(capsys, tmp_path, *words, "--duration", "5s")["notes"]
    first = re.search(r"their first asks are at ([\d.]+) s to ([\d.]+) s\)", note)
    assert first is not None, note
    simulated(capsys, tmp_path / "long", *words, "--duration", "40s")
    (rows,) = tmp_path.glob("long/*/requests.jsonl")
    begun = [json.loads(line) for line in rows.read_text().splitlines()]
    asked = [row["started_at_s"] for row in begun if row["turn"] == 0]
    assert [min(asked), max(asked)] == pytest.approx([float(each) for each in first.groups()], 0.01)


def figures(**changes: Any) -> dict[str, Any]:
    row = {
        "verdict": "not enough data",
        "requests": 9,
        "turns": 3,
        "left_out": 0,
        "turn_s": {"mean": 1.0},
    }
    told = {"requests": 9, "duration_s": 30.0, "warmup_s": 0.0}
    return told | {"by_persona": {"chat-reader": row | changes}}


def test_nothing_is_said_where_something_else_was_the_cause() -> None:
    crowd = crowd_of(["chat-reader:3"], 1)
    assert too_few(crowd, figures(), 30.0, 0.0)
    assert too_few(crowd, figures(), None, 0.0) == [], "a number of requests ended it"
    assert too_few(crowd, figures(left_out=5), 30.0, 0.0) == [], "the harness was late"
    assert too_few(crowd, figures(left_out=1), 30.0, 0.0)
    assert too_few(crowd, figures(verdict="failing", turns=40), 30.0, 0.0) == []
    long = figures() | {"duration_s": 9000.0}
    assert too_few(crowd, long, 9000.0, 0.0) == [], "they had the time"


def named_s(note: str) -> float:
    found = re.search(r"--duration (\d+)([ms])", note)
    assert found is not None
    return float(found[1]) * (60 if found[2] == "m" else 1)


def test_repeats_need_a_shorter_duration_each() -> None:
    """Four windows of 30 s with 8 turns in all: each should last as long as one with 2 of 5."""
    crowd = crowd_of(["chat-reader:3"], 1)
    pooled = figures(turns=8) | {"duration_s": 120.0}
    (four,) = too_few(crowd, pooled, 30.0, 0.0, repeats=4)
    assert four.startswith(
        "too few turns for a verdict, which needs 20 of each persona: chat-reader 8 in 4 repeats"
    )
    (one,) = too_few(crowd, figures(turns=8), 30.0, 0.0)
    assert 75 <= named_s(four) < named_s(one), "1.5 x 30 s x 20 / 8 are 112 s"


def test_a_warm_up_counts_on_top() -> None:
    crowd = load_crowd("demo")
    demo = {name: figures()["by_persona"]["chat-reader"] for name in crowd.personas()}
    told = figures() | {"by_persona": demo}
    late = told | {"duration_s": 630.0, "warmup_s": 600.0}
    (without,), (with_warmup,) = too_few(crowd, told, 30.0, 0.0), too_few(crowd, late, 30.0, 600.0)
    assert named_s(with_warmup) == pytest.approx(named_s(without) + 600, abs=60)
