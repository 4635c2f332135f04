"""Exchanges over aiohttp, for what the fast path does not speak: proxies.

The same stamps, bounds, phases and ends as on the fast path, since the same `Intake` takes the
bytes; they are stamped one turn of the event loop later, when aiohttp hands them on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from headroom_bench.live.access import Access, Proxy
from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.exchange import Ended, Exchange
from headroom_bench.live.intake import HasToken, Held, Intake, any_byte
from headroom_bench.live.wire import connect_problem
from headroom_bench.redaction import hide_basic

CLOSE_S = 5.0
"""Longest that closing the connections may take."""


def _login_header(proxy: Proxy | None) -> dict[str, str]:
    """What says to the proxy who we are."""
    if proxy is None or proxy.login is None:
        return {}
    return {"Proxy-Authorization": hide_basic(*proxy.login)}


class _Carried:
    """One exchange on its way, and the task that carries it."""

    def __init__(
        self, exchange: Exchange, intake_of: Callable[[Callable[[], None]], Intake]
    ) -> None:
        self.exchange = exchange
        self.intake: Intake | None = None
        self.task: asyncio.Task[None] | None = None
        self._intake_of = intake_of

    def sent(self) -> None:
        """The request's head went to a connected socket."""
        if self.intake is None:
            self.exchange.sent_ns = monotonic_ns()
            self.intake = self._intake_of(self.hang_up)

    def hang_up(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def finish(self, how: Ended, problem: str = "") -> None:
        if self.intake is not None:
            self.intake.finish(how, problem)
        elif not self.exchange.end_ns:
            self.exchange.ended, self.exchange.problem = how, problem
            self.exchange.end_ns = monotonic_ns()
            self.hang_up()


class AiohttpTransport:
    """A `Transport` to one origin through a proxy."""

    name = "aiohttp"

    def __init__(self, access: Access, has_token: HasToken = any_byte) -> None:
        self.opened = 0
        self.peak_in_flight = 0
        self._access = access
        self._has_token = has_token
        self._busy: set[_Carried] = set()
        self._stopped = False
        self._held = Held()
        self._for_proxy = _login_header(access.proxy)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=access.tls or True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, connect=access.timeouts.connect_s),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
            trust_env=False,
            trace_configs=[self._trace()],
        )

    async def exchange(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        patience_s: float | None = None,
        on_sent: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """See `Transport.exchange`."""
        exchange = Exchange(started_ns=monotonic_ns())

        def intake_of(hang_up: Callable[[], None]) -> Intake:
            if on_sent is not None:
                on_sent(exchange)
            timeouts = self._access.timeouts
            return Intake(exchange, hang_up, timeouts, patience_s, self._has_token, self._held)

        carried = _Carried(exchange, intake_of)
        if self._stopped:
            carried.finish("interrupted", "the run was stopped")
            return exchange
        self._busy.add(carried)
        self.peak_in_flight = max(self.peak_in_flight, len(self._busy))
        carried.task = asyncio.create_task(self._carry(carried, path, headers, body))
        try:
            await asyncio.wait({carried.task})
        finally:
            carried.finish("interrupted", "the run was stopped")  # only if still open
            self._busy.discard(carried)
        if not carried.task.cancelled():
            carried.task.result()
        return exchange

    async def _carry(
        self, carried: _Carried, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        """Sends and reads; every failure that the network can make becomes an end."""
        try:
            await self._post(carried, path, headers, body)
        except aiohttp.ServerTimeoutError:
            limit_s = self._access.timeouts.connect_s
            told = f"no connection within {limit_s:g} s (--connect-timeout)"
            carried.finish("connect_timeout", told)
        except aiohttp.ClientHttpProxyError as why:
            carried.finish("connect_failed", f"the proxy answered HTTP {why.status}")
        except aiohttp.ClientConnectorError as why:  # the proxy's certificate, too
            cause = getattr(why, "certificate_error", None) or why.os_error
            via = "proxy: " if isinstance(why, aiohttp.ClientProxyConnectionError) else ""
            carried.finish("connect_failed", f"{via}{connect_problem(cause)}")
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError):
            carried.finish("eof", "the connection closed before the answer ended")
        except aiohttp.ClientResponseError as why:
            carried.finish("not_http", why.message)
        except OSError as why:  # aiohttp's ClientOSError is one
            carried.finish("reset" if carried.intake else "connect_failed", str(why))
        except aiohttp.ClientError as why:
            carried.finish("reset" if carried.intake else "connect_failed", str(why))

    async def _post(
        self, carried: _Carried, path: str, headers: Mapping[str, str], body: bytes
    ) -> None:
        proxy = self._access.proxy
        tunnel = self._access.origin.tls
        async with self._session.post(
            URL(f"{self._access.origin.url}{path}", encoded=True),
            data=body,
            headers={
                "Content-Type": "application/json",
                "Accept": "text/event-stream, application/json",
                **headers,
                **({} if tunnel else self._for_proxy),
            },
            proxy=None if proxy is None else proxy.url,
            proxy_headers=self._for_proxy if tunnel else None,
            allow_redirects=False,
            trace_request_ctx=carried,
        ) as response:
            intake, exchange = carried.intake, carried.exchange
            assert intake is not None
            if not intake.take_raw(0):
                return
            exchange.headers_ns, exchange.status = intake.stamp_ns, response.status
            exchange.headers = {name.lower(): value for name, value in response.headers.items()}
            while intake.open and (piece := await response.content.readany()):
                if intake.take_raw(len(piece)):
                    intake.on_body(piece)
            intake.finish("complete")

    def _trace(self) -> aiohttp.TraceConfig:
        """Tells each exchange when its connection was there and its request was written."""

        async def opened(_: Any, context: SimpleNamespace, __: Any) -> None:
            self.opened += 1
            context.trace_request_ctx.exchange.connected_ns = monotonic_ns()

        async def reused(_: Any, context: SimpleNamespace, __: Any) -> None:
            exchange = context.trace_request_ctx.exchange
            exchange.reused, exchange.connected_ns = True, exchange.started_ns

        async def sent(_: Any, context: SimpleNamespace, __: Any) -> None:
            context.trace_request_ctx.sent()

        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(opened)
        trace.on_connection_reuseconn.append(reused)
        trace.on_request_headers_sent.append(sent)
        return trace

    def interrupt(self) -> None:
        """See `Transport.interrupt`."""
        self._stopped = True
        for carried in list(self._busy):
            carried.finish("interrupted", "the run was stopped")

    async def aclose(self) -> None:
        """See `Transport.aclose`."""
        self.interrupt()
        closing = asyncio.ensure_future(self._session.close())
        await asyncio.wait({closing}, timeout=CLOSE_S)
        closing.cancel()
