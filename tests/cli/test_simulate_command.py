"""`headroom-bench simulate` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_answers import refused

from headroom_bench.catalog import find_network
from headroom_bench.cli.app import run_app
from headroom_bench.errors import UserError
from headroom_bench.experiments import simulate as simulate_experiment
from headroom_bench.results.run_folder import RunFolder

QUICK = ["simulate", "--duration", "5m"]


def answer(
    capsys: pytest.CaptureFixture[str], out: Path, *words: str, code: int = 0
) -> tuple[Any, list[Any]]:
    """The summary, and the rows on disk."""
    assert run_app([*QUICK, *words, "--json", "--out", str(out)]) == code
    summary = json.loads(capsys.readouterr().out)
    rows = (out / summary["run_id"] / "requests.jsonl").read_text().splitlines()
    return summary, [json.loads(row) for row in rows]


@pytest.mark.parametrize("box", ["strix-halo-128", "dgx-spark"])
def test_the_folder_says_which_box_was_simulated(
    box: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    summary, _ = answer(capsys, tmp_path, "--hardware", box, "--persona", "chat-reader:1")
    assert f"-{box}-simulated-" in summary["run_id"]
    assert "mock" not in summary["run_id"]


def test_identical_prompts_are_cached_but_for_the_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--users", "3", "--prompt-tokens", "500", "--output-tokens", "20", "--think", "5s")
    shares = {}
    for kind in ("distinct", "identical", "shared-prefix"):
        summary, rows = answer(capsys, tmp_path, *words, "--prompts", kind)
        assert {row["prompt_tokens"] for row in rows} == {500}
        shares[kind] = summary["by_persona"]["probe"]["cached_share"]
    assert shares["distinct"] == 0
    assert 0.3 < shares["shared-prefix"] <= 0.5
    assert shares["identical"] > 0.95


def test_recorded_sessions_are_lived(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = [
        {"role": "user", "content": "What is a redline? " * 40},
        {"role": "assistant", "content": "The most that still goes well."},
        {"role": "user", "content": "And then?"},
        {"role": "assistant", "content": "It does not."},
    ]
    path = tmp_path / "sessions.jsonl"
    path.write_text(json.dumps({"messages": said}) + "\n")
    words = ("--persona", "chat-reader:1", "--prompts", f"file:{path}")
    summary, rows = answer(capsys, tmp_path / "out", *words)
    talk = [row for row in rows if row["conversation_id"] == rows[0]["conversation_id"]]
    assert len(talk) == 2, "its turns, not the persona's"
    assert talk[0]["prompt_tokens"] > 100
    assert talk[1]["cached_tokens"] > 100
    assert summary["prompts"] == {
        "kind": "file", "filler": False, "lengths": "recorded", "sessions": 1,
    }  # fmt: skip


def test_another_runtime_keeps_the_context_of_a_sequence(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The mock has 16 slots of 8,192 tokens; vLLM's setting is a sequence's own."""
    words = ("--users", "1", "--prompt-tokens", "9000", "--output-tokens", "8", "--quant", "FP8")
    for flags, ok in (
        ((), False),
        (("--runtime", "vllm"), False),
        (("--runtime", "vllm", "--ctx", "16k"), True),
    ):
        _, rows = answer(capsys, tmp_path, *words, *flags, code=0 if ok else 3)
        assert {row["ok"] for row in rows} == {ok}


