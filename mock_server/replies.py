"""What becomes of an answer's tokens: a stream as they come, or one piece at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from mock_server.dialect import Voice
from mock_server.jobs import Job
from mock_server.service import KV_EXHAUSTED, Service
from mock_server.stream import Stream


class StreamReply:
    """Writes the events of one answer, of one choice or several, as they happen. Where the headers
    wait for the first token, what is said before they are out is kept until then."""

    def __init__(
        self,
        service: Service,
        voice: Voice,
        stream: Stream,
        jobs: Sequence[Job],
        kills_at: int | None,
    ) -> None:
        """`kills_at`: with so many tokens every request dies."""
        self.failure = ""
        self._service = service
        self._voice = voice
        self._stream = stream
        self._jobs = jobs
        self._left = len(jobs)
        self._kills_at = kills_at
        self._kept: list[tuple[bytes, int]] = []
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def played(self, ping_s: float | None) -> None:
        """Returns when the answer is over. A silence of `ping_s` wall seconds gets a comment."""
        stream = self._stream
        if stream.response is None:
            await self._begun
            if self.failure:
                return
            await stream.start()
            kept, self._kept = self._kept, []
            for data, tokens in kept:
                self._write(data, tokens)
        while not self._over.done():
            written = stream.writes
            if ping_s is None:
                await self._over
                return
            await asyncio.wait((self._over,), timeout=ping_s)
            if written == stream.writes and not self._over.done():
                self._write(b":\n\n", 0)

    def admitted(self, job: Job) -> None:
        if job.wants_progress:
            self._say(self._voice.progress(job, job.cached), 0)

    def read(self, job: Job, processed: int) -> None:
        if processed < job.prompt_tokens:
            self._say(self._voice.progress(job, processed), 0)

    def tokens(self, job: Job, new: int) -> None:
        if job.wants_progress and job.generated == new:
            self._say(self._voice.progress(job, job.prompt_tokens), 0)
        if self._kills_at is not None and job.generated > self._kills_at:
            self._service.fail_all(KV_EXHAUSTED)
            return
        before = len(self._stream.sent_ns)
        self._say(self._voice.tokens(job, new), new)
        if job.sent_ns is not self._stream.sent_ns:  # one choice among several
            job.sent_ns.extend(self._stream.sent_ns[before:])

    def finished(self, job: Job) -> None:
        for data in self._voice.ending(job):
            self._say(data, 0)
        self._left -= 1
        if not self._left:
            self._end()

    def failed(self, job: Job, message: str) -> None:
        if self._over.done():  # another choice has said it
            return
        self.failure = message
        self._hang_up(but=job)
        if self._stream.response is not None:
            self._say(self._voice.broken(message), 0)
        self._end()

    def _say(self, data: bytes, tokens: int) -> None:
        if not data:
            return
        if self._stream.response is not None and not self._kept:
            self._write(data, tokens)
            return
        self._kept.append((data, tokens))
        if not self._begun.done():
            self._begun.set_result(None)

    def _write(self, data: bytes, tokens: int) -> None:
        self._stream.write(data, tokens)
        if not self._stream.open:  # hung up, or too slow a reader
            self._hang_up()
            self._end()

    def _hang_up(self, but: Job | None = None) -> None:
        for job in self._jobs:
            if job is not but:
                self._service.hang_up(job)

    def _end(self) -> None:
        for future in (self._begun, self._over):
            if not future.done():
                future.set_result(None)


class WholeReply:
    """Waits for the end of an answer's choices; the future tells what went wrong, empty for
    nothing."""

    def __init__(self, choices: int = 1) -> None:
        self._left = choices
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def admitted(self, job: Job) -> None: ...

    def read(self, job: Job, processed: int) -> None: ...

    def tokens(self, job: Job, new: int) -> None: ...

    def finished(self, _: Job) -> None:
        self._left -= 1
        if not self._left:
            self._end("")

    def failed(self, _: Job, message: str) -> None:
        self._end(message)

    def _end(self, failure: str) -> None:
        if not self.answered.done():
            self.answered.set_result(failure)
