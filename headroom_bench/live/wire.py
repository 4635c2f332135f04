"""The measured path: one HTTP/1.1 exchange at a time over a connection, stamped as bytes arrive.

Nothing is parsed here beyond HTTP framing, which httptools does in C. A request is never sent twice
on its own: where a kept-alive connection turns out to be closed before a byte was written, another
one is taken; after that, whatever happens is the answer.
"""

from __future__ import annotations

import asyncio
import re
import select
import ssl
from collections.abc import Callable, Mapping
from typing import cast

import httptools

from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.exchange import Exchange, Origin
from headroom_bench.live.intake import HasToken, Held, Intake, any_byte
from headroom_bench.live.timeouts import Timeouts

_KEEP_ALIVE = re.compile(r"timeout\s*=\s*(\d+)", re.IGNORECASE)
_KEEP_ALIVE_MARGIN_S = 1.0
"""So long before a server's stated end of an idle connection we leave it: a request may cross its
close on the way, and could not be told from one that was processed."""


def _chunk_heads(up_to: int) -> dict[int, tuple[bytes, int]]:
    """By the length of a read: the size line of the chunk that fills it (RFC 9112 §7.1), where one
    does, and that size. The last, empty chunk is not among them."""
    heads = {}
    for size in range(1, up_to):
        head = b"%x\r\n" % size
        heads[len(head) + size + len(b"\r\n")] = head, size
    return heads


_HEADS = _chunk_heads(2048)


class _HttpIntake(Intake):
    """An intake that httptools calls with what it makes of the bytes."""

    parser: httptools.HttpResponseParser | None = None
    """While it is open: the parser holds us by our methods, and both would be garbage that only the
    collector finds, with all that was read."""
    between_chunks = False
    """Whether the parser waits for the head of a chunk, with nothing of it read."""
    on_complete: Callable[[bool], None]
    """Called with whether the connection may be used again."""

    def on_message_begin(self) -> None:
        if not self.open:  # a second answer to one request: whose is it?
            self._hang_up()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.exchange.headers_ns:  # a trailer, or another answer's
            return
        self.exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self.parser is None:  # another answer's
            return
        status = self.parser.get_status_code()
        if status >= 200:
            self.exchange.headers_ns, self.exchange.status = self.stamp_ns, status

    def on_chunk_header(self) -> None:
        self.between_chunks = False

    def on_chunk_complete(self) -> None:
        self.between_chunks = True

    def on_message_complete(self) -> None:
        if not self.exchange.headers_ns:  # `100 Continue` and its kin: the answer is yet to come
            self.exchange.headers.clear()
        elif self.parser is not None:
            self.on_complete(self.parser.should_keep_alive())

    def _let_go(self) -> None:
        super()._let_go()
        self.parser = None


