"""Every kind of prompt against the mock, and exact lengths against a real server."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from run_tools import Ran, headroom

PLAIN = ("--users", "2", "--prompt-tokens", "300", "--output-tokens", "12")
FAST = ("--time-scale", "4")
SHIPPED = Path(__file__).parents[2] / "targets" / "local-llamacpp.toml"
KINDS = """
name = "kinds"
turns = {fixed = 2}
rounds = {fixed = 2}
tool_wait_s = {fixed = 0.1}
tool_output = {fixed = 6}
output = {uniform = [6, 12]}
think_s = {fixed = 0.1}
[[segments]]
name = "tools"
role = "system"
kind = "schema"
each = "conversation"
shared = "group"
tokens = {fixed = 250}
[[segments]]
name = "ask"
kind = "code"
each = "turn"
tokens = {uniform = [60, 140]}
[[segments]]
name = "result"
kind = "log"
each = "round"
tokens = {fixed = 90}
"""


def kinds(folder: Path) -> str:
    """`--persona` of people who send schemas, code and logs."""
    path = folder / "kinds.toml"
    path.write_text(KINDS)
    return f"{path}:2"


def first_requests(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = sorted(rows, key=lambda row: row["started_at_s"])
    return [row for row in rows if row["turn"] == row["round"] == 0]


def test_distinct_prompts_are_cold(tmp_path: Path) -> None:
    ran = headroom("run", *PLAIN, *FAST, "--requests", "10", "--json", out=tmp_path)
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert len(rows) >= 10
    assert all(row["prompt_tokens"] == row["sent_tokens"] == 300 for row in rows)
    assert all(row["cached_tokens"] < 16 for row in rows)
    summary = json.loads(ran.out)
    assert summary["prompts"] == {
        "kind": "distinct", "filler": True, "lengths": "exact", "as_prose": [],
    }  # fmt: skip
    assert not [told for told in summary["warnings"] if "cold" in told or "cut" in told]


def test_identical_prompts_are_cached_but_for_the_first(tmp_path: Path) -> None:
    words = ("run", *PLAIN, *FAST, "--requests", "10", "--prompts", "identical")
    ran = headroom(*words, out=tmp_path)
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert {row["prompt_kind"] for row in rows} == {"identical"}
    assert {row["prompt_tokens"] for row in rows} == {300}
    assert sum(row["cached_tokens"] >= 298 for row in rows) >= len(rows) - 2
    assert "cold" not in ran.out, "everybody sends it: no surprise"
    assert "identical filler" in ran.out
    predicted = ran.rows("predicted.jsonl")
    assert sum(row["cached_tokens"] >= 290 for row in predicted) >= len(rows) - 2


def test_a_shared_prefix_is_half(tmp_path: Path) -> None:
    words = ("run", *PLAIN, *FAST, "--requests", "10", "--prompts", "shared-prefix", "--json")
    ran = headroom(*words, out=tmp_path)
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert {row["prompt_tokens"] for row in rows} == {300}
    cached = [row["cached_tokens"] for row in rows]
    assert sum(140 <= tokens <= 165 for tokens in cached) >= len(rows) - 2
    summary = json.loads(ran.out)
    assert summary["prompts"]["shared_share"] == 0.5
    assert 0.3 < sum(cached) / sum(row["prompt_tokens"] for row in rows) <= 0.5
    told = summary["by_persona"]["probe"]["cached_share"]
    counted = [row["cached_tokens"] for row in rows if row["valid"]]  # a busy machine may spoil all
    assert told == (pytest.approx(sum(counted) / (300 * len(counted))) if counted else None)


@pytest.mark.parametrize("dialect", ["llamacpp", "vllm"])
def test_schemas_code_and_logs_are_as_long_as_asked(dialect: str, tmp_path: Path) -> None:
    words = ("run", "mock", "--dialect", dialect, "--persona", kinds(tmp_path))
    ran = headroom(*words, *FAST, "--requests", "14", out=tmp_path / "out")
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert len(rows) >= 14
    assert all(row["prompt_tokens"] == row["sent_tokens"] for row in rows)


@pytest.mark.parametrize("dialect", ["ollama", "sglang", "mlx"])
def test_without_a_tokenizer_the_server_counts_samples(dialect: str, tmp_path: Path) -> None:
    """Also the first prompts, with what many conversations share, are about as long as asked."""
    words = ("run", "mock", "--dialect", dialect, "--persona", kinds(tmp_path), "--json")
    ran = headroom(*words, *FAST, "--requests", "14", out=tmp_path / "out")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["prompts"]["lengths"] == "counted"
    rows = ran.rows("requests.jsonl")
    assert len(rows) >= 14
    assert all(abs(row["prompt_tokens"] / row["sent_tokens"] - 1) < 0.06 for row in rows)
    plain = ("run", "mock", "--dialect", dialect, *PLAIN, *FAST, "--requests", "8")
    ran = headroom(*plain, out=tmp_path / "plain")
    assert all(abs(row["prompt_tokens"] - 300) <= 15 for row in ran.rows("requests.jsonl"))


@pytest.mark.parametrize("dialect", ["llamacpp", "ollama"])
def test_an_answer_that_a_full_context_cuts_is_told(dialect: str, tmp_path: Path) -> None:
    words = ("--dialect", dialect, "--slots", "1", "--ctx", "1000", "--requests", "3", *FAST)
    plain = ("--users", "1", "--prompt-tokens", "900", "--output-tokens", "300", "--json")
    ran = headroom("run", "mock", *words, *plain, out=tmp_path)
    assert ran.code == 0, ran.err
    rows, summary = ran.rows("requests.jsonl"), json.loads(ran.out)
    for row in rows:
        assert row["completion_tokens"] < 200 < row["asked_tokens"] == 300
        assert (row["finish_reason"], row["truncated"], row["prompt_cut"]) == (
            "length",
            True,
            False,
        )
    (told,) = (told for told in summary["warnings"] if "cut by the server" in told)
    made = round(sorted(row["completion_tokens"] for row in rows)[1])
    assert (
        f"3 of 3 answers were cut by the server: of 300 tokens asked for they have {made}" in told
    )
    measured = sum(row["valid"] for row in rows)  # a busy machine may be too late for some
    assert summary["by_persona"]["probe"]["cut_answers"] == measured


def test_a_prompt_that_ollama_cuts_is_told(tmp_path: Path) -> None:
    words = ("--dialect", "ollama", "--slots", "2", "--ctx", "2000", "--requests", "4")
    plain = ("--users", "2", "--prompt-tokens", "3000", "--output-tokens", "12")
    ran = headroom("run", "mock", *words, *plain, *FAST, "--json", out=tmp_path)
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert all(row["truncated"] for row in rows)
    assert len({row["prompt_tokens"] for row in rows}) == 1
    (told,) = (told for told in json.loads(ran.out)["warnings"] if "cut by the server" in told)
    assert f"{len(rows)} of {len(rows)} prompts" in told
    window = 2 * (rows[0]["prompt_tokens"] - 2)
    assert f"half of one of {window:,}" in told
    assert json.loads(ran.out)["by_persona"]["probe"]["cut_prompts"] == sum(
        row["valid"] for row in rows
    )


def sessions(folder: Path, many: int) -> Path:
    said = "What do you think of number {}? " * 9
    lines = [
        {"messages": [
            {"role": "system", "content": "You answer short questions."},
            {"role": "user", "content": said.format(*[n] * 9)},
            {"role": "assistant", "content": "It is a number like others."},
            {"role": "user", "content": "And the next one?"},
            {"role": "assistant", "content": "So is that."},
        ]}
        for n in range(many)
    ]  # fmt: skip
    path = folder / "sessions.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def server() -> Iterator[str]:
    """A mock that outlives a run, with its caches."""
    command = [sys.executable, "-m", "mock_server", "--port", "0", "--dialect", "vllm"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as it:
        try:
            yield _url(it)
        finally:
            it.terminate()
            it.communicate(timeout=10)


def _url(process: subprocess.Popen[str]) -> str:
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        for line in stream:
            if "http://127.0.0.1:" in line:
                url = "http://127.0.0.1:" + line.split("http://127.0.0.1:")[1].split()[0].strip("/")
                assert httpx.get(f"{url}/v1/models", trust_env=False).status_code == 200
                return url
    raise AssertionError("the mock did not start")


def test_a_model_has_a_name_at_the_server_and_one_in_the_catalogue(
    server: str, tmp_path: Path
) -> None:
    listed = httpx.get(f"{server}/v1/models", trust_env=False).json()["data"][0]["id"]
    words = ("run", server, "--dialect", "vllm", *PLAIN, "--requests", "2", "--model", "qwen3-8b")
    ran = headroom(*words, out=tmp_path / "refused")
    assert ran.code == 3
    assert "--served-model" in ran.err
    box = ("--hardware", "rtx-4090", "--quant", "Q4_K_M", "--runtime", "llamacpp", "--json")
    ran = headroom(*words, "--served-model", listed, *box, out=tmp_path / "served")
    assert ran.code == 0, ran.err
    assert ran.rows("requests.jsonl")[0]["model"] == listed
    assert "Qwen3 8B" in json.loads(ran.out)["box"]


def test_recorded_sessions_and_what_an_earlier_run_left_in_the_cache(
    server: str, tmp_path: Path
) -> None:
    path = sessions(tmp_path, 12)
    words = ("run", server, "--dialect", "vllm", *PLAIN, "--requests", "4")
    first = headroom(*words, "--prompts", f"file:{path}", "--json", out=tmp_path / "a")
    assert first.code == 0, first.err
    summary = json.loads(first.out)
    assert summary["prompts"]["kind"] == "file"
    assert not summary["prompts"]["filler"]
    assert summary["prompts"]["sessions"] == 12
    rows = first.rows("requests.jsonl")
    assert {row["prompt_kind"] for row in rows} == {"file"}
    assert all(row["ok"] and row["asked_tokens"] < 20 for row in rows)
    assert not [told for told in summary["warnings"] if "cold" in told]
    again = headroom(*words, "--prompts", f"file:{path}", out=tmp_path / "b")
    assert re.search(r"(\d) of \1 first requests were not cold", " ".join(again.out.split()))
    assert "12 recorded sessions; lengths are theirs" in " ".join(again.out.split())


@pytest.mark.parametrize(
    ("prompts", "told"),
    [
        ("identicle", "unknown kind of --prompts 'identicle'; did you mean identical"),
        ("file", "unknown kind of --prompts 'file'"),
        ("file:", "cannot read sessions from"),
        ("file:/nowhere/s.jsonl", "cannot read sessions from /nowhere/s.jsonl"),
    ],
)
def test_wrong_words_are_told_in_one_line(prompts: str, told: str, tmp_path: Path) -> None:
    ran = headroom("run", "--prompts", prompts, out=tmp_path)
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def real(smollm2: Path, xllamacpp: None, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A real tokenizer and a real template, which brings a system message of its own."""
    folder = tmp_path_factory.mktemp("real")
    target = folder / "local-llamacpp.toml"
    text = SHIPPED.read_text().replace('model_file = "smollm2"', f'model_file = "{smollm2}"')
    target.write_text(text.replace('"--slots"', '"--threads", "1", "--slots"'))
    words = ("run", str(target), "--persona", kinds(folder), "--requests", "8")
    return headroom(*words, out=folder / "results")


def test_a_real_server_counts_what_was_asked(real: Ran) -> None:
    assert real.code == 0, real.err
    rows = real.rows("requests.jsonl")
    assert len(rows) >= 8
    assert all(row["ok"] for row in rows)
    assert len(first_requests(rows)) == 2
    assert all(row["prompt_tokens"] == row["sent_tokens"] for row in first_requests(rows))
    # An answer may be cut into other tokens when it is sent back, in the round that follows it as
    # much as in the next turn, than it was generated in.
    off = [row["prompt_tokens"] - row["sent_tokens"] for row in rows]
    assert off.count(0) >= 0.85 * len(off), off
    assert max(map(abs, off)) <= 2
    assert all(row["cached_tokens"] <= row["reusable_tokens"] + 16 for row in first_requests(rows))
