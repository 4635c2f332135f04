"""What several repeats come to together: figures and limits of all measured windows."""

from __future__ import annotations

import io
import json
import statistics
from pathlib import Path

import pytest
from rich.console import Console
from run_tools import headroom

from headroom_bench.experiments.repeat import _load
from headroom_bench.report.terminal import print_summary

WORDS = (
    "run", "--time-scale", "20", "--users", "2", "--prompt-tokens", "600", "--output-tokens", "8",
    "--think", "1s", "--duration", "20s", "--warmup", "4s", "--prompts", "identical",
    "--slots", "1",
)  # fmt: skip


def test_limits_are_of_all_repeats_together(tmp_path: Path) -> None:
    ran = headroom(*WORDS, "--repeat", "2", "--json", out=tmp_path / "results")
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    each = [json.loads((ran.run / f"repeat-{n}" / "summary.json").read_text()) for n in (1, 2)]
    assert summary["box"] == each[0]["box"] is not None
    assert summary["prompts"]["kind"] == "identical"
    by_limit = {row["limit"]: row for row in summary["limits"]}
    bound = next(iter(summary["bound_by_phase"].values()))
    known = [one for one in each if one["bound_by_phase"]]  # all else was too late to measure
    shares = [
        next((row["share"] for row in one["limits"] if row["limit"] == bound), 0.0) for one in known
    ]
    windows_s = [one["totals"]["window_s"] for one in known]
    assert by_limit[bound]["share"] == pytest.approx(statistics.fmean(shares, windows_s))
    assert by_limit[bound]["repeats"] == sum(share > 0 for share in shares)
    rows = [
        json.loads(line)
        for n in (1, 2)
        for line in (ran.run / f"repeat-{n}" / "requests.jsonl").read_text().splitlines()
    ]
    steady = [row for row in rows if row["started_at_s"] >= 4]
    assert summary["requests"] == len(steady) < len(rows)
    for name in ("prompt_tok_s", "completion_tok_s", "requests_per_s", "concurrency_mean"):
        known = [one["totals"][name] for one in each]
        assert summary["totals"][name] == pytest.approx(statistics.fmean(known, windows_s))
    theirs = [one["predicted"]["totals"] for one in each]
    busy = statistics.fmean(
        [row["busy_share"] for row in theirs], [row["window_s"] for row in theirs]
    )
    assert summary["predicted"]["totals"]["busy_share"] == pytest.approx(busy)
    page = io.StringIO()
    print_summary(summary, Console(file=page, width=200, color_system=None))
    shown = page.getvalue()
    assert f"\nbox: {summary['box']}" in shown
    assert "prompts: identical filler" in shown
    told = summary["repeats"]["between"]["ttft_p50"]
    assert f"2 repeats of 2; from one to the next: TTFT p50 s {told['mean']:.3f} ± " in shown


def test_repeats_that_are_too_short_say_how_long_each_should_be(tmp_path: Path) -> None:
    words = ("run", "--persona", "chat-reader:2", "--duration", "1s", "--repeat", "2", "--json")
    summary = json.loads(headroom(*words, out=tmp_path).out)
    assert summary["by_persona"]["chat-reader"]["verdict"] == "not enough data"
    (note,) = summary["notes"]
    assert note.startswith("nobody asked anything in 1 s (people come within")
    page = io.StringIO()
    print_summary(summary, Console(file=page, width=300, color_system=None))
    assert f"note: {note}" in page.getvalue()


def test_one_pool_of_memory_stays_one(tmp_path: Path) -> None:
    words = ("simulate", "--hardware", "rtx-4090", "--model", "llama-3.1-8b", "--quant", "FP8")
    known = {}
    for runtime in ("vllm", "llamacpp"):
        ran = headroom(*words, "--runtime", runtime, "--json", out=tmp_path / runtime)
        assert ran.code == 0, ran.err
        known[runtime] = json.loads(ran.out)
    for runtime, one_pool in (("vllm", True), ("llamacpp", False)):
        assert _load([known[runtime]] * 2).one_pool is one_pool
