"""SGLang's log: lines of batches, none of single requests."""

from __future__ import annotations

import time
from collections.abc import Callable

from headroom_bench.box import BoxDesign
from mock_server.designs import room_of
from mock_server.jobs import Job
from mock_server.logs import Lines, Log

_LOG_PASSES = 40
"""Decode passes from one log line to the next."""


class SglangLog(Log):
    """The log of one server."""

    def __init__(self, lines: Lines, clock: Callable[[], float], design: BoxDesign) -> None:
        super().__init__(lines, clock)
        self._room = room_of(design)
        self._drafts = design.speculation
        self._passes = 0
        self._made = 0
        self._steps = 0
        self._since = 0.0
        self._read_since = 0.0
        self._waiting = 0
        self._tokens_held: dict[str, int] = {}

    def ready(self, url: str) -> None:
        self._say("The server is fired up and ready to roll!")
        self._say(f"Uvicorn running on {url}")

    def queued(self, waiting: int) -> None:
        self._waiting = waiting

    def seated(self, job: Job) -> None:
        now, read = self._clock(), job.prompt_tokens - job.cached
        rate = read / (now - self._read_since) if now > self._read_since else 0.0
        self._read_since = now
        told = f"Prefill batch, #new-seq: 1, #new-token: {read}, "
        told += f"#cached-token: {job.cached}, token usage: {self._share():.2f}, "
        told += f"#running-req: {len(self._tokens_held)}, #queue-req: {self._waiting}, "
        told += "#pending-token: 0, cuda graph: False, "
        self._say(f"{told}input throughput (token/s): {rate:.2f}")
        self._tokens_held[job.id] = job.prompt_tokens

    def released(self, job: Job) -> None:
        self._tokens_held.pop(job.id, None)

    def passed(self, decoding: int, tokens: int) -> None:
        self._passes += 1
        self._made += tokens
        self._steps += decoding
        if self._passes % _LOG_PASSES:
            return
        now = self._clock()
        rate = self._made / (now - self._since) if now > self._since else 0.0
        told = f"Decode batch, #running-req: {decoding}, #token: {self._held()}, "
        told += f"token usage: {self._share():.2f}, "
        if self._drafts is not None:
            length = self._made / self._steps
            share = (length - 1) / self._drafts.tokens
            told += f"accept len: {length:.2f}, accept rate: {share:.2f}, "
        told += f"cuda graph: True, gen throughput (token/s): {rate:.2f}, "
        self._say(f"{told}#queue-req: {self._waiting}, ")
        self._made, self._steps, self._since = 0, 0, now

    def _held(self) -> int:
        return sum(self._tokens_held.values())

    def _share(self) -> float:
        return self._held() / self._room

    def _say(self, text: str) -> None:
        self.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}")