class _Connection(asyncio.Protocol):
    """One kept-alive connection; serves one exchange at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.intake: _HttpIntake | None = None
        self._expires_ns: int | None = None

    @property
    def open(self) -> bool:
        return self.transport is not None and not self.transport.is_closing()

    @property
    def usable(self) -> bool:
        """Whether a request may be sent: open as far as we know, nothing waiting to be read (a
        close, or bytes that nobody asked for), and not about to be closed by the server."""
        if self.transport is None or self.transport.is_closing():
            return False
        if self._expires_ns is not None and monotonic_ns() > self._expires_ns:
            return False
        return not _readable(self.transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is one by shape only

    def send(self, intake: _HttpIntake, data: bytes) -> bool:
        """Starts an exchange, await its end next. False: closed, and not a byte was written."""
        assert self.transport is not None
        if self.transport.is_closing():
            return False
        self.intake = intake
        intake.parser = httptools.HttpResponseParser(intake)
        intake.on_complete = self._complete
        self.transport.write(data)
        return True

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()

    # asyncio calls these

    def data_received(self, data: bytes) -> None:
        intake = self.intake
        if intake is None or not intake.open:
            self.abort()  # bytes that nobody asked for: do not reuse
            return
        # Nearly every read of a stream is one whole chunk; the parser need not see it.
        if intake.between_chunks and (chunk := _HEADS.get(len(data))):
            head, size = chunk
            piece = data.removeprefix(head).removesuffix(b"\r\n")
            if len(piece) == size:
                intake.take_piece(piece)
                return
        if not intake.take_raw(len(data)):
            return
        assert intake.parser is not None
        try:
            intake.parser.feed_data(data)
            if not data.endswith(b"\r\n"):  # part of the next chunk's head may be read
                intake.between_chunks = False
        except httptools.HttpParserError as why:
            intake.finish("not_http", str(why), intake.stamp_ns)
            self.abort()  # also where the answer was whole before the nonsense
        except httptools.HttpParserUpgrade:
            intake.finish("not_http", "switched to a protocol that nobody asked for")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        intake = self.intake
        if intake is None or not intake.open:
            return
        exchange = intake.exchange
        framed = "content-length" in exchange.headers or "transfer-encoding" in exchange.headers
        silent = intake.stamp_ns == exchange.sent_ns  # not a byte of this answer has come
        closed_idle = exchange.reused and silent
        kept = " (a kept-alive connection that the server closed)" if closed_idle else ""
        if exc is not None:
            intake.finish("reset", f"{exc}{kept}")
        elif exchange.headers_ns and not framed:  # HTTP/1.0: the close is the end
            intake.finish("complete", at_ns=intake.stamp_ns)
        else:
            intake.finish("eof", f"the connection closed before the answer ended{kept}")

    def _complete(self, keep: bool) -> None:
        intake = self.intake
        assert intake is not None
        self._note_keep_alive(intake.exchange.headers.get("keep-alive", ""))
        intake.finish("complete", at_ns=intake.stamp_ns)
        if not keep:
            self.close()

    def _note_keep_alive(self, told: str) -> None:
        match = _KEEP_ALIVE.search(told)
        if match is not None:
            idle_s = max(0.0, int(match[1]) - _KEEP_ALIVE_MARGIN_S)
            self._expires_ns = monotonic_ns() + round(idle_s * 1e9)


def connect_problem(why: OSError) -> str:
    """Why there is no connection, and what helps where a certificate is in the way."""
    if isinstance(why, ssl.SSLCertVerificationError):
        return f"{why.verify_message} (--ca-file FILE, or --insecure)"
    return str(why) or type(why).__name__


def _readable(transport: asyncio.Transport) -> bool:
    """Whether the kernel holds something for us that the event loop has not come to yet."""
    sock = transport.get_extra_info("socket")
    if sock is None or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Wire:
    """A pool of kept-alive connections to one origin, and the exchanges over them (`Transport`)."""

    name = "httptools"

    def __init__(
        self,
        origin: Origin,
        *,
        ssl_context: ssl.SSLContext | None = None,
        timeouts: Timeouts | None = None,
        has_token: HasToken = any_byte,
    ) -> None:
        self.origin = origin
        self.timeouts = timeouts or Timeouts()
        self.opened = 0
        self.peak_in_flight = 0
        self._ssl = ssl_context or (ssl.create_default_context() if origin.tls else None)
        self._has_token = has_token
        self._idle: list[_Connection] = []
        self._busy: set[_HttpIntake] = set()
        self._connecting: set[asyncio.Future[_Connection]] = set()
        self._stopped = False
        self._held = Held()

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
        """See `Transport.exchange`."""
        exchange = Exchange(started_ns=monotonic_ns())
        data = self._head(path, headers, len(body)) + body
        while (connection := await self._connected(exchange)) is not None:
            exchange.sent_ns = monotonic_ns()
            intake = _HttpIntake(
                exchange,
                connection.abort,
                self.timeouts,
                patience_s,
                self._has_token,
                self._held,
            )
            if connection.send(intake, data):
                break
            intake.discard()
        else:
            exchange.sent_ns, exchange.end_ns = 0, monotonic_ns()
            return exchange
        self._busy.add(intake)
        self.peak_in_flight = max(self.peak_in_flight, len(self._busy))
        if on_sent is not None:
            on_sent(exchange)
        try:
            await intake.ended()
        finally:
            intake.finish("interrupted", "the run was stopped")  # only if still open
            self._busy.discard(intake)
            connection.intake = None
        if exchange.ended == "complete" and connection.open:
            self._idle.append(connection)
        return exchange

    async def _connected(self, exchange: Exchange) -> _Connection | None:
        while self._idle and not self._stopped:
            connection = self._idle.pop()
            if connection.usable:
                exchange.reused = True
                exchange.connected_ns = exchange.started_ns
                return connection
            connection.abort()
        exchange.reused = False
        connecting = asyncio.ensure_future(self._connect())
        self._connecting.add(connecting)
        try:
            if self._stopped:
                connecting.cancel()
            connection = await connecting
        except asyncio.CancelledError:
            connecting.cancel()
            task = asyncio.current_task()
            if not self._stopped or (task is not None and task.cancelling()):
                raise
            exchange.ended, exchange.problem = "interrupted", "the run was stopped"
            return None
        except TimeoutError:
            exchange.ended = "connect_timeout"
            limit_s = self.timeouts.connect_s
            exchange.problem = f"no connection within {limit_s:g} s (--connect-timeout)"
            return None
        except OSError as why:  # refused, unreachable, unknown host, TLS
            exchange.ended, exchange.problem = "connect_failed", connect_problem(why)
            return None
        finally:
            self._connecting.discard(connecting)
        exchange.connected_ns = monotonic_ns()
        self.opened += 1
        return connection

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self.timeouts.connect_s):
            _, connection = await loop.create_connection(
                _Connection, self.origin.host, self.origin.port, ssl=self._ssl
            )
        return connection

    def _head(self, path: str, headers: Mapping[str, str], length: int) -> bytes:
        fixed = {
            "Host": self.origin.netloc,
            "Content-Type": "application/json",
            "Accept": "text/event-stream, application/json",
        }
        own = {name.lower() for name in headers}
        lines = [f"POST {self.origin.base_path}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in fixed.items() if name.lower() not in own]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines.append(f"Content-Length: {length}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def interrupt(self) -> None:
        """See `Transport.interrupt`."""
        self._stopped = True
        for connecting in list(self._connecting):
            connecting.cancel()
        for intake in list(self._busy):
            intake.finish("interrupted", "the run was stopped")

    def close(self) -> None:
        """Ends what is in flight and closes every connection."""
        self.interrupt()
        for connection in self._idle:
            connection.abort()
        self._idle.clear()

    async def aclose(self) -> None:
        """See `Transport.aclose`."""
        self.close()
