"""An HTTP proxy that forwards whatever host is named to 127.0.0.1, and notes what it was asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class ProxyServer:
    port: int = 0
    refuse: bytes = b""
    """Sent in place of forwarding, if any."""
    heads: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()


async def _serve(
    proxy: ProxyServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    proxy.heads.append(head)
    if proxy.refuse:
        writer.write(proxy.refuse)
        await writer.drain()
        writer.close()
        return
    method, where, _ = head.split(" ", 2)
    tunnel = method == "CONNECT"
    parts = urlsplit(f"//{where}" if tunnel else where)
    to_reader, to_writer = await asyncio.open_connection("127.0.0.1", parts.port)
    if tunnel:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    else:
        to_writer.write(head.replace(where, parts.path, 1).encode("latin-1"))
    await asyncio.gather(_pump(reader, to_writer), _pump(to_reader, writer))


@asynccontextmanager
async def proxy_server(refuse: bytes = b"") -> AsyncIterator[ProxyServer]:
    proxy = ProxyServer(refuse=refuse)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await _serve(proxy, reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
