"""A stream with faults: events are taken apart, changed and written by a task of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web

from mock_server.faults import Fault, Item, brings_token
from mock_server.stream import Stream

_MOST_WAITING = 20_000
"""Items held back for one slow or stalled stream, before it is cut off."""
_HANG_S = 600.0


class FaultyStream(Stream):
    """Takes the same writes as a `Stream`."""

    def __init__(
        self,
        request: web.Request,
        headers: Mapping[str, str],
        faults: Sequence[Fault],
        *,
        lines: bool,
    ) -> None:
        """`lines`: events are JSON lines, not server-sent events."""
        changed = dict(headers)
        for fault in faults:
            changed = fault.headers(changed)
        super().__init__(request, changed)
        self._faults = faults
        self._json_lines = lines
        self._waiting: asyncio.Queue[Item | None] = asyncio.Queue()
        self._sender: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._send())
            self._put(item for fault in self._faults for item in fault.opened())

    def write(self, data: bytes, tokens: int = 0) -> None:
        if not self.open:
            return
        items = self._taken_apart(data)
        bearing = [item for item in items if brings_token(item)] or items
        if 1 < tokens <= len(bearing):
            for item in bearing[-tokens:-1]:
                item.tokens = 1
            tokens = 1
        bearing[-1].tokens = tokens
        for fault in self._faults:
            items = [made for item in items for made in fault.event(item)]
        self._put(items)

    async def finish(self) -> None:
        for fault in self._faults:
            self._put(self._after(fault))
        last = [item for fault in self._faults for item in fault.closed()]
        for item in sorted(last, key=lambda item: bool(item.then)):
            self._waiting.put_nowait(item)
        self._waiting.put_nowait(None)
        if self._sender is not None:
            await self._sender
        await super().finish()

    def _after(self, fault: Fault) -> list[Item]:
        """What `fault` still held, having passed the faults that come after it."""
        items = fault.ended()
        for later in self._faults[self._faults.index(fault) + 1 :]:
            items = [made for item in items for made in later.event(item)]
        return items

    def over(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    def reset(self) -> None:
        super().reset()
        if self._sender is not None and self._sender is not asyncio.current_task():
            self._sender.cancel()

    def _put(self, items: Iterable[Item]) -> None:
        for item in items:
            for piece in self._pieces(item):
                self._waiting.put_nowait(piece)
        if self._waiting.qsize() > _MOST_WAITING:
            self.reset()

    async def _send(self) -> None:
        try:
            while self.open:
                item = await self._waiting.get()
                if item is None:
                    return
                await self._send_one(item)
        except asyncio.CancelledError:
            return

    async def _send_one(self, item: Item) -> None:
        if item.wait_s:
            await asyncio.sleep(item.wait_s)
        if item.raw and self.open:
            super().write(item.raw, item.tokens)
            await asyncio.sleep(0)
        if item.then == "reset":
            super().reset()
        elif item.then == "drop":
            self.drop()
        elif item.then == "end":
            await super().finish()
        elif item.then == "hang":
            await self._hang()

    async def _hang(self) -> None:
        """Say nothing more, until the client goes."""
        transport = self._transport
        for _ in range(int(_HANG_S * 20)):
            if transport is None or transport.is_closing():
                break
            await asyncio.sleep(0.05)
        self.open = False

    def _pieces(self, item: Item) -> list[Item]:
        if item.data is not None:
            item.raw = self._framed(item.data)
        pieces = [item]
        if item.raw:
            for fault in self._faults:
                pieces = [made for piece in pieces for made in fault.piece(piece)]
        return pieces

    def _framed(self, data: Any) -> bytes:
        text = data if isinstance(data, str) else _json(data)
        raw = text.encode("utf-8", "replace")
        if self._json_lines:
            return raw + b"\n"
        start = next((fault.start for fault in self._faults if fault.start), b"data: ")
        end = next((fault.end for fault in self._faults if fault.end), b"\n\n")
        return start + raw + end

    def _taken_apart(self, data: bytes) -> list[Item]:
        if self._json_lines:
            return [Item(json.loads(line)) for line in data.splitlines()]
        items: list[Item] = []
        for block in data.split(b"\n\n"):
            if not block:
                continue
            name, _, said = block.rpartition(b"data: ")
            if name or not said or not block.startswith(b"data: "):
                items.append(Item(raw=block + b"\n\n"))
            elif said == b"[DONE]":
                items.append(Item("[DONE]"))
            else:
                items.append(Item(json.loads(said)))
        return items or [Item(raw=data)]


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)
