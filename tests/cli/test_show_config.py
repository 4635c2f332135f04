"""`run --show-config`: every setting with where it came from, and no run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headroom_bench.cli.app import run_app

TARGET = """
url = "http://127.0.0.1:9"
dialect = "vllm"
[headers]
X-Team = "planted-team-secret"
[server]
hardware = "dgx-spark"
slots = 4
"""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "box.toml"
    path.write_text(TARGET)
    return path


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run_app(["run", *words, "--show-config", "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_flag_wins_over_a_file_and_a_file_over_a_default(
    capsys: pytest.CaptureFixture[str], target: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    got = shown(
        capsys, str(target), "--slots", "2", "--requests", "7", "--silence-timeout", "9s",
        "--users", "3", "--prompt-tokens", "1k", "--output-tokens", "5", "--seed", "4",
        "--out", str(out),
    )  # fmt: skip
    from_file = str(target)
    assert got["target.server.slots"] == {"value": 2, "from": "--slots"}
    assert got["target.server.hardware"] == {"value": "dgx-spark", "from": from_file}
    assert got["target.server.quant"] == {"value": None, "from": "default"}
    assert got["target.server.runtime"] == {"value": "vllm", "from": "default"}
    assert got["target.dialect"] == {"value": "vllm", "from": from_file}
    assert got["target.headers"] == {"value": ["X-Team"], "from": from_file}
    assert got["max_requests"] == {"value": 7, "from": "--requests"}
    assert got["timeouts.silence_s"] == {"value": 9.0, "from": "--silence-timeout"}
    assert got["timeouts.connect_s"] == {"value": 10.0, "from": "default"}
    assert got["crowd"] == {"value": {"probe": 3}, "from": "--users"}
    assert got["seed"] == {"value": 4, "from": "--seed"}
    assert got["out"] == {"value": str(out), "from": "--out"}
    assert not out.exists(), "nothing was run"


def test_lines_for_people_hold_no_secret(capsys: pytest.CaptureFixture[str], target: Path) -> None:
    assert run_app(["run", str(target), "--header", "X-A: planted-flag", "--show-config"]) == 0
    text = capsys.readouterr().out
    assert "planted" not in text
    lines = dict(line.split(None, 1) for line in text.splitlines())
    assert lines["target.headers"] == '["X-A", "X-Team"]  (--header)'
    assert lines["duration_s"] == "30.0  (default)"


def test_a_url_and_a_shipped_target(capsys: pytest.CaptureFixture[str]) -> None:
    got = shown(capsys, "http://127.0.0.1:9")
    assert got["target.url"] == {"value": "http://127.0.0.1:9", "from": "TARGET"}
    got = shown(capsys, "mock")
    assert got["target.server.hardware"]["from"] == "targets/mock.toml"


def test_a_scheme_may_be_in_capitals() -> None:
    words = ["run", "HTTPS://127.0.0.1:9", "--insecure", "--show-config"]
    assert run_app(words) == 0
