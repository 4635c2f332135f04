"""The server behind every dialect: requests into the box, its events to replies and journal."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

from headroom_bench.box import Box, BoxRequest, Event, Served
from headroom_bench.roofline.pricer import Pricer
from headroom_bench.segments import Segment
from mock_server.answers import Answer
from mock_server.journal import Journal
from mock_server.prompts import content_id
from mock_server.timings import Timings, timings
from mock_server.wall import Wall

SAMPLE_S = 3.0
"""In-flight lines of the journal come at most this often."""
SAMPLE_TOKENS = 100
"""An answer has no in-flight line before so many tokens."""
_WATCH_S = 1.0


class Reply(Protocol):
    """Where a request's outcome goes. Called at the end of the pass that brought it."""

    def admitted(self, job: Job, /) -> None: ...

    def token(self, job: Job, /) -> None:
        """The answer's token number `job.generated` is there."""
        ...

    def finished(self, job: Job, /) -> None: ...

    def rejected(self, job: Job, /) -> None: ...


@dataclass(slots=True, eq=False)
class Job:
    """One request on its way. Times are box seconds."""

    id: str
    segments: tuple[Segment, ...]
    prompt_tokens: int
    answer: Answer
    wanted_tokens: int
    """What was asked for; the context may hold less."""
    reply: Reply
    settings: dict[str, object] = field(default_factory=dict)
    """How it was asked for, as `/slots` tells it."""
    task: int = -1
    slot: int = -1
    admitted_at: float = 0.0
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    cached: int = 0
    generated: int = 0
    sampled_at: float = 0.0
    sampled_tokens: int = 0
    truncated: bool = False
    gone: bool = False
    """The asker hung up."""

    def timings(self) -> Timings:
        """As far as it got."""
        begun = self.generated > 0
        return timings(
            cached=self.cached,
            read=self.prompt_tokens - self.cached if begun else 0,
            prompt_s=self.first_token_at - self.admitted_at if begun else 0.0,
            generated=self.generated,
            decode_s=self.last_token_at - self.first_token_at,
        )


@dataclass(slots=True)
class Totals:
    """What `/metrics` counts, over finished requests."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_s: float = 0.0
    generated_tokens: int = 0
    generation_s: float = 0.0
    longest_tokens: int = 0


@dataclass(slots=True)
class _Seat:
    """What the journal tells of a slot's past."""

    held_tokens: int = 0
    last_used_us: int = -1


