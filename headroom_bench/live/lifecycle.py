"""Start a target's server, wait until it is healthy, stop it: never leave one behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from headroom_bench.errors import TargetError, UserError, unknown_name
from headroom_bench.secret_words import shown_words
from headroom_bench.target import StartSpec

POLL_S = 0.1
"""Between two looks at a server's health."""
STOP_GRACE_S = 10.0
"""From asking a server to stop until it is killed."""

_TAIL_LINES = 20
_TAIL_BYTES = 16_384
_GUARD = Path(__file__).with_name("guard.py")


class StartError(TargetError):
    """The server did not come up. `detail` holds the last lines of its log."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message)
        self.detail = detail


def fill(command: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Replace `{name}` in each word by `values[name]`; `{python}` is this interpreter.

    Only lower-case names in braces are placeholders, so JSON in an argument stays as it is.
    Raises `UserError` for a placeholder that has no value.
    """
    known = {"python": sys.executable, **values}

    def value(match: re.Match[str]) -> str:
        if match[1] not in known:
            raise unknown_name("placeholder", match[1], known, f" (in {match.string!r})")
        return known[match[1]]

    return tuple(re.sub(r"\{([a-z_]+)\}", value, word) for word in command)


def free_port() -> int:
    """A TCP port that nobody listens on, on loopback, at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ManagedServer:
    """An async context in which the server runs and is healthy.

    Its stdout and stderr are appended to `log_path`. It runs in a session of its own, so Ctrl-C in
    the terminal does not reach it; its whole process group ends with the context, and with this
    process too, however this process dies. Entering raises `StartError` when the server ends or
    stays unhealthy, `TargetError` when something else already listens at `base_url`, `UserError`
    when the command or the log file cannot be used.
    """

    def __init__(
        self,
        spec: StartSpec,
        base_url: str,
        log_path: Path,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.spec = spec
        self.base_url = base_url
        self.log_path = log_path
        self._tls = tls
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: int | None = None
        self._log_from = 0

    @property
    def pid(self) -> int | None:
        """The server's process id (also its group's); None before it was started."""
        return self._process.pid if self._process else None

    @property
    def exited(self) -> int | None:
        """The exit status (negative: the signal that ended it); None while it runs or before."""
        return self._process.poll() if self._process else None

    async def __aenter__(self) -> Self:
        health = _health_url(self.base_url, self.spec.health)
        await _refuse_taken(health)
        self._spawn()
        try:
            await self._until_healthy(health)
        except BaseException:
            await self._stop_shielded()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cancelled = await self._stop_shielded()
        if cancelled and error is None:
            raise asyncio.CancelledError

    def kill(self) -> None:
        """End the server and all that it started at once; blocks for two seconds at most.

        May be called at any time and repeatedly, from a signal handler too.
        """
        process, lifeline = self._process, self._lifeline
        if process is None or lifeline is None:
            return
        self._lifeline = None
        # The guard's watcher is in the group until here, so its number is still ours.
        _signal_group(process.pid, signal.SIGKILL)
        os.close(lifeline)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)

    def _spawn(self) -> None:
        _refuse_command(self.spec.command)
        try:
            log = self.log_path.open("ab")
        except OSError as error:
            raise UserError(
                f"cannot write the server's log {self.log_path}: {error.strerror}"
            ) from error
        self._log_from = log.tell()
        hold, self._lifeline = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(hold), *self.spec.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=(hold,),
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        finally:
            os.close(hold)
            log.close()

    async def _until_healthy(self, url: httpx.URL) -> None:
        limit = self.spec.ready_timeout_s
        try:
            # A proxy from the environment would be asked for our own loopback.
            async with (
                asyncio.timeout(limit),
                httpx.AsyncClient(trust_env=False, verify=self._tls or False) as client,
            ):
                while not await _healthy(client, url):
                    if self.exited is not None:
                        raise self._start_error(_describe_exit(self.exited))
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise self._start_error(f"not healthy after {limit:g} s ({url})") from None

    def _start_error(self, what: str) -> StartError:
        tail = self._log_tail()
        last = tail[-1].strip() if tail else "it wrote nothing"
        name = _name_of(self.spec.command)
        return StartError(f"the server did not start: {name}: {what}: {last}", "\n".join(tail))

    def _log_tail(self) -> list[str]:
        with self.log_path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_from, end - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
        return [line for line in text.splitlines() if line.strip()][-_TAIL_LINES:]

    async def _stop_shielded(self) -> bool:
        """Stop to the end even if cancelled meanwhile; returns whether that happened."""
        stopping = asyncio.ensure_future(self._stop())
        cancelled = False
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                cancelled = True
        return cancelled

    async def _stop(self) -> None:
        try:
            if self._process and self.exited is None:
                await self._ask_to_stop(self._process)
                await _ends_within(self._process, STOP_GRACE_S)
        finally:
            self.kill()

    async def _ask_to_stop(self, server: subprocess.Popen[bytes]) -> None:
        if not (self.spec.stop and await self._run_stop(self.spec.stop)):
            _signal_group(server.pid, signal.SIGTERM)

    async def _run_stop(self, command: tuple[str, ...]) -> bool:
        """Run the target's stop command; returns whether it worked. Its output joins the log."""
        try:
            with self.log_path.open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
        except OSError:
            return False
        try:
            return await _ends_within(process, STOP_GRACE_S) and process.returncode == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


async def _healthy(client: httpx.AsyncClient, url: httpx.URL) -> bool:
    try:
        return (await client.get(url)).status_code == 200
    except httpx.TransportError:
        return False


async def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(0.02)
    return True


async def _refuse_taken(health: httpx.URL) -> None:
    """Somebody else's healthy server on our port would be measured in place of ours."""
    port = health.port or (443 if health.scheme == "https" else 80)
    try:
        async with asyncio.timeout(1.0):
            _, writer = await asyncio.open_connection(health.host, port)
    except OSError:
        return
    writer.close()
    raise TargetError(
        f"something already listens on {health.host}:{port}; stop it, choose another port, "
        "or take [start] out of the target to use it as it is"
    )


def _health_url(base_url: str, health: str) -> httpx.URL:
    whole = health if "://" in health else f"{base_url.rstrip('/')}/{health.lstrip('/')}"
    try:
        url = httpx.URL(whole)
    except httpx.InvalidURL as error:
        raise UserError(f"start.health: {whole!r} is not a URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise UserError(f"start.health: {whole!r} is not a URL (http://HOST:PORT/PATH)")
    return url


def _refuse_command(command: tuple[str, ...]) -> None:
    if os.name != "posix":
        raise UserError("start.command needs Linux or macOS; start the server yourself")
    if not command:
        raise UserError("start.command is empty")
    if shutil.which(command[0]) is None:
        raise UserError(f"start.command: there is no program {command[0]!r}")


def _signal_group(group: int, signum: signal.Signals) -> None:
    # macOS refuses, rather than not finding, a group of which only zombies are left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signum)


def _describe_exit(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    return f"was ended by {signal.Signals(-status).name}"


def _name_of(command: tuple[str, ...]) -> str:
    """The command up to its first long option, without secrets."""
    words = shown_words(command)
    return " ".join(itertools.takewhile(lambda word: not word.startswith("--"), words))
