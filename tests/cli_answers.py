"""Command lines run in this process, and what they said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom_bench.cli.app import run_app


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Its one JSON document."""
    return json.loads(page(capsys, *words, "--json"))


def page(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What it showed a reader."""
    assert run_app(list(words)) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that told what was wrong with it."""
    assert run_app(list(words)) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    return told.err
