"""Secrets that were told of are masked wherever text leaves."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest

from headroom_bench.redaction import (
    hide,
    hide_basic,
    redact,
    redacted,
    scrub_file,
    shortened,
)

KEY = 'sk"<1>/2&3'


@pytest.mark.parametrize("form", [str, quote, escape, lambda key: json.dumps(key)[1:-1]])
def test_in_every_form_in_which_servers_quote(form: object) -> None:
    hide(KEY)
    said = form(KEY)  # type: ignore[operator]
    assert redact(f"bad key {said}!") in ("bad key ***!", f"bad key {quote(KEY)}!")
    if form is quote:
        assert "sk" not in redact(quote(KEY, safe=""))


def test_one_inside_another() -> None:
    hide("abcdef")
    hide("xx-abcdef-yy")
    assert redact("xx-abcdef-yy and abcdef") == "*** and ***"


def test_cut_after_masking_not_before() -> None:
    hide("planted-key")
    assert shortened("x" * 5 + "planted-key", 10) == "xxxxx***"


def test_a_login_in_all_its_forms() -> None:
    assert hide_basic("me", "päss") == "Basic bWU6cMOkc3M="
    assert redact("päss bWU6cMOkc3M= me") == "*** *** me"


def test_plain_data_keeps_its_keys_and_shape() -> None:
    row = {"error": "no planted-key", "n": 3, "planted-key": [("planted-key", None)]}
    assert redacted(row) is row
    hide("planted-key")
    assert redacted(row) == {"error": "no ***", "n": 3, "planted-key": [["***", None]]}


def test_files_of_others(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"\xff key planted-key\n")
    before = log.stat().st_mtime_ns
    hide("something else")
    scrub_file(log)
    assert log.stat().st_mtime_ns == before
    hide("planted-key")
    scrub_file(log)
    assert log.read_bytes() == b"\xff key ***\n"
    scrub_file(tmp_path / "none")
