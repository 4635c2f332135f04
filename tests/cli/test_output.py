"""Whoever reads our output, or does not: the work is done, and the exit code says how."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = (sys.executable, "-m", "headroom_bench", "run", "--requests", "3", "--time-scale", "20")
CATALOG = (sys.executable, "-m", "headroom_bench", "catalog", "models")
FULL = Path("/dev/full")


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(CATALOG, stdout=write_end, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_a_full_disk_is_told_in_one_line() -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(CATALOG, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == [
        "headroom-bench: stdout cannot be written: No space left on device"
    ]


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
def test_notes_that_cannot_be_written_do_not_end_a_run(tmp_path: Path) -> None:
    with FULL.open("wb") as full:
        done = subprocess.run(
            (*RUN, "--out", str(tmp_path)),
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.returncode == 0
    assert b"crowd demo on mock" in done.stdout
    assert list(tmp_path.glob("*/summary.json"))


def test_a_terminal_of_ascii_only_gets_what_it_can_show() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = (sys.executable, "-m", "headroom_bench", "catalog", "models", "gpt-oss-120b")
    done = subprocess.run(words, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


@pytest.mark.parametrize("closed", [(1, 2), (0, 1, 2), (2,)])
def test_streams_that_were_closed_before_we_began_do_not_end_a_run(
    closed: tuple[int, ...], tmp_path: Path
) -> None:
    """A file that got the number of one of them would be written into, and not be closed."""
    shell = " ".join(f"{number}>&-" for number in closed)
    line = f"{shlex.join((*RUN, '--out', str(tmp_path)))} {shell}"
    done = subprocess.run(("sh", "-c", line), capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    (summary,) = tmp_path.glob("*/summary.json")
    assert json.loads(summary.read_text())["requests"] == 3


def test_a_page_without_a_reader_is_no_fault() -> None:
    done = subprocess.run(
        ("sh", "-c", f"{shlex.join(CATALOG)} >&-"), capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("width", ["0", "1", "00"])
def test_a_width_that_holds_no_text_is_none(width: str, tmp_path: Path) -> None:
    """Some schedulers set it: the summary would be lost."""
    words = (sys.executable, "-m", "headroom_bench", "simulate", "--requests", "3")
    environment = {**os.environ, "COLUMNS": width}
    done = subprocess.run(
        (*words, "--out", str(tmp_path)), capture_output=True, env=environment, check=False
    )
    assert done.returncode == 0
    assert b"TTFT" in done.stdout
