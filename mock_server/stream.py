"""The body of one streamed answer, written straight to its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiohttp import web

MAX_UNREAD_BYTES = 1 << 20
"""A client that leaves more than this unread is cut off, so that memory stays bounded."""


class Stream:
    """Writes whole pieces without waiting: every sequence of a pass is told of it at once, and a
    slow reader must not hold up the others."""

    def __init__(self, response: web.StreamResponse, transport: asyncio.Transport) -> None:
        self.response = response
        self._transport = transport
        self._chunked = response.chunked
        self.open = True
        self.writes = 0
        """How many pieces were written."""

    def write(self, data: bytes) -> None:
        """One piece, as one chunk. A lost connection swallows it."""
        if not self.open or self._transport.is_closing():
            self.open = False
            return
        self.writes += 1
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)
        if self._transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self.cut()

    def cut(self) -> None:
        """Break the connection."""
        self.open = False
        self._transport.abort()

    async def finish(self) -> None:
        """The body is complete."""
        if self.open:
            self.open = False
            await self.response.write_eof()


async def open_stream(request: web.Request, headers: Iterable[tuple[str, str]]) -> Stream | None:
    """Send the headers now. None where the client has gone already."""
    response = web.StreamResponse(headers=list(headers))
    if request.version >= (1, 1):
        response.enable_chunked_encoding()
    await response.prepare(request)
    transport = request.transport
    if transport is None or transport.is_closing():
        return None
    return Stream(response, transport)
