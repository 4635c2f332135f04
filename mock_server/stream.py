"""The body of one streamed answer, written straight to its connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from array import array
from collections.abc import Mapping

from aiohttp import web

MAX_UNREAD_BYTES = 1 << 20
"""A client that leaves more than this unread is cut off, so that memory stays bounded."""


class Stream:
    """Writes whole pieces without waiting: every sequence of a pass is told of it at once, and a
    slow reader must not hold up the others. Headers go with `start`, at the latest with the first
    piece."""

    def __init__(self, request: web.Request, headers: Mapping[str, str]) -> None:
        self._request = request
        self._headers = headers
        self._transport: asyncio.Transport | None = None
        self._socket: int | None = None
        self._chunked = False
        self.response: web.StreamResponse | None = None
        self.sent_ns = array("q")
        """When each token was handed to the socket, in monotonic nanoseconds."""
        self.open = True
        self.writes = 0
        """How many pieces were written."""

    async def start(self) -> None:
        """Send the headers."""
        if self.response is not None or not self.open:
            return
        response = web.StreamResponse(headers=self._headers)
        if self._request.version >= (1, 1):
            response.enable_chunked_encoding()
        self.response = response
        try:
            await response.prepare(self._request)
        except ConnectionError:  # the client hung up while it waited
            self.open = False
            return
        self._chunked = response.chunked
        self._transport = self._request.transport
        if self._transport is None or self._transport.is_closing():
            self.open = False
        elif self._transport.get_extra_info("ssl_object") is None:
            self._socket = self._transport.get_extra_info("socket").fileno()

    def write(self, data: bytes, tokens: int = 0) -> None:
        """One piece, as one chunk, which brings `tokens` tokens. A lost connection swallows it.

        `start` must be over.
        """
        transport = self._transport
        if not self.open or transport is None or transport.is_closing():
            self.open = False
            return
        self.writes += 1
        framed = b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data
        if tokens:
            now = time.monotonic_ns()  # before the kernel has them, or a client could be earlier
            for _ in range(tokens):
                self.sent_ns.append(now)
        rest = self._sent_now(framed, transport)
        if rest:
            transport.write(rest)
        if rest and transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.reset()

    def _sent_now(self, data: bytes, transport: asyncio.Transport) -> bytes:
        """Hands bytes to the kernel and returns those that it did not take.

        uvloop keeps what is written until it has come round: a batch's first token would wait for
        its last one, and stamps would say when bytes were kept, not when they were sent.
        """
        if self._socket is None or transport.get_write_buffer_size():
            return data
        try:
            return data[os.write(self._socket, data) :]
        except BlockingIOError:
            return data
        except OSError:  # the client is gone, as the transport will hear too
            self.open = False
            return b""

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        self.open = False
        if self._transport is not None:
            break_connection(self._transport)

    def drop(self) -> None:
        """Close the connection without an end of the body."""
        self.open = False
        if self._transport is not None:
            self._transport.close()

    def over(self) -> None:
        """Nothing more will be written, whatever was."""

    async def finish(self) -> None:
        """The body is complete."""
        if self.open and self.response is not None:
            self.open = False
            # Many clients hang up as soon as they have read the last event.
            with contextlib.suppress(ConnectionError):
                await self.response.write_eof()


def break_connection(transport: asyncio.Transport) -> None:
    """Close with a TCP reset instead of an orderly end."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        linger = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    transport.abort()
