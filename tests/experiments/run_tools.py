"""Running the command as a user does, and reading what it left on disk."""

from __future__ import annotations

import asyncio
import json
import os
import resource
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


NOWHERE = Path("/dev/null")


def command(*words: str, out: Path | None) -> list[str]:
    where = [] if out is None else ["--out", str(out)]
    return [sys.executable, "-m", "headroom_bench", *words, *where]


def headroom(
    *words: str, out: Path | None, timeout_s: float = 120, traceback: bool = False, **env: str
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
    return Ran(done.returncode, done.stdout, done.stderr, out or NOWHERE)


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


@dataclass
class Running:
    """A run that goes on beside the test, so that servers of the test's own loop can answer it."""

    process: asyncio.subprocess.Process
    folder: Path

    @classmethod
    async def start(
        cls, *words: str, out: Path | None, limit_bytes: int | None = None, **env: str
    ) -> Running:
        """`limit_bytes`: no file that it writes may be longer, as on a full disk."""

        def limit() -> None:
            if limit_bytes is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

        process = await asyncio.create_subprocess_exec(
            *command(*words, out=out),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **env},
            preexec_fn=limit,
        )
        return cls(process, out or NOWHERE)

    async def ended(self, within_s: float = 60) -> Ran:
        try:
            async with asyncio.timeout(within_s):
                out, err = await self.process.communicate()
        except TimeoutError:
            self.process.kill()
            raise
        assert b"Traceback" not in err, err.decode()
        assert self.process.returncode is not None
        return Ran(self.process.returncode, out.decode(), err.decode(), self.folder)

    async def until_rows(self, least: int, within_s: float = 40) -> Path:
        """Waits until so many requests are on disk; gives the run's folder."""
        async with asyncio.timeout(within_s):
            while True:
                for path in self.folder.glob("**/requests.jsonl"):
                    if path.read_bytes().count(b"\n") >= least:
                        return path.parent
                assert self.process.returncode is None, await self.process.communicate()
                await asyncio.sleep(0.05)
