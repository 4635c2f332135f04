"""Which faults a request gets, and whether it is let in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial

from aiohttp import web

from headroom_bench.errors import UserError
from mock_server.dialect import Dialect
from mock_server.fault_list import parse_fault, parse_faults
from mock_server.faults import Fault, Setting
from mock_server.jobs import Job
from mock_server.refusals import RefusedError
from mock_server.request_faults import Moment, Queue, RequestFault

_STATE_POSTS = ("/tokenize", "/detokenize", "/apply-template", "/api/show")
"""POSTs that ask for no answer."""


class Gate:
    """Counts requests and applies the faults that decide before they are looked at."""

    def __init__(self, faults: Sequence[str], time_scale: float, seed: int) -> None:
        """`faults`: what every request gets. Raises `UserError` as `parse_faults`."""
        self._setting = Setting(time_scale, str(seed))
        self._faults = parse_faults(faults)
        self._calls = 0
        self._active = 0
        waiting = [fault.streams for fault in self._faults if isinstance(fault, Queue)]
        self._queue = asyncio.Semaphore(min(waiting)) if waiting else None

    def faults_of(self, headers: Sequence[str]) -> list[Fault]:
        """Fresh faults for one request. Raises `RefusedError` for a header that names none."""
        made = [replace(fault) for fault in self._faults]
        for name in (name for text in headers for name in text.split(",") if name.strip()):
            try:
                fault = parse_fault(name)
            except UserError as why:
                raise RefusedError("value", str(why), field="X-Mock-Fault", value=name) from None
            if fault.at_start_only:
                told = f"fault {fault.name!r} works only for the whole server, by --fault"
                raise RefusedError("value", told, field="X-Mock-Fault", value=name)
            made.append(fault)
        return made

    def set_up(self, faults: Sequence[Fault], dialect: Dialect, job: Job) -> list[Fault]:
        """Tells the faults of a stream what they may know."""
        for fault in faults:
            fault.setting = replace(
                self._setting,
                seed=f"{self._setting.seed}/{job.id}",
                error=partial(dialect.stream_error, route=job.route),
                done_after_error=dialect.done_after_error,
            )
        return list(faults)

    def instead(self, request: web.Request, faults: Sequence[Fault]) -> tuple[str, float] | None:
        """What is answered instead of an answer, and when to come again in seconds."""
        moment = Moment(
            generates=generates(request),
            health=request.path in ("/health", "/v1/health"),
            calls=self._calls,
            active=self._active,
        )
        if moment.generates:
            self._calls += 1
        for fault in faults:
            if isinstance(fault, RequestFault):
                what = fault.instead(moment)
                if what:
                    return what, fault.retry_after_s()
        return None

    @asynccontextmanager
    async def entered(self, request: web.Request) -> AsyncIterator[None]:
        if not generates(request):
            yield
            return
        self._active += 1
        try:
            async with self._queue or nullcontext():
                yield
        finally:
            self._active -= 1


def generates(request: web.Request) -> bool:
    """Whether it asks for an answer."""
    return request.method == "POST" and request.path not in _STATE_POSTS
