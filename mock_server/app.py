"""From options to a listening server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from headroom_bench.errors import UserError, unknown_name
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.pricer import Pricer
from mock_server.facts import facts_of
from mock_server.journal import Journal
from mock_server.llamacpp import BUILD_INFO, LlamaCpp
from mock_server.options import MAX_BODY_BYTES, MockOptions
from mock_server.service import Service

DIALECTS = ("llamacpp",)
_SHUTDOWN_S = 0.2
"""Open streams are not waited for: they would go on for minutes."""

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
JOURNAL: web.AppKey[Journal] = web.AppKey("journal", Journal)


def make_app(options: MockOptions, pricer: Pricer | None = None) -> web.Application:
    """The application of one mock server, with its `Service` under `SERVICE` once it runs.

    `pricer` stands in for the roofline, such as recorded pass times. A runner of this application
    needs `handler_cancellation=True`, or the mock would not notice who hung up while waiting.
    Raises `UserError` for what the catalogue does not know or sizes that do not work.
    """
    if options.dialect not in DIALECTS:
        raise unknown_name("dialect", options.dialect, DIALECTS)
    if options.slots < 1 or options.ctx < options.slots:
        raise UserError(f"{options.slots} slots cannot share a context of {options.ctx} tokens")
    if options.time_scale <= 0 or options.loading_s < 0:
        raise UserError("time_scale must be above 0, loading_s not below")
    deployment = _deployment(options)
    front = LlamaCpp(options, facts_of(deployment))
    price = pricer or deployment.pricer()
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    front.add_to(app)

    async def running(app: web.Application) -> AsyncIterator[None]:
        stream = sys.stderr
        if options.journal_file is not None:
            stream = options.journal_file.open("a", encoding="utf-8")
        journal = Journal(stream, lambda: service.wall.life_s())
        service = Service(price, options.slots, options.ctx_per_slot, options.time_scale, journal)
        front.service = app[SERVICE] = service
        app[JOURNAL] = journal
        journal.starting(BUILD_INFO, options.model_name)
        yield
        service.stop()
        if service.wall.slips:
            lost, worst = service.wall.slip_s, service.wall.worst_slip_s
            journal.note(f"box time slipped {lost:.3f} s in all, {worst:.3f} s at worst")
        journal.stopping()
        if options.journal_file is not None:
            stream.close()

    app.cleanup_ctx.append(running)
    return app


def _deployment(options: MockOptions) -> Deployment:
    return Deployment.named(
        model=options.model,
        hardware=options.hardware,
        quant=options.quant,
        runtime=options.runtime,
        backend=options.backend,
        kv_k=options.kv_k,
        kv_v=options.kv_v,
        ubatch=options.ubatch,
        slots=options.slots,
        ctx=options.ctx_per_slot,
        swa_full=options.swa_full,
    )


async def serve(
    options: MockOptions, ready: Callable[[int], None], pricer: Pricer | None = None
) -> None:
    """Serve until cancelled; `ready` gets the port once connections are taken.

    Cancellation closes the server within a second and cuts open streams. Raises `UserError` as
    `make_app` does, and where the address cannot be had or the journal not be written.
    """
    app = make_app(options, pricer)
    runner = web.AppRunner(
        app, handler_cancellation=True, access_log=None, shutdown_timeout=_SHUTDOWN_S
    )
    try:
        await _start(runner, app, options, ready)
        await asyncio.get_running_loop().create_future()  # until cancelled
    finally:
        await runner.cleanup()


async def _start(
    runner: web.AppRunner,
    app: web.Application,
    options: MockOptions,
    ready: Callable[[int], None],
) -> None:
    try:
        await runner.setup()
        await web.TCPSite(runner, options.host, options.port, backlog=1024).start()
    except OSError as why:
        where = why.filename or f"{options.host}:{options.port}"
        raise UserError(f"cannot start on {where}: {why.strerror or why}") from None
    port = runner.addresses[0][1]
    url = f"http://{options.host}:{port}"
    journal, service = app[JOURNAL], app[SERVICE]

    def loaded() -> None:
        journal.ready(options.slots, service.ctx_per_slot, url)

    if options.loading_s:
        asyncio.get_running_loop().call_later(options.loading_s / options.time_scale, loaded)
    else:
        loaded()
    ready(port)