class Service:
    """One server. To be made inside a running event loop. Raises ValueError for sizes below 1."""

    def __init__(
        self, pricer: Pricer, slots: int, ctx_per_slot: int, time_scale: float, journal: Journal
    ) -> None:
        self.box = Box(pricer, slots, ctx_per_slot, leap=False)
        self.wall = Wall(self.box, time_scale, self._on_events, self._on_cancelled)
        self.ctx_per_slot = ctx_per_slot
        self.totals = Totals()
        self.jobs: dict[str, Job] = {}
        self.unix_s = b"%d" % int(time.time())
        """Wall-clock seconds of the latest pass, as they stand in events."""
        self._journal = journal
        self._time_scale = time_scale
        self._posted = 0
        self._graphs_reused = 0
        self._seats = [_Seat() for _ in range(slots)]
        self._watch: asyncio.TimerHandle | None = None

    def submit(self, job: Job) -> None:
        """Ask. The reply hears of it from now on."""
        self.wall.catch_up()
        job.task = self._next_task()
        self.jobs[job.id] = job
        answer_id = content_id("assistant", job.answer.text)
        self.wall.submit(BoxRequest(job.id, job.segments, job.wanted_tokens, answer_id))

    def hang_up(self, job: Job) -> None:
        """The asker is gone. A job that is over is left alone."""
        if job.gone or job.id not in self.jobs:
            return
        job.gone = True
        self._journal.cancelled(job.task)
        self.wall.cancel(job.id)

    def refuse(self, message: str) -> None:
        """Journal a request that never reached the box."""
        self._journal.refused(self._next_task(), message)

    def stop(self) -> None:
        self.wall.stop()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    # --- events -------------------------------------------------------------------------------

    def _on_events(self, events: list[Event]) -> None:
        self.unix_s = b"%d" % int(time.time())
        self._journal.hold()
        try:
            self._tell(events)
        finally:
            self._journal.let_go()

    def _tell(self, events: list[Event]) -> None:
        seats: dict[str, int] | None = None
        only_tokens = True
        for event in events:
            job = self.jobs[event.id]
            if event.kind == "tokens":
                self._token(job, event.at)
                continue
            only_tokens = False
            if event.kind == "admitted":
                job.admitted_at = event.at
            elif event.kind == "cached":
                job.cached = event.n
                seats = self._seats_taken() if seats is None else seats
                self._seat(job, seats)
            elif event.kind == "first_token":
                job.first_token_at = job.sampled_at = event.at
                self._token(job, event.at)
            elif event.kind == "finished":
                self._finish(job, event.reason == "length")
            elif event.kind == "rejected":
                self._reject(job)
        if only_tokens:  # the batch was the same, so its compute graph was used again
            self._graphs_reused += 1

    def _token(self, job: Job, at: float) -> None:
        job.generated += 1
        job.last_token_at = at
        if not job.gone:
            job.reply.token(job)
        if job.generated >= SAMPLE_TOKENS and at - job.sampled_at >= SAMPLE_S:
            rate = (job.generated - 1) / (at - job.first_token_at)
            recent = (job.generated - job.sampled_tokens) / (at - job.sampled_at)
            self._journal.generating(job.slot, job.task, job.generated, rate, recent)
            job.sampled_at, job.sampled_tokens = at, job.generated

    def _seat(self, job: Job, seats: dict[str, int]) -> None:
        """`job` was given a slot."""
        slot = seats.get(job.id)
        if slot is None:  # over in the same breath
            slot = self.box.served(job.id).slot
            assert slot is not None
        job.slot = slot
        seat = self._seats[job.slot]
        whole = job.cached == job.prompt_tokens - 1 and job.cached > 0
        shared = job.cached + whole
        if shared > 0.1 * job.prompt_tokens:
            kept = min(1.0, shared / max(1, seat.held_tokens))
            self._journal.selected_by_prefix(job.slot, shared / job.prompt_tokens, kept)
        else:
            self._journal.selected_by_age(job.slot, seat.last_used_us)
        self._journal.launched(job.slot, job.task)
        if whole:
            self._journal.whole_prompt_cached(job.slot, job.task, job.prompt_tokens)
        if not job.gone:
            job.reply.admitted(job)
        if self._watch is None:
            self._watch_later()

    def _seats_taken(self) -> dict[str, int]:
        views = self.box.snapshot().slots
        return {view.request_id: view.index for view in views if view.request_id is not None}

    def _finish(self, job: Job, truncated: bool) -> None:
        job.truncated = truncated
        told = job.timings()
        self._journal.timed(job.slot, job.task, told, self._graphs_reused)
        self._release(job, job.prompt_tokens + job.generated - 1)
        totals = self.totals
        totals.prompt_tokens += told.prompt_n
        totals.cached_tokens += told.cache_n
        totals.prompt_s += told.prompt_ms / 1e3
        totals.generated_tokens += told.predicted_n
        totals.generation_s += told.predicted_ms / 1e3
        totals.longest_tokens = max(totals.longest_tokens, job.prompt_tokens + job.generated - 1)
        if not job.gone:
            job.reply.finished(job)

    def _reject(self, job: Job) -> None:
        self._journal.refused(job.task, too_long(job.prompt_tokens, self.ctx_per_slot))
        self._drop(job)
        if not job.gone:
            job.reply.rejected(job)

    def _on_cancelled(self, served: Served) -> None:
        job = self.jobs[served.id]
        if served.slot is None:
            self._drop(job)
            return
        held = job.prompt_tokens + max(0, job.generated - 1)
        self._release(job, held)

    def _release(self, job: Job, held_tokens: int) -> None:
        self._journal.released(job.slot, job.task, held_tokens, job.truncated)
        seat = self._seats[job.slot]
        seat.held_tokens = held_tokens
        seat.last_used_us = int(self.wall.life_s() * 1e6)
        self._drop(job)

    def _drop(self, job: Job) -> None:
        del self.jobs[job.id]
        self.box.forget(job.id)

    # --- the rest -----------------------------------------------------------------------------

    def _next_task(self) -> int:
        """Task numbers count passes too: the real server posts itself a task for each."""
        self._posted += 1
        return self._posted - 1 + self.box.usage.passes

    def _watch_prompts(self) -> None:
        """While prompts are read, journal the progress of long ones: passes without an event tell
        nothing by themselves."""
        self.wall.catch_up()
        views = self.box.snapshot().slots
        reading = [view for view in views if view.state == "prefill"]
        now = self.wall.box_s()
        for view in reading:
            job = self.jobs[view.request_id or ""]
            begun = max(job.admitted_at, job.sampled_at)
            if view.processed_tokens and now - begun >= SAMPLE_S:
                job.sampled_at = now
                held = view.held_tokens
                spent, read = now - job.admitted_at, view.processed_tokens
                progress = held / job.prompt_tokens
                self._journal.reading(job.slot, job.task, held, progress, spent, read)
        self._watch = None
        if reading:
            self._watch_later()

    def _watch_later(self) -> None:
        wait = _WATCH_S / self._time_scale
        self._watch = asyncio.get_running_loop().call_later(wait, self._watch_prompts)


def too_long(prompt_tokens: int, ctx_per_slot: int) -> str:
    """The server's message for a prompt that no slot can hold."""
    return (
        f"request ({prompt_tokens} tokens) exceeds the available context size "
        f"({ctx_per_slot} tokens), try increasing it"
    )
