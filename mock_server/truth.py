"""The ground truth: what really happened to each request, by the box's own clock and ours.

Stamps ending in `_ns` are CLOCK_MONOTONIC nanoseconds, which every process on the machine shares
(`time.monotonic_ns`), so a client's stamps can be held against them.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

from headroom_bench.errors import UserError
from mock_server.jobs import Job

KEPT_REQUESTS = 1000
KEPT_TOKENS = 500_000
"""The ring forgets its oldest requests beyond either bound."""


class Truth:
    """The latest requests that are over, and a file of all of them. A file that breaks is given
    up: serving goes on."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises `UserError` where the file cannot be opened."""
        self._ring: deque[dict[str, Any]] = deque()
        self._tokens = 0
        self._file: IO[str] | None = None
        self.lost = 0
        """Requests that are in the ring no more."""
        if path is not None:
            try:
                self._file = path.open("a", encoding="utf-8")
            except OSError as why:
                raise UserError(f"cannot write {path}: {why.strerror or why}") from None

    def over(self, job: Job, dialect: str, ns_of: Callable[[float], int]) -> None:
        """`job` is over. `ns_of` turns box seconds into monotonic nanoseconds."""
        told = _told(job, dialect, ns_of)
        self._ring.append(told)
        self._tokens += job.generated
        while len(self._ring) > KEPT_REQUESTS or (
            self._tokens > KEPT_TOKENS and len(self._ring) > 1
        ):
            self._tokens -= self._ring.popleft()["completion_tokens"]
            self.lost += 1
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(told, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError:
            self._file = None

    def latest(self, ids: Iterable[str] = ()) -> list[dict[str, Any]]:
        """The ring, oldest first; with `ids`, only requests of that id or client's name."""
        wanted = set(ids)
        if not wanted:
            return list(self._ring)
        return [told for told in self._ring if wanted & {told["id"], told["request_id"]}]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _told(job: Job, dialect: str, ns_of: Callable[[float], int]) -> dict[str, Any]:
    seated = job.slot >= 0
    return {
        "id": job.id,
        "request_id": job.told_id,
        "dialect": dialect,
        "route": job.route,
        "faults": list(job.faults),
        "outcome": job.outcome,
        "prompt_tokens": job.prompt_tokens,
        "cut_tokens": job.cut_tokens,
        "cached_tokens": job.cached,
        "drafted_tokens": job.drafted,
        "accepted_tokens": job.accepted,
        "preemptions": job.preemptions,
        "completion_tokens": job.generated,
        "reasoning_tokens": min(job.generated, job.answer.thought_tokens),
        "slot": job.slot if seated else None,
        "task": job.task,
        "arrived_ns": job.arrived_ns,
        "admitted_ns": ns_of(job.admitted_at) if seated else None,
        "queue_s": job.queue_s if seated else None,
        "prefill_s": job.prompt_s if job.generated else None,
        "decode_s": job.decode_s if job.generated else None,
        "token_due_ns": list(job.due_ns),
        "token_sent_ns": list(job.sent_ns),
        "batch": list(job.batch),
    }
