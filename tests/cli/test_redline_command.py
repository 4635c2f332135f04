"""`headroom-bench redline` as a user runs it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from cli_answers import answer, refused

from headroom_bench.cli.app import run_app
from headroom_bench.experiments import redline as redline_experiment

QUICK = ["redline", "--duration", "10m", "--warmup", "1m", "--repeats", "1", "--most", "8"]
FULL = Path("/dev/full")
CHAT = [*QUICK, "--persona", "chat-reader:1", "--slots", "1", "--ctx", "16k"]


def test_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *CHAT)
    assert document["world"] == "predicted"
    assert document["hardware"] == "rtx-4090"
    assert set(document["redline"]) == {"passes", "fails", "unjudged"}
    for point in document["curve"]:
        assert point["by_persona"]["chat-reader"]["people"] == point["people"]
        assert {"verdict", "busy_share", "requests", "trials", "seeds"} <= set(point)


def test_the_page_tells_what_broke_and_every_probe(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app([*CHAT, "--hardware", "rpi5-8", "--model", "Qwen3 0.6B"]) == 0
    told = capsys.readouterr().out
    document = answer(capsys, *CHAT, "--hardware", "rpi5-8", "--model", "Qwen3 0.6B")
    assert document["broke"]["persona"] == "chat-reader"
    assert document["broke"]["evidence"] in told
    assert document["redline"]["passes"] is None
    assert "nobody: even 1 person fails" in told
    assert "chat-reader wants something to see or hear within 2 s" in told
    assert "--without" not in told, "there are no others"
    assert all(f"{point['people']} " in told for point in document["curve"])


def test_versus(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *CHAT, "--vs", "dgx-spark", "--vs", "slots=4,ctx=64k")
    assert [other["vs"] for other in document["vs"]] == ["dgx-spark", "slots=4,ctx=64k"]
    assert document["vs"][0]["hardware"] == "dgx-spark"
    assert document["vs"][1]["slots"] == 4


def test_a_flags_box_does_not_keep_the_files_backend(capsys: pytest.CaptureFixture[str]) -> None:
    document = answer(capsys, *CHAT, "--hardware", "strix-halo-128")
    assert document["backend"] != "cuda"


def test_the_household_is_the_default_and_may_be_thinned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = answer(capsys, *QUICK, "--without", "eink-reader")
    assert document["crowd"] == "household"
    personas = set(document["curve"][0]["by_persona"])
    assert "voice-command" in personas
    assert "eink-reader" not in personas


def test_a_grid_as_json_csv_and_table(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    over = ["--over", "slots=1,2", "--over", "quant=Q4_K_M"]
    rows = answer(capsys, *CHAT, *over)
    assert [row["slots"] for row in rows] == [1, 2]
    assert all(0 <= row["ctx_each"] - row["ctx"] // row["slots"] < 256 for row in rows)
    file = tmp_path / "grid.csv"
    assert run_app([*CHAT, *over, "--csv", str(file)]) == 0
    told = capsys.readouterr()
    assert "1 of 2" in told.err
    assert "coarse and estimated" in told.out
    assert "ctx each" in told.out
    assert all(f" {row['ctx_each']:,} " in told.out for row in rows)
    read = list(csv.DictReader(io.StringIO(file.read_text("utf-8"))))
    assert [int(line["people"]) for line in read] == [row["people"] for row in rows]
    assert run_app([*CHAT, *over, "--csv", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("hardware,model,")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--over", "colour=red"], "--over 'colour=red': write KEY=VALUE"),
        (["--over", "model=nope"], "unknown model 'nope'"),
        (["--vs", "colour=red"], "--vs 'colour=red'"),
        (["--live", "--vs", "dgx-spark"], "--live asks one server"),
        (["--csv", "x.csv"], "without --over there are no rows of a grid: leave out --csv"),
        (["--over", "slots=2", "--vs", "strix-halo-128"], "leave out --vs"),
        (["--time-scale", "50", "--out", "there"], "no server is asked: leave out --time-scale, "),
        (["--api-key-env", "NO_SUCH_VARIABLE"], "no server is asked: leave out --api-key-env"),
        (["--over", "slots=2", "--csv", "-", "--json"], "has stdout to itself: leave out --json"),
        (["--without", "nobody"], "unknown persona of crowd chat-readerx1 'nobody'"),
        (["--without", "chat-reader"], "--without leaves nobody"),
        (["--warmup", "10m"], "a warm-up of 600 s leaves nothing of a probe of 600 s (--duration)"),
        (["--duration", "soon"], "--duration"),
        (["--over", "slots=2", "--csv", "/no/x.csv"], "--csv /no/x.csv cannot be written"),
    ],
)  # fmt: skip
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert told in refused(capsys, *CHAT, *words)


def test_a_warm_up_that_nobody_gave_is_not_blamed_on_an_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = refused(capsys, "redline", "--duration", "3m")
    assert "a warm-up of 300 s, which it is where --warmup is not given, leaves nothing" in told


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_grid_that_its_file_cannot_hold_is_shown_all_the_same(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [*CHAT, "--over", "slots=1,2", "--csv", str(FULL)]
    assert run_app(words) == 2
    told = capsys.readouterr()
    assert told.err.splitlines()[-1].endswith("cannot be written: No space left on device")
    assert "coarse and estimated" in told.out
    assert run_app([*words, "--json"]) == 2
    assert [row["slots"] for row in json.loads(capsys.readouterr().out)] == [1, 2]


def test_an_interrupted_grid_keeps_its_rows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from headroom_bench.experiments import whatif

    first = whatif.redline
    asked: list[int] = []

    def once(*arguments: Any) -> Any:
        asked.append(1)
        if len(asked) > 1:
            raise KeyboardInterrupt
        return first(*arguments)

    monkeypatch.setattr(whatif, "redline", once)
    assert run_app([*CHAT, "--over", "slots=1,2", "--csv", "-"]) == 4
    told = capsys.readouterr()
    assert len(told.out.splitlines()) == 2
    assert "interrupted: 1 of 2 rows" in told.err


def test_a_live_redline_runs_the_crowd_for_every_probe(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Against the bundled mock server, over real sockets."""
    document = answer(
        capsys, "redline", "--live", "--persona", "chat-reader:1", "--time-scale", "120",
        "--duration", "4m", "--warmup", "10s", "--most", "1", "--out",
        str(tmp_path),
    )  # fmt: skip
    assert document["world"] == "measured"
    (point,) = document["curve"]
    judged = point["by_persona"]["chat-reader"]["turns"] >= 20
    assert document["redline"]["passes"] == (1 if judged else None)
    assert document["redline"]["unjudged"] == ([] if judged else [1])
    assert len(document["runs"]) == document["probes"] == 1
    for run in document["runs"]:
        assert (Path(run) / "requests.jsonl").is_file()


def test_a_wrong_box_to_compare_with_is_told_before_any_search(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(redline_experiment, "redline", search)
    assert "unknown hardware 'zzzz'" in refused(
        capsys, "redline", "--crowd", "tiny", "--vs", "zzzz"
    )


def test_the_page_counts_and_times_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("redline", "--crowd", "tiny", "--duration", "20s", "--warmup", "3s", "--most", "2")
    assert run_app(list(words)) == 0
    page = capsys.readouterr().out.splitlines()
    assert page[0].startswith("redline of crowd tiny, simulated (")
    assert page[-1].startswith("2 probes of 20 s ")
    assert "(the first 3 s left out)" in page[-1]
