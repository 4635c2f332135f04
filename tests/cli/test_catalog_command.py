"""`catalog`: lists, filters, one entry in words, files of one's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_answers import answer, page, refused

from headroom_bench.catalog.listing import KINDS, list_entries, one_entry
from headroom_bench.cli import catalog_command


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return answer(capsys, "catalog", *words)


def _text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return page(capsys, "catalog", *words)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_lists_and_every_entry_has_words_and_sources(
    capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    entries = _json(capsys, kind)
    assert entries
    listed = _text(capsys, kind)
    for entry in entries[:200]:
        assert entry["id"] in listed
    for entry in entries[:: max(len(entries) // 12, 1)]:
        told = _text(capsys, kind, entry["id"])
        assert str(entry.get("name", entry["id"])) in told
        assert "None" not in told
        assert ".." not in told.replace("...", "")
        if kind not in ("targets", "crowds"):  # those of their personas
            assert "source: " in told


def test_help_names_the_kinds_that_there_are() -> None:
    assert catalog_command.KINDS == KINDS


def test_counts_are_the_issues(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(_json(capsys, "models")) == 142
    assert len(_json(capsys, "hardware")) == 101


def test_filters_narrow_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    big = _json(capsys, "hardware", "--where", "memory_gb>=128", "--where", "unified=true")
    assert {"dgx-spark", "strix-halo-128"} <= {entry["id"] for entry in big}
    assert all(entry["memory_gb"] >= 128 and entry["unified"] for entry in big)
    many = _json(capsys, "models", "--where", "moe.n_experts>=512")
    assert all(entry["moe"]["n_experts"] >= 512 for entry in many)
    assert many
    named = _json(capsys, "models", "--search", "gemma", "--where", "name~E2B")
    assert [entry["name"] for entry in named] == ["Gemma 3n E2B it", "Gemma 4 E2B it"]
    assert _json(capsys, "quants", "--where", "kind!=k-quant", "--where", "format=mlx")


def test_one_entry_says_what_it_is_and_where_it_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = _text(capsys, "hardware", "gb10")
    assert "128 GB of memory" in told
    assert "273 GB/s by the data sheet and 250 measured" in told
    assert "Some of these values are estimated" in told
    assert "source: NVIDIA/dgx-spark-playbooks" in told
    told = _text(capsys, "models", "openai/gpt-oss-120b")
    assert "18 of which see only the last 128 tokens" in told
    assert "128 experts, 4 of them for a token" in told


def test_a_file_of_ones_own_is_shown_like_an_entry(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, smollm2: Path
) -> None:
    box = tmp_path / "box.toml"
    box.write_text(
        "id = 'mine'\nname = 'My box'\narchitecture = 'ada'\nmemory_gb = 24\n"
        "usable_memory_gb = 23\nbandwidth_gb_s = 500\n[tflops_dense]\nfp16_bf16 = 100\n"
    )
    told = _text(capsys, "hardware", str(box))
    assert "My box" in told
    assert "source: box.toml" in told
    assert one_entry("models", str(smollm2))["n_layers"] == 30


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["hardwear"], "did you mean hardware"),
        (["models", "gpt-oss-12b"], "did you mean gpt-oss-120b"),
        (["hardware", "--where", "memory_gb"], "is no condition"),
        (["hardware", "--where", "memory_gb>much"], "is not a number"),
        (["hardware", "--where", "memory>3"], "unknown field of hardware 'memory'"),
        (["hardware", "gb10", "--search", "x"], "filter a list"),
        (["personas", "nobody"], "unknown persona"),
        (["targets", "./nothing.toml"], "does not exist"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert complaint in refused(capsys, "catalog", *words)


@pytest.mark.parametrize(
    ("kind", "text", "complaint"),
    [
        ("personas", 'output = "abc"', "own.toml:1: output: 'abc' is not a distribution"),
        ("personas", "output = 3", "own.toml: segments: needs at least one"),
        ("crowds", "[[group]]\ncount = 1", "own.toml:1: group.persona: is missing"),
        ("targets", "url = 3", "own.toml:1: url: 3 is not a text"),
    ],
)
def test_a_wrong_file_of_ones_own_is_told_as_every_command_tells_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, text: str, complaint: str
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(text)
    assert complaint in refused(capsys, "catalog", kind, str(own))


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_targets_secrets_are_not_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(
        'url = "http://me:sesame-open@h:1"\n[headers]\nX-Api-Key = "in-a-header"\n'
        '[body]\npassword = "in-the-body"\n[start]\ncommand = ["serve", "--api-key=in-a-command"]\n'
    )
    told = page(capsys, "catalog", "targets", str(own), *words)
    assert "http://me:***@h:1" in told
    assert not [
        secret
        for secret in ("sesame", "in-a-header", "in-the-body", "in-a-command")
        if secret in told
    ]


def test_conditions_that_nobody_meets_leave_nothing() -> None:
    assert list_entries("hardware", where=["memory_gb>100000"]) == []


def test_help_reads_no_catalogue() -> None:
    code = (
        "import sys\n"
        "from headroom_bench.cli.app import run_app\n"
        "run_app(['--help'])\n"
        "loaded = set(sys.modules)\n"
        "assert not {'headroom_bench.catalog', 'numpy', 'pandas'} & loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_crowds_are_listed_with_their_people(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {entry["id"]: entry for entry in _json(capsys, "crowds")}
    people = {group["persona"] for group in listed["tiny"]["group"]}
    assert people == {"chat-reader", "voice-command"}
    assert "  3 ide-coder over gbe" in _text(capsys, "crowds", "office").splitlines()
    assert "1 translator-ar, 1 translator-es" in _text(capsys, "crowds"), "by their own names"


def test_a_name_near_nothing_gets_no_guesses(capsys: pytest.CaptureFixture[str]) -> None:
    told = refused(capsys, "catalog", "hardware", "zzzz")
    assert "unknown hardware 'zzzz' (headroom-bench catalog hardware lists them)" in told
