"""The measured path: one HTTP/1.1 exchange at a time over a connection, stamped as bytes arrive.

Nothing is parsed here beyond HTTP framing, which httptools does in C, and a search for the mark
that ends a stream. Everything else waits until the exchange has ended.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast
from urllib.parse import urlsplit

import httptools

from headroom_bench.errors import UserError
from headroom_bench.live.clock import monotonic_ns

Ended = Literal[
    "complete",  # the message ended as HTTP says
    "marker",  # the stream's own end mark came; the body may still be open
    "eof",  # the connection closed in the middle of the message
    "reset",
    "connect_failed",
    "connect_timeout",
    "timeout",  # silence for longer than allowed
    "not_http",
    "too_large",
    "abandoned",  # our person gave up
    "interrupted",  # the run was stopped
]

LARGEST_BODY_BYTES = 64 * 2**20
"""A longer answer is cut off by us: no token stream is that long, and memory is not endless."""

OPEN_BODY_GRACE_S = 0.25
"""How long a body may stay open after its stream said `[DONE]`, or an error, before we hang up."""
FINISHED_GRACE_S = 2.0
"""How long it may be silent after a finish reason: usage and `[DONE]` may follow, or nothing."""

_END_MARK = re.compile(rb"(?:^|[\r\n])(?:data: ?(?:\[DONE\]|\{ ?\"error\")|error: ?\{)")
_FINISH_MARKS = (b'"finish_reason":"', b'"finish_reason": "')
_MARK_REACH = max(map(len, (*_FINISH_MARKS, b'\ndata: { "error"')))


@dataclass(slots=True)
class Exchange:
    """What happened on the wire. Stamps are monotonic nanoseconds; 0 means that it never came."""

    started_ns: int = 0
    connected_ns: int = 0
    reused: bool = False
    sent_ns: int = 0
    headers_ns: int = 0
    first_byte_ns: int = 0
    end_ns: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[int, bytes]] = field(default_factory=list)
    """Body bytes with the stamp of their arrival."""
    ended: Ended = "eof"
    problem: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.chunks)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL points: the pool's key, and what requests need from it."""

    host: str
    port: int
    tls: bool
    base_path: str

    @classmethod
    def of(cls, url: str) -> Origin:
        """Raises `UserError` for anything but an http(s) URL with a host."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            raise UserError(f"URL {url!r} has no valid port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"{url!r} is not a URL; write http://HOST:PORT")
        tls = parts.scheme == "https"
        base = parts.path.rstrip("/").removesuffix("/v1")
        return cls(parts.hostname, port or (443 if tls else 80), tls, base)

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = 443 if self.tls else 80
        return host if self.port == default else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.base_path}"


class _Connection(asyncio.Protocol):
    """One kept-alive connection; serves one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.exchange: Exchange | None = None
        self.last_byte_ns = 0
        self.moved_ns = 0
        """Latest byte that was no keep-alive comment: a person sees those as silence."""
        self._finished = False
        self._ended: asyncio.Future[None] | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._tail = b""
        self._stamp_ns = 0
        self._bytes = 0

    @property
    def usable(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only

    def send(self, exchange: Exchange, head: bytes, body: bytes) -> None:
        """Starts an exchange; await `ended` next."""
        assert self.transport is not None
        self.exchange = exchange
        self._ended = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._tail, self._bytes, self._finished = b"", 0, False
        exchange.sent_ns = self.last_byte_ns = self.moved_ns = monotonic_ns()
        self.transport.write(head + body)

    async def ended(self) -> None:
        assert self._ended is not None
        await self._ended

    def finish(self, how: Ended, problem: str = "", at_ns: int = 0) -> None:
        """Ends the exchange, once; anything but a complete message closes the connection."""
        exchange, future = self.exchange, self._ended
        if exchange is None or future is None or future.done():
            return
        exchange.ended, exchange.problem = how, problem
        exchange.end_ns = exchange.end_ns or at_ns or monotonic_ns()
        self.exchange = None
        if how != "complete" and self.transport is not None:
            self.transport.abort()
        future.set_result(None)

    # asyncio calls these

    def data_received(self, data: bytes) -> None:
        self._stamp_ns = self.last_byte_ns = monotonic_ns()
        if self.exchange is None or self._parser is None:
            if self.transport is not None:  # bytes that nobody asked for: do not reuse
                self.transport.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as why:
            self.finish("not_http", str(why), self._stamp_ns)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        framed = "content-length" in exchange.headers or "transfer-encoding" in exchange.headers
        if exc is not None:
            self.finish("reset", str(exc))
        elif exchange.headers_ns and not framed:
            self.finish("complete", at_ns=self.last_byte_ns)  # HTTP/1.0: the close is the end
        else:
            self.finish("eof", "the connection closed before the answer ended")

    # httptools calls these

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.exchange is not None:
            self.exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.exchange is not None and self._parser is not None:
            self.exchange.headers_ns = self._stamp_ns
            self.exchange.status = self._parser.get_status_code()

    def on_body(self, piece: bytes) -> None:
        exchange = self.exchange
        if exchange is None:
            return
        if not exchange.first_byte_ns:
            exchange.first_byte_ns = self._stamp_ns
        if piece[:1] != b":":
            self.moved_ns = self._stamp_ns
        exchange.chunks.append((self._stamp_ns, piece))
        self._look_for_end(piece)
        self._bytes += len(piece)
        if self._bytes > LARGEST_BODY_BYTES:
            self.finish("too_large", f"more than {LARGEST_BODY_BYTES} bytes", self._stamp_ns)

    def on_message_complete(self) -> None:
        if self.exchange is None or self._parser is None:
            return
        keep = self._parser.should_keep_alive()
        self.finish("complete", at_ns=self._stamp_ns)
        if not keep and self.transport is not None:
            self.transport.close()

    def _look_for_end(self, piece: bytes) -> None:
        """Sees the stream's end mark, also when it is split over pieces.

        A server that says `[DONE]` normally ends the body at once, and the connection can be used
        again; one that leaves it open is not waited for.
        """
        exchange = self.exchange
        if exchange is None or exchange.end_ns:
            return
        window = self._tail + piece
        if (b"[DONE]" in window or b"error" in window) and _END_MARK.search(window):
            exchange.end_ns = self._stamp_ns
            self._later(OPEN_BODY_GRACE_S, self._close_open_body)
        elif not self._finished and any(mark in window for mark in _FINISH_MARKS):
            self._finished = True
            self._later(FINISHED_GRACE_S, self._close_if_silent)
        self._tail = window[-_MARK_REACH:]

    def _later(self, delay_s: float, action: Callable[[asyncio.Future[None] | None], None]) -> None:
        asyncio.get_running_loop().call_later(delay_s, action, self._ended)

    def _close_open_body(self, ended: asyncio.Future[None] | None) -> None:
        if ended is self._ended:
            self.finish("marker")

    def _close_if_silent(self, ended: asyncio.Future[None] | None) -> None:
        """The answer has finished; what follows it has come, or will not."""
        if ended is not self._ended:
            return
        silent_s = (monotonic_ns() - self.last_byte_ns) * 1e-9
        if silent_s >= FINISHED_GRACE_S:
            self.finish("marker", at_ns=self.last_byte_ns)
        else:
            self._later(FINISHED_GRACE_S - silent_s, self._close_if_silent)


class Wire:
    """A pool of kept-alive connections to one origin, and the exchanges over them."""

    def __init__(
        self,
        origin: Origin,
        *,
        ssl_context: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
        silence_timeout_s: float = 600.0,
    ) -> None:
        self.origin = origin
        self.connect_timeout_s = connect_timeout_s
        self.silence_timeout_s = silence_timeout_s
        self._ssl = ssl_context or (ssl.create_default_context() if origin.tls else None)
        self.opened = 0
        """Connections that were made."""
        self.peak_in_flight = 0
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    @property
    def in_flight(self) -> int:
        return len(self._busy)

    async def exchange(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        patience_s: float | None = None,
        on_sent: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """POSTs `body` and reads the answer to its end, whatever that end is. Never raises.

        `patience_s` is wall time: a silence longer than it ends the exchange as `abandoned`.
        `on_sent` is called when the request was handed to a connected socket.
        """
        exchange = Exchange(started_ns=monotonic_ns())
        connection = await self._connected(exchange)
        if connection is None:
            exchange.end_ns = monotonic_ns()
            return exchange
        self._busy.add(connection)
        self.peak_in_flight = max(self.peak_in_flight, len(self._busy))
        connection.send(exchange, self._head(path, headers, len(body)), body)
        if on_sent is not None:
            on_sent(exchange)
        watch = _SilenceWatch(connection, self.silence_timeout_s, patience_s)
        try:
            await connection.ended()
        finally:
            watch.cancel()
            connection.finish("interrupted", "the run was stopped")  # only if still open
            self._busy.discard(connection)
        if exchange.ended == "complete" and connection.usable:
            self._idle.append(connection)
        return exchange

    async def _connected(self, exchange: Exchange) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                exchange.reused = True
                exchange.connected_ns = exchange.started_ns
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.connect_timeout_s):
                _, connection = await loop.create_connection(
                    _Connection, self.origin.host, self.origin.port, ssl=self._ssl
                )
        except TimeoutError:
            exchange.ended = "connect_timeout"
            exchange.problem = f"no connection within {self.connect_timeout_s:g} s"
            return None
        except OSError as why:  # refused, unreachable, unknown host, TLS
            exchange.ended, exchange.problem = "connect_failed", str(why)
            return None
        exchange.connected_ns = monotonic_ns()
        self.opened += 1
        return connection

    def _head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        fixed = {
            "Host": self.origin.netloc,
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
            "Content-Length": str(length),
        }
        lines = [f"POST {self.origin.base_path}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**fixed, **headers}.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def interrupt(self) -> None:
        """Ends every exchange in flight now."""
        for connection in list(self._busy):
            connection.finish("interrupted", "the run was stopped")

    def close(self) -> None:
        """Ends what is in flight and closes every connection."""
        self.interrupt()
        for connection in self._idle:
            if connection.transport is not None:
                connection.transport.abort()
        self._idle.clear()


class _SilenceWatch:
    """Ends an exchange when nothing has arrived for too long."""

    def __init__(self, connection: _Connection, timeout_s: float, patience_s: float | None) -> None:
        self._connection = connection
        impatient = patience_s is not None and patience_s < timeout_s
        self._how: Ended = "abandoned" if impatient else "timeout"
        self._limit_s = patience_s if impatient and patience_s is not None else timeout_s
        self._timer = self._set(self._limit_s)

    def _set(self, delay_s: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(delay_s, self._check)

    def _check(self) -> None:
        connection = self._connection
        heard_ns = connection.moved_ns if self._how == "abandoned" else connection.last_byte_ns
        silent_s = (monotonic_ns() - heard_ns) * 1e-9
        left_s = self._limit_s - silent_s
        if left_s > 0:
            self._timer = self._set(left_s)
        else:
            self._connection.finish(self._how, f"nothing arrived for {self._limit_s:g} s")

    def cancel(self) -> None:
        self._timer.cancel()
