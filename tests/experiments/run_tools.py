"""Running the command as a user does, and reading what it left on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    folder: Path

    @property
    def run(self) -> Path:
        """The one run folder that it made."""
        (path,) = self.folder.iterdir()
        return path

    def json(self, name: str) -> Any:
        return json.loads((self.run / name).read_text())

    def rows(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / name).read_text().splitlines()]


def command(*words: str, out: Path) -> list[str]:
    return [sys.executable, "-m", "headroom_bench", *words, "--out", str(out)]


def headroom(
    *words: str, out: Path, timeout_s: float = 120, traceback: bool = False, **env: str
) -> Ran:
    done = subprocess.run(
        command(*words, out=out),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **env},
        check=False,
    )
    assert traceback or "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr, out)


def running(marker: str) -> list[int]:
    """Process ids whose command line holds `marker` (Linux)."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if marker in line:
                found.append(int(entry.name))
    return found
