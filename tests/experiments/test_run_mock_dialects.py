"""A run against the bundled mock in each dialect: probed, measured, and predicted beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_tools import headroom

QUICK = ("--users", "2", "--prompt-tokens", "200", "--output-tokens", "12", "--requests", "6")


@pytest.mark.parametrize(
    ("dialect", "runtime", "room"),
    [
        ("vllm", "vLLM", "up to 4 sequences of 8,000 tokens"),
        ("sglang", "SGLang", "up to 4 sequences of 8,000 tokens"),
        ("mlx", "MLX (mlx_lm.server)", "up to 4 sequences of 8,000 tokens"),
        ("ollama", "Ollama", "4 slots of 2,048 tokens"),
        ("openai", "llama.cpp (llama-server)", "4 slots of 2,048 tokens"),
    ],
)
def test_every_dialect_is_probed_measured_and_predicted(
    dialect: str, runtime: str, room: str, tmp_path: Path
) -> None:
    words = ("--dialect", dialect, "--slots", "4", "--ctx", "8k", "--time-scale", "6", "--json")
    ran = headroom("run", "mock", *QUICK, *words, out=tmp_path)
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert (summary["requests"], summary["errors"]) == (6, 0)
    assert runtime in summary["box"]
    assert room in summary["box"]
    assert summary["predicted"]["by_persona"].keys() == summary["by_persona"].keys()
    assert not any("does not say how late" in line for line in summary["warnings"])
    measured, predicted = ran.rows("requests.jsonl"), ran.rows("predicted.jsonl")
    assert {row["request_id"] for row in measured} == {row["request_id"] for row in predicted}
    assert all(row["completion_tokens"] == 12 for row in measured)


def test_a_targets_draft_is_handed_to_the_mock(tmp_path: Path) -> None:
    target = tmp_path / "drafting.toml"
    target.write_text(
        'embedded_mock = true\nmodel = "qwen3-8b"\n'
        '[server]\nquant = "Q4_K_M"\ndraft = "qwen3-0.6b"\n'
    )
    ran = headroom("run", str(target), *QUICK, "--time-scale", "6", out=tmp_path / "results")
    assert ran.code == 0, ran.err
    for name in ("requests.jsonl", "predicted.jsonl"):
        rows = ran.rows(name)
        assert len(rows) == 6
        assert all(row["draft_tokens"] >= row["accepted_tokens"] for row in rows)
        assert sum(row["accepted_tokens"] for row in rows) > 0


@pytest.mark.parametrize("dialect", ["vllm", "ollama"])
def test_a_model_for_the_mock_is_asked_for_by_the_mocks_name(dialect: str, tmp_path: Path) -> None:
    """These two refuse a model that they do not list."""
    words = ("--dialect", dialect, "--model", "gpt-oss-20b", "--quant", "MXFP4", "--slots", "2")
    ran = headroom("run", "mock", *QUICK, *words, "--time-scale", "6", "--json", out=tmp_path)
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert (summary["requests"], summary["errors"]) == (6, 0)
    assert "gpt-oss 20B" in summary["box"]


def test_a_target_files_dialect_names_the_runtime(tmp_path: Path) -> None:
    target = tmp_path / "some-vllm.toml"
    target.write_text('embedded_mock = true\ndialect = "vllm"\n[server]\nslots = 3\n')
    ran = headroom("run", str(target), *QUICK, "--time-scale", "6", "--json", out=tmp_path / "r")
    assert ran.code == 0, ran.err
    assert "vLLM on" in json.loads(ran.out)["box"]
    assert "up to 3 sequences" in json.loads(ran.out)["box"]
