"""Runs a mock server for a test, and reads what it answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from numpy.typing import NDArray

from headroom_bench.roofline.pricer import Batch
from mock_server.app import serve
from mock_server.options import MockOptions

CAPTURES = Path(__file__).parents[1] / "captures"
LLAMACPP = "llamacpp/b11549/http"
VLLM = "vllm/0.32.0/http"


@dataclass(frozen=True)
class Flat:
    """Passes of one length, prompts at so much a token more."""

    pass_time_s: float = 0.002
    prompt_token_s: float = 0.0
    window: int | None = None

    def pass_s(self, batch: Batch) -> float:
        read = sum(chunk.tokens for chunk in batch.chunks)
        return self.pass_time_s + read * self.prompt_token_s

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, self.pass_s(batch))


@asynccontextmanager
async def running(
    pricer: Flat | None = None, journal: Path | None = None, **options: Any
) -> AsyncIterator[str]:
    """A mock server in this loop; gives its URL."""
    given = MockOptions(journal_file=journal or Path("/dev/null"), **options)
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(given, url.set_result, pricer or Flat()))
    await asyncio.wait((url, serving), return_when=asyncio.FIRST_COMPLETED)
    if serving.done():
        serving.result()
    try:
        yield url.result()
    finally:
        serving.cancel()
        await asyncio.wait((serving,))


def chat(text: str = "Write two short sentences about rivers.", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 8, **more}


def events(body: bytes) -> list[Any]:
    """The JSON of each event; `[DONE]` stays text."""
    return [_event(block) for block in body.split(b"\n\n") if block.startswith(b"data: ")]


def _event(block: bytes) -> Any:
    data = block.removeprefix(b"data: ")
    return "[DONE]" if data == b"[DONE]" else json.loads(data)


@dataclass(frozen=True)
class Recorded:
    """One recorded answer."""

    status: int
    headers: list[tuple[str, str]]
    writes: list[bytes]
    """The chunks of a streamed body, or the whole body."""

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)


def recorded(name: str, folder: str = LLAMACPP) -> Recorded:
    head, _, body = (CAPTURES / folder / f"{name}.resp").read_bytes().partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    chunked = any(key.lower() == "transfer-encoding" for key, _ in headers)
    writes = list(_chunks(body)) if chunked else [body]
    return Recorded(int(first.split()[1]), headers, writes)


def asked(name: str, folder: str = LLAMACPP) -> tuple[str, str, bytes]:
    """Method, path and body of a recorded request."""
    head, _, body = (CAPTURES / folder / f"{name}.req").read_bytes().partition(b"\r\n\r\n")
    method, path, _ = head.split(b"\r\n")[0].decode().split(" ")
    return method, path, body


async def replay(
    url: str, name: str, folder: str = LLAMACPP
) -> tuple[int, list[tuple[str, str]], list[bytes]]:
    """Sends a recorded request byte by byte the same; gives status, headers, chunks."""
    method, path, body = asked(name, folder)
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, data=body or None) as answer,
    ):
        chunks: list[bytes] = []
        part = b""
        async for data, whole in answer.content.iter_chunks():
            part += data
            if whole and part:  # the last chunk is empty
                chunks.append(part)
                part = b""
        headers = [(key.decode(), value.decode()) for key, value in answer.raw_headers]
        return answer.status, headers, [*chunks, part] if part else chunks


def _chunks(body: bytes) -> Iterator[bytes]:
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            return
        yield rest[:length]
        body = rest[length + 2 :]


def shape(value: Any) -> Any:
    """Keys in their order, and types instead of values."""
    if isinstance(value, dict):
        return [(key, shape(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__
