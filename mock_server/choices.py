"""Several choices of one answer (`n` above 1), each a request of its own in the box."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from mock_server.dialect import DONE, Voice, dumps, event
from mock_server.jobs import Job

_SUMMED = ("completion_tokens", "reasoning_tokens")


class Choir(Voice):
    """Tells each choice as a voice of its own would, under its index. What ends the whole stream
    comes once, after the last of them."""

    def __init__(self, voice: Voice, jobs: Sequence[Job], *, usage_each: bool) -> None:
        """`usage_each`: every choice tells its own usage (llama.cpp), else one tells of all."""
        self._jobs = list(jobs)
        self._voices = {job.id: copy.copy(voice) for job in jobs}
        self._usage_each = usage_each
        self._singing = {job.id for job in jobs}
        self._usage: dict[str, Any] | None = None
        self._done = False

    def opening(self, job: Job, /) -> bytes:
        return self._voices[job.id].opening(job)

    def progress(self, job: Job, processed: int, /) -> bytes:
        first = job is self._jobs[0]  # the others find its prompt in the cache
        return self._voices[job.id].progress(job, processed) if first else b""

    def tokens(self, job: Job, new: int, /) -> bytes:
        return self._told(job, self._voices[job.id].tokens(job, new))

    def ending(self, job: Job, /) -> list[bytes]:
        self._singing.discard(job.id)
        writes = [self._told(job, data) for data in self._voices[job.id].ending(job)]
        if not self._singing:
            writes.append(event(self._usage) if self._usage is not None else b"")
            writes.append(DONE if self._done else b"")
        return [data for data in writes if data]

    def broken(self, message: str, /) -> bytes:
        return self._voices[self._jobs[0].id].broken(message)

    def whole(self, _: Job, /) -> bytes:
        told = [json.loads(self._voices[job.id].whole(job)) for job in self._jobs]
        for index, one in enumerate(told):
            _numbered(one, index)
        if "choices" not in told[0]:  # llama.cpp's native route
            return dumps(told)
        first = told[0]
        for other in told[1:]:
            first["choices"] += other["choices"]
            if not self._usage_each:
                _add(first["usage"], other["usage"])
        return dumps(first)

    def _told(self, job: Job, data: bytes) -> bytes:
        """A voice's events under the choice's index, without those that end the stream."""
        index = self._jobs.index(job)
        kept = b""
        for block in data.split(b"\n\n"):
            said = block.removeprefix(b"data: ")
            if said == b"[DONE]":
                self._done = True
            elif said.startswith(b"{"):
                kept += self._one(json.loads(said), index)
        return kept

    def _one(self, told: dict[str, Any], index: int) -> bytes:
        if told.get("choices") != [] or self._usage_each:
            return event(_numbered(told, index))
        if self._usage is None:
            self._usage = told
        else:
            _add(self._usage["usage"], told["usage"])
        return b""


def _numbered(told: dict[str, Any], index: int) -> dict[str, Any]:
    for choice in told.get("choices", [told]):
        choice["index"] = index
    return told


def _add(usage: dict[str, Any], other: dict[str, Any]) -> None:
    """The prompt counts once, what was generated in every choice."""
    for key in _SUMMED:
        if isinstance(usage.get(key), int):
            usage[key] += other[key]
    usage["total_tokens"] = usage["prompt_tokens"] + usage["completion_tokens"]
    details = usage.get("completion_tokens_details")
    if details:
        _add_details(details, other["completion_tokens_details"])


def _add_details(details: dict[str, int], other: dict[str, int]) -> None:
    for key in details:
        details[key] += other[key]
