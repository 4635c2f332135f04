"""vLLM's log: an access line an exchange, and the engine's averages every ten seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mock_server.jobs import Job
from mock_server.logs import Lines, Log

EVERY_S = 10.0


class VllmLog(Log):
    """The log of one server."""

    every_s = EVERY_S

    def __init__(self, lines: Lines, clock: Callable[[], float], room_tokens: int) -> None:
        super().__init__(lines, clock)
        self._room = room_tokens
        self._read = 0
        self._made = 0
        self._asked_ever = 0
        self._cached_ever = 0
        self._tokens_held: dict[str, int] = {}
        self._idle = False

    def starting(self) -> None:
        self._engine("INFO", "api_utils.py:286", "non-default args: mock")

    def ready(self, url: str) -> None:
        self._engine("INFO", "api_server.py:560", f"Starting vLLM server on {url}")
        self.write("INFO:     Application startup complete.")

    def stopping(self) -> None:
        self.write("INFO:     Application shutdown complete.")

    def note(self, text: str) -> None:
        self._engine("WARNING", "mock", text)

    def seated(self, job: Job) -> None:
        self._read += job.prompt_tokens - job.cached
        self._asked_ever += job.prompt_tokens
        self._cached_ever += job.cached
        self._tokens_held[job.id] = job.prompt_tokens

    def passed(self, _: int, tokens: int) -> None:
        self._made += tokens

    def released(self, job: Job) -> None:
        self._tokens_held.pop(job.id, None)

    def tick(self, running: int, waiting: int) -> None:
        idle = not (running or waiting or self._made)
        if idle and self._idle:
            return
        self._idle = idle
        hits = 100 * self._cached_ever / self._asked_ever if self._asked_ever else 0.0
        told = f"Engine 000: Avg prompt throughput: {self._read / EVERY_S:.1f} tokens/s, "
        told += f"Avg generation throughput: {self._made / EVERY_S:.1f} tokens/s, "
        told += f"Running: {running} reqs, Waiting: {waiting} reqs, "
        told += f"GPU KV cache usage: {100 * sum(self._tokens_held.values()) / self._room:.1f}%, "
        self._engine("INFO", "loggers.py:335", f"{told}Prefix cache hit rate: {hits:.1f}%")
        self._read = self._made = 0

    def answered(self, client: str, method: str, path: str, status: int, _: float) -> None:
        phrase = {200: "OK", 400: "Bad Request", 404: "Not Found"}.get(status, "")
        self.write(f'INFO:     {client}:0 - "{method} {path} HTTP/1.1" {status} {phrase}'.rstrip())

    def _engine(self, level: str, where: str, text: str) -> None:
        when = time.strftime("%m-%d %H:%M:%S")
        self.write(f"(APIServer pid={os.getpid()}) {level} {when} [{where}] {text}")
