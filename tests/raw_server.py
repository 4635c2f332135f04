"""A server that sends exactly the bytes it is told, when it is told."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

CLOSE = "close"
DROP = "drop"
"""Close without the goodbye that TLS has."""
RESET = "reset"
HANG = "hang"
"""Leave the connection open and say nothing more, until the client goes."""

Step = bytes | float | str
"""Bytes to send, seconds to wait, or one of the words above."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(obj: Any, *, start: bytes = b"data: ", end: bytes = b"\n\n") -> bytes:
    return start + json.dumps(obj, ensure_ascii=False).encode() + end


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def finish(reason: str = "length") -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def usage(prompt: int, completion: int, **more: Any) -> dict[str, Any]:
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    return {"choices": [], "usage": {**counts, **more}}


DONE = b"data: [DONE]\n\n"


@dataclass
class RawServer:
    """Serves `script` to every request; `requests` holds what came."""

    script: Sequence[Step]
    host: str = "127.0.0.1"
    scheme: str = "http"
    port: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    documents: dict[str, bytes] = field(default_factory=dict)
    """JSON that is served in place of the script, by path."""

    def steps(self, request: bytes) -> Sequence[Step]:
        document = self.documents.get(request.split(b" ", 2)[1].decode())
        if document is None:
            return self.script
        head = (
            f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(document)}"
        )
        return [head.encode() + b"\r\n\r\n" + document]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    return head + await reader.readexactly(length)


async def _play(
    server: RawServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    server.connections += 1
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            server.requests.append(await _read_request(reader))
            for step in server.steps(server.requests[-1]):
                if isinstance(step, bytes):
                    writer.write(step)
                    await writer.drain()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                elif step == HANG:
                    await reader.read()
                    return
                elif step == DROP:
                    writer.transport.abort()
                    return
                elif step == RESET:
                    linger = struct.pack("ii", 1, 0)
                    sock = writer.get_extra_info("socket")
                    sock.setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER: close with a RST
                    return
                else:
                    return


@asynccontextmanager
async def raw_server(
    *script: Step,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    kind: type[RawServer] = RawServer,
) -> AsyncIterator[RawServer]:
    server = kind(script, host, "https" if tls else "http")

    writers: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            await _play(server, reader, writer)
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, host, port, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # aborted connections are closed in the loop's next turn
