"""vLLM's log: an access line an exchange, and the engine's averages every ten seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from http import HTTPStatus

from headroom_bench.box import BoxDesign
from mock_server.designs import room_of
from mock_server.jobs import Job
from mock_server.logs import Lines, Log, Peer

EVERY_S = 10.0


class VllmLog(Log):
    """The log of one server."""

    every_s = EVERY_S

    def __init__(self, lines: Lines, clock: Callable[[], float], design: BoxDesign) -> None:
        super().__init__(lines, clock)
        self._room = room_of(design)
        self._most = design.speculation.tokens if design.speculation else 0
        self._accepted: list[int] = []
        self._drafted = 0
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
        if self._accepted:
            self._tell_drafts(self._accepted)
            self._accepted, self._drafted = [], 0

    def done(self, job: Job, _: int) -> None:
        if job.drafted:
            self._accepted += job.accepted_by_pass()
            self._drafted += job.drafted

    def _tell_drafts(self, accepted: list[int]) -> None:
        """`accepted`: how many of its drafted tokens each pass took. Told when a request is over;
        the server tells them as passes end."""
        drafts, taken = len(accepted), sum(accepted)
        shares = (sum(many > place for many in accepted) / drafts for place in range(self._most))
        told = f"SpecDecoding metrics: Mean acceptance length: {1 + taken / drafts:.2f}, "
        told += f"Accepted throughput: {taken / EVERY_S:.2f} tokens/s, "
        told += f"Drafted throughput: {self._drafted / EVERY_S:.2f} tokens/s, "
        told += f"Accepted: {taken} tokens, Drafted: {self._drafted} tokens, "
        told += f"Per-position acceptance rate: {', '.join(f'{share:.3f}' for share in shares)}, "
        told += f"Avg Draft acceptance rate: {100 * taken / self._drafted:.1f}%"
        self._engine("INFO", "metrics.py:120", told)

    def answered(self, peer: Peer, method: str, path: str, status: int, _: float) -> None:
        client, phrase = f"{peer[0]}:{peer[1]}", HTTPStatus(status).phrase
        self.write(f'INFO:     {client} - "{method} {path} HTTP/1.1" {status} {phrase}')

    def _engine(self, level: str, where: str, text: str) -> None:
        when = time.strftime("%m-%d %H:%M:%S")
        self.write(f"(APIServer pid={os.getpid()}) {level} {when} [{where}] {text}")
