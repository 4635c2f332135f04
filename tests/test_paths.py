"""Paths as a user types them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom_bench.errors import UserError
from headroom_bench.paths import is_there, typed_path


def test_a_tilde_is_a_home_at_the_very_start_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/of-mine")
    (tmp_path / "~box.toml").touch()
    assert typed_path("~/box.toml") == Path("/home/of-mine/box.toml")
    assert is_there("./~box.toml")
    assert not is_there("~box.toml")
    with pytest.raises(UserError, match=r"'~box\.toml' cannot be a path: Could not determine home"):
        typed_path("~box.toml")


@pytest.mark.parametrize("text", ["x" * 5000, "a\0b"])
def test_what_can_be_no_path_is_not_there(text: str) -> None:
    assert not is_there(text)
