"""A redline of a real server: what the harness spoilt of its probes is marked."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from record_makers import record
from rich.console import Console

from headroom_bench.crowd.crowd import plain_crowd
from headroom_bench.crowd.persona import load_persona
from headroom_bench.experiments import redline_live
from headroom_bench.experiments.conclude import RunOutcome
from headroom_bench.experiments.redline import RedlineOptions
from headroom_bench.experiments.run_options import RunOptions
from headroom_bench.records import RequestRecord
from headroom_bench.report.redline_page import print_redline
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.target import Target

SPOILT_FROM = 3
"""People with whom the client is too late for two requests of three."""


def lived(people: int) -> Iterator[RequestRecord]:
    """Answers in good time; from `SPOILT_FROM` people on two of three were stamped too late."""
    for number in range(30 * people):
        valid = people < SPOILT_FROM or number % 3 == 0
        user, turn = number % people, number // people
        yield record(user, turn=turn, persona="chat-reader", turn_rounds=1, started_at_s=number / 9,
                     valid=valid)  # fmt: skip


def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    def run(options: RunOptions, *_: object) -> RunOutcome:
        people = len(options.crowd.users())
        folder = RunFolder.create(tmp_path, "server", f"{people}", datetime.now())
        records = list(lived(people))
        folder.write_rows("requests.jsonl", records)
        totals = dict.fromkeys(("busy_share", "all_slots_share", "slots"))
        summary = {
            "totals": {**totals, "preempted": 0, "killed": 0},
            "left_out": sum(not one.valid for one in records),
            "duration_s": 60.0,
        }
        return RunOutcome(folder.path, summary, 0)

    monkeypatch.setattr(redline_live, "run", run)
    target = Target("server", "http://127.0.0.1:1", model="m")
    crowd = plain_crowd(load_persona("chat-reader"), 1, seed=1)
    options = RedlineOptions(
        target, crowd, duration_s=60.0, warmup_s=0.0, most=4, repeats=1, most_repeats=1,
        lengthen=False,
    )  # fmt: skip
    base = RunOptions(target, crowd, tmp_path, 60.0)
    return redline_live.live_redline(options, base, print, print, print)  # type: ignore[arg-type]


def test_probes_of_which_most_was_spoilt_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = found(tmp_path, monkeypatch)
    told = {point["people"]: (point["left_out"], point["requests"]) for point in document["curve"]}
    assert told == {1: (0, 30), 2: (0, 60), 4: (80, 120)}
    (warning,) = [line for line in document["warnings"] if "too late" in line]
    assert warning.startswith("with 4 people this machine was too late to measure most requests")
    page = io.StringIO()
    print_redline(document, Console(file=page, width=200, color_system=None))
    rows = [line.split() for line in page.getvalue().splitlines()]
    cells = {row[0]: " ".join(row) for row in rows if row and row[0] in ("1", "2", "4")}
    assert " 120 (80 left out: 67%) " in cells["4"]
    assert "left out" not in cells["2"] + cells["1"]