def test_people_who_never_came_to_ask_are_people(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A voice command comes every ten minutes or so: in five not everybody gives one."""
    summary, rows = answer(capsys, tmp_path, "--persona", "voice-command:20")
    assert len({row["user"] for row in rows}) < 20
    assert summary["by_persona"]["voice-command"]["users"] == 20


def test_a_crowd_that_is_too_much_tells_what_broke_first(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--persona", "chat-reader:60", "--slots", "2", "--ctx", "32k")
    summary, _ = answer(capsys, tmp_path, *words, "--duration", "20m")
    broke = summary["broke"]
    assert (broke["persona"], broke["limit"]) == ("chat-reader", "slots")
    assert summary["by_persona"]["chat-reader"]["queue_s"]["mean"] > 1
    assert summary["totals"]["all_slots_share"] > 0.5
    assert run_app([*QUICK, *words, "--out", str(tmp_path)]) == 0
    assert "chat-reader first, by slots" in " ".join(capsys.readouterr().out.split())


def test_a_model_that_does_not_fit_is_told_before_all_else(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    summary, _ = answer(capsys, tmp_path, "--model", "gpt-oss-120b", "--quant", "MXFP4")
    assert summary["limits"][0]["limit"] == "memory"
    assert "23.0 GB are usable" in summary["limits"][0]["evidence"]
    assert any("does not fit" in told for told in summary["warnings"])


def test_turns_are_on_disk_with_their_waits_summed_over_rounds(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--persona", "voice-command:30", "--duration", "20m")
    summary, rows = answer(capsys, tmp_path, *words)
    path = tmp_path / summary["run_id"] / "turns.jsonl"
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(turns) == summary["by_persona"]["voice-command"]["turns"] >= 20
    for turn in turns:
        first, second = sorted(
            (row for row in rows if row["conversation_id"] == turn["conversation_id"]),
            key=lambda row: row["round"],
        )
        assert turn["rounds"] == 2
        assert turn["wait_s"] == pytest.approx(first["e2e_s"] + second["ttfv_s"])
        assert turn["met"] == (turn["wait_s"] <= 1.2)
        assert turn["cause"] in ("queue", "prefill", "reasoning", "decode", "network")


def test_a_link_that_nobody_knows_is_named_with_its_place(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "home.toml"
    path.write_text('[[group]]\npersona = "chat-reader"\ncount = 1\nlink = "wifi9"\n')
    assert run_app([*QUICK, "--crowd", str(path), "--out", str(tmp_path)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert f"{path}:4: group.link: unknown network 'wifi9'; did you mean wifi6" in told


def test_answers_of_a_model_that_thinks_are_as_long_as_asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--model", "gpt-oss-20b", "--quant", "MXFP4", "--hardware", "dgx-spark")
    _, rows = answer(
        capsys, tmp_path, *words, "--users", "2", "--prompt-tokens", "100", "--output-tokens", "20"
    )
    assert {row["asked_tokens"] for row in rows} == {20}
    assert {row["completion_tokens"] for row in rows if row["ok"]} == {20}


def test_limits_are_of_the_window_after_the_warm_up(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Everybody's first prompts are within the warm-up, and only those are read."""
    words = ("--users", "1", "--prompts", "identical", "--prompt-tokens", "4k", "--think", "2s",
             "--output-tokens", "2", "--ubatch", "512")  # fmt: skip
    whole, _ = answer(capsys, tmp_path / "a", *words)
    steady, rows = answer(capsys, tmp_path / "b", *words, "--warmup", "60s")
    assert steady["requests"] == sum(row["started_at_s"] >= 60 for row in rows) < len(rows)
    bound = {
        name: next((row["share"] for row in summary["limits"] if row["limit"] == "compute"), 0.0)
        for name, summary in (("whole", whole), ("steady", steady))
    }
    assert bound["steady"] < bound["whole"]


def test_one_print_does_not_contradict_itself_about_a_window(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Four people without a pause at four slots: four in flight, whenever the window begins; no
    slot is lacking, though every one is taken."""
    words = ("--users", "4", "--prompt-tokens", "2k", "--output-tokens", "200", "--slots", "4",
             "--ctx", "16k", "--model", "gpt-oss-20b", "--quant", "MXFP4", "--hardware",
             "dgx-spark")  # fmt: skip
    whole, _ = answer(capsys, tmp_path / "a", *words)
    late, _ = answer(capsys, tmp_path / "b", *words, "--warmup", "285s")
    for summary in (whole, late):
        figures = summary["totals"]
        assert figures["concurrency_mean"] == pytest.approx(4.0, rel=0.02)
        assert figures["all_slots_share"] > 0.5
        assert "slots" not in {row["limit"] for row in summary["limits"]}
        assert "queue" in {row["limit"] for row in summary["limits"]}
        assert figures["completion_tok_s"] == pytest.approx(
            whole["totals"]["completion_tok_s"], rel=0.1
        )


def test_a_life_is_as_long_as_it_was_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What came to nothing more after the last answer was quiet, and is part of it."""
    words = ("--users", "1", "--prompt-tokens", "100", "--output-tokens", "5", "--think", "40s")
    summary, rows = answer(capsys, tmp_path, *words)
    assert max(row["end_s"] for row in rows) < 299
    assert summary["duration_s"] == summary["totals"]["window_s"] == 300.0
    assert summary["totals"]["requests_per_s"] == len(rows) / 300


def test_a_crowd_that_nothing_answers_is_no_success(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [*QUICK, "--users", "2", "--prompt-tokens", "9k", "--output-tokens", "9"]
    words += ["--slots", "1", "--ctx", "4k"]
    assert run_app([*words, "--json", "--out", str(tmp_path)]) == 3
    summary = json.loads(capsys.readouterr().out)
    assert summary["errors"] == summary["requests"] > 0
    assert "no request succeeded" in summary["warnings"]
    assert {row["limit"] for row in summary["limits"]} == {"context"}


def test_the_way_to_a_target_is_the_link_that_its_file_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--users", "1", "--prompt-tokens", "100", "--output-tokens", "5", "--requests", "3")
    target = tmp_path / "far.toml"

    def median_s(link: str) -> float:
        target.write_text(
            f'url = "http://192.0.2.1"\n{link}\n[server]\nhardware = "dgx-spark"\n'
            'model = "gpt-oss-20b"\nquant = "MXFP4"\n'
        )
        summary, _ = answer(capsys, tmp_path, str(target), *words)
        return float(summary["by_persona"]["probe"]["ttft_s"]["p50"])

    trip_s = find_network("lte").rtt_ms / 1e3
    assert median_s('link = "lte"') - median_s("") == pytest.approx(trip_s, rel=1e-4)
    target.write_text(
        target.read_text().replace('"http://192.0.2.1"', '"http://192.0.2.1"\nlink = "pigeon"')
    )
    assert run_app([*QUICK, str(target), *words, "--out", str(tmp_path)]) == 2
    assert f"{target}:2: link: unknown network 'pigeon'" in capsys.readouterr().err


@pytest.mark.parametrize(("warmup", "told"), [("1h", True), ("1ms", False)])
def test_a_warm_up_that_takes_all_there_is_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, warmup: str, told: bool
) -> None:
    words = ("--users", "1", "--prompt-tokens", "90", "--output-tokens", "9", "--requests", "3")
    assert run_app(["simulate", *words, "--warmup", warmup, "--json", "--out", str(tmp_path)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["requests"] == 0) == told
    warned = "every request began within the 3600 s of --warmup: none is left to judge"
    assert (warned in summary["warnings"]) == told


def test_a_folder_that_cannot_be_is_told_before_anything_is_simulated(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: object, **__: object) -> None:
        raise AssertionError("simulated")

    monkeypatch.setattr(simulate_experiment, "predict_crowd", search)
    file = tmp_path / "file"
    file.touch()
    assert "results folder" in refused(capsys, *QUICK, "--out", str(file / "results"))


def test_what_a_disk_cannot_hold_is_shown_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: RunFolder, *_: object) -> None:
        raise UserError(f"{self.path} cannot be written: No space left on device")

    monkeypatch.setattr(RunFolder, "write_token_times", full)
    words = (*QUICK, "--requests", "3", "--json", "--out", str(tmp_path))
    assert run_app(list(words)) == 2
    told = capsys.readouterr()
    assert json.loads(told.out)["requests"] == 3
    assert told.err.splitlines()[-1].endswith("No space left on device")


@pytest.mark.parametrize(("prompt", "told"), [("60k", True), ("30k", False)])
def test_contexts_that_a_model_does_not_have_are_told(
    prompt: str, told: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    box = ("--hardware", "dgx-spark", "--model", "qwen3-8b", "--quant", "Q8_0", "--slots", "1")
    who = ("--ctx", "100k", "--users", "1", "--prompt-tokens", prompt, "--output-tokens", "20")
    summary, _ = answer(capsys, tmp_path, *box, *who)
    words = f"contexts of {int(prompt[:2])},020 tokens are beyond the model's own of 40,960"
    assert any(line.startswith(words) for line in summary["warnings"]) == told
