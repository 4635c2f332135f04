"""Whoever reads our output, or does not: the work is done, and the exit code says how."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    words = (sys.executable, "-m", "headroom_bench", "run", "--requests", "3")
    with FULL.open("wb") as full:
        done = subprocess.run(
            (*words, "--time-scale", "20", "--out", str(tmp_path)),
            stdout=subprocess.PIPE,
            stderr=full,
            check=False,
        )
    assert done.returncode == 0
    assert b"TTFT" in done.stdout
    assert list(tmp_path.glob("*/summary.json"))


def test_a_terminal_of_ascii_only_gets_what_it_can_show() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    words = (sys.executable, "-m", "headroom_bench", "catalog", "models", "gpt-oss-120b")
    done = subprocess.run(words, capture_output=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
