"""From options to a listening server."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import AsyncIterator, Callable
from typing import TextIO

from aiohttp import web

from headroom_bench.box import BoxDesign
from headroom_bench.errors import UserError, unknown_name
from headroom_bench.roofline.pricer import Pricer
from headroom_bench.units import MOST_S, MOST_SEQUENCE_TOKENS, shown
from mock_server.designs import box_of
from mock_server.dialect import Dialect
from mock_server.dialects.registry import DIALECTS
from mock_server.facts import facts_of
from mock_server.fault_list import parse_faults
from mock_server.faults import Fault
from mock_server.front import Front
from mock_server.http_complaints import complaints
from mock_server.logs import Lines, Log
from mock_server.options import MAX_BODY_BYTES, MockOptions
from mock_server.request_faults import IdleClose, LogFault
from mock_server.service import Service
from mock_server.tls import context_of
from mock_server.truth import Truth

_SHUTDOWN_S = 0.2
"""Open streams are not waited for: they would go on for minutes."""
_KEEPALIVE_S = 75.0

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
LOG: web.AppKey[Log] = web.AppKey("log", Log)


def make_app(options: MockOptions, pricer: Pricer | None = None) -> web.Application:
    """The application of one mock server, with its `Service` under `SERVICE` once it runs.

    `pricer` stands in for the roofline, such as recorded pass times. A runner of this application
    needs `handler_cancellation=True`, or the mock would not notice who hung up while waiting.
    Raises `UserError` for what the catalogue does not know or sizes that do not work.
    """
    if options.dialect not in DIALECTS:
        raise unknown_name("dialect", options.dialect, DIALECTS)
    if not 0 <= options.port <= 65535:
        raise UserError(f"--port {shown(options.port)} is no port: 0 (any free one) to 65535")
    if not 0 < options.time_scale < math.inf:
        raise UserError(f"--time-scale must be above 0, not {options.time_scale:g}")
    for name, least, most in (
        ("loading_s", 0, MOST_S),
        ("ping_s", 0, MOST_S),
        ("reasoning", 0, MOST_SEQUENCE_TOKENS),
        ("stream_interval", 1, MOST_SEQUENCE_TOKENS),
    ):
        value = getattr(options, name)
        if value is not None and not least <= value <= most:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} must be from {least} to {most:,.0f}, not {shown(value)}")
    deployment, design = box_of(options)
    front = Front(options, facts_of(deployment))
    dialect = front.dialect = DIALECTS[options.dialect](front)
    price = pricer or deployment.pricer()
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    front.add_to(app)
    dialect.add_to(app)

    async def running(app: web.Application) -> AsyncIterator[None]:
        stream = sys.stderr
        if options.journal_file is not None:
            stream = options.journal_file.open("a", encoding="utf-8")
        truth = Truth(options.truth_file)
        log, close_lines = _log(options, design, dialect, stream, lambda: service.wall.life_s())
        service = Service(
            price,
            design,
            options.time_scale,
            log,
            truth,
            dialect.name,
        )
        front.service = app[SERVICE] = service
        app[LOG] = log
        log.starting()
        yield
        service.stop()
        if service.wall.slips:
            lost, worst = service.wall.slip_s, service.wall.worst_slip_s
            log.note(f"box time slipped {lost:.3f} s in all, {worst:.3f} s at worst")
        log.stopping()
        close_lines()
        truth.close()
        if options.journal_file is not None:
            stream.close()

    app.cleanup_ctx.append(running)
    return app


def _log(
    options: MockOptions,
    design: BoxDesign,
    dialect: Dialect,
    stream: TextIO,
    life_s: Callable[[], float],
) -> tuple[Log, Callable[[], None]]:
    """The dialect's log with its faults, and what is to be called at its end."""
    faults = [fault for fault in parse_faults(options.faults) if isinstance(fault, LogFault)]
    lines: Lines = stream
    closers: list[Callable[[], None]] = []
    for fault in faults:
        lines = fault.wrap(lines, options.seed)
        close = getattr(lines, "close", None)
        if close is not None:
            closers.append(close)

    def clock() -> float:
        now = life_s()
        return now + sum(fault.shift_s(now) for fault in faults)

    def close_lines() -> None:
        for close in reversed(closers):
            close()

    return dialect.log(lines, clock, options, design), close_lines


async def serve(
    options: MockOptions, ready: Callable[[str], None], pricer: Pricer | None = None
) -> None:
    """Serve until cancelled; `ready` gets the URL once connections are taken.

    Cancellation closes the server within a second and cuts open streams. Raises `UserError` as
    `make_app` does, and where the address, a file or the certificate cannot be had.
    """
    app = make_app(options, pricer)
    runner = web.AppRunner(
        app,
        handler_cancellation=True,
        access_log=None,
        logger=complaints(lambda text: app[LOG].note(text)),
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=_idle_s(parse_faults(options.faults)),
    )
    try:
        await _start(runner, app, options, ready)
        await asyncio.get_running_loop().create_future()  # until cancelled
    finally:
        await runner.cleanup()


def _idle_s(faults: list[Fault]) -> float:
    """How long a connection may be idle, in wall seconds."""
    return min([f.seconds for f in faults if isinstance(f, IdleClose)], default=_KEEPALIVE_S)


async def _start(
    runner: web.AppRunner,
    app: web.Application,
    options: MockOptions,
    ready: Callable[[str], None],
) -> None:
    secured = context_of(options)
    try:
        await runner.setup()
        site = web.TCPSite(runner, options.host, options.port, backlog=4096, ssl_context=secured)
        await site.start()
    except OSError as why:
        where = why.filename or f"{options.host}:{options.port}"
        raise UserError(f"cannot start on {where}: {why.strerror or why}") from None
    port = runner.addresses[0][1]
    host = f"[{options.host}]" if ":" in options.host else options.host
    url = f"{'https' if secured else 'http'}://{host}:{port}"
    log = app[LOG]
    if options.loading_s:
        wait = options.loading_s / options.time_scale
        asyncio.get_running_loop().call_later(wait, log.ready, url)
    else:
        log.ready(url)
    ready(url)
