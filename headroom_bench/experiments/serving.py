"""The server of a run: started and stopped by us, or already there."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from headroom_bench.live.access import access_to, tls_context
from headroom_bench.live.exchange import Origin
from headroom_bench.live.fetch import model_file
from headroom_bench.live.lifecycle import ManagedServer, fill, free_port
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.target import StartSpec, Target, draft_of

STARTED = "started"
"""Journal source: the log of the server that the run started."""
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Serving:
    """A server that is up."""

    url: str
    log: Path | None
    """What it writes, where we started it."""


@asynccontextmanager
async def serving(
    target: Target,
    folder: Path,
    time_scale: float,
    on_start: Callable[[ManagedServer], None],
) -> AsyncIterator[Serving]:
    """Starts what the target wants started, and stops it whatever happens.

    `on_start` gets the managed server before it runs, so that it can be killed from a signal
    handler. Raises `TargetError` when it does not come up, `UserError` for what cannot be started.
    """
    spec = _mock_start(target, time_scale) if target.embedded_mock else target.start
    if spec is None:
        yield Serving(target.url, None)
        return
    port = spec.port or free_port()
    url = target.url.replace("{port}", str(port))
    command = fill(spec.command, _placeholders(spec, port))
    log = folder / "server.log"
    tls = tls_context(target.ca_file, target.insecure) if url.startswith("https:") else None
    server = ManagedServer(replace(spec, command=command), url, log, tls)
    on_start(server)
    async with server:
        yield Serving(url, log)


def check_access(target: Target, timeouts: Timeouts) -> None:
    """Refuses what no server could be reached at or with, before anything is made for the run.

    Raises:
        UserError: as `access_to` does.
    """
    access_to(target, _with_a_port(target.url), timeouts, os.environ)


def check_url(target: Target) -> None:
    """Raises `UserError` where the URL is none of a server's."""
    Origin.of(_with_a_port(target.url))


def _with_a_port(url: str) -> str:
    return url.replace("{port}", "1")


def _placeholders(spec: StartSpec, port: int) -> dict[str, str]:
    values = {"host": _LOOPBACK, "port": str(port)}
    if spec.model_file is not None:
        values["model_file"] = str(model_file(spec.model_file))
    return values


def _mock_start(target: Target, time_scale: float) -> StartSpec:
    """The bundled mock server as the box that the target describes."""
    server = target.server
    drafter, drafted = draft_of(server.draft) if server.draft else (None, None)
    options: dict[str, object] = {
        "--dialect": target.dialect,
        "--hardware": server.hardware,
        "--model": server.model or target.model,
        "--quant": server.quant,
        "--runtime": server.runtime,
        "--backend": server.backend,
        "--slots": server.slots,
        "--ctx": server.ctx,
        "--ubatch": server.ubatch,
        "--kv-k": server.kv_k,
        "--kv-v": server.kv_v,
        "--draft": drafter,
        "--draft-tokens": drafted,
        "--time-scale": time_scale,
    }
    command = [sys.executable, "-m", "mock_server", "--host", "{host}", "--port", "{port}"]
    for option, value in options.items():
        if value is not None:
            command += [option, str(value)]
    if server.kv_unified is not None:
        command.append("--kv-unified" if server.kv_unified else "--kv-split")
    return StartSpec(tuple(command), health="/v1/models")  # the one route of every dialect
