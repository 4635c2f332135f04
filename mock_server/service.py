"""The server behind every dialect: requests into the box, its events to replies and journal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headroom_bench.box import (
    POOL_EXHAUSTED,
    TOO_LONG,
    Box,
    BoxDesign,
    BoxRequest,
    Event,
    Served,
)
from headroom_bench.roofline.pricer import Pricer
from mock_server.designs import room_of
from mock_server.jobs import Job, Outcome
from mock_server.logs import Log
from mock_server.truth import Truth
from mock_server.wall import Wall

SAMPLE_S = 3.0
"""In-flight lines of the journal come at most this often."""
SAMPLE_TOKENS = 100
"""An answer has no in-flight line before so many tokens."""
KV_EXHAUSTED = "Context size has been exceeded."
"""llama.cpp's message when a memory that all slots share is full."""
_WATCH_S = 1.0
"""Life seconds between two looks at prompts that are being read."""
_PROGRESS_WALL_S = 0.02
"""Wall seconds between two looks where somebody wants to hear of each batch of a prompt."""


@dataclass(slots=True)
class Totals:
    """What `/metrics` counts, over finished requests."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    prompt_s: float = 0.0
    generated_tokens: int = 0
    generation_s: float = 0.0
    longest_tokens: int = 0
    accepted: int = 0


@dataclass(slots=True)
class Seat:
    """What a slot's past left in it."""

    held_tokens: int = 0
    last_used_us: int = -1
    task: int = -1
    """The last one that it ran."""
    settings: dict[str, object] = field(default_factory=dict)


class Service:
    """One server. To be made inside a running event loop."""

    def __init__(
        self,
        pricer: Pricer,
        design: BoxDesign,
        time_scale: float,
        log: Log,
        truth: Truth,
        dialect: str,
    ) -> None:
        self.box = Box.of(pricer, design, leap=False)
        self.wall = Wall(self.box, time_scale, self._on_events, self._on_cancelled)
        self.slots = design.parallel
        self.ctx_per_slot = design.ctx
        self.room_tokens = room_of(design)
        """What all sequences can hold together."""
        self.totals = Totals()
        self.jobs: dict[str, Job] = {}
        self.unix_s = b"%d" % int(time.time())
        """Wall-clock seconds of the latest pass, as they stand in events."""
        self.truth = truth
        self.on_over: list[Callable[[Job], None]] = []
        """Called with each request that the box is done with."""
        self.log = log
        self._dialect = dialect
        self._time_scale = time_scale
        self._posted = 0
        self._graphs_reused = 0
        self.seats = [Seat() for _ in range(design.parallel)]
        self._watch: asyncio.TimerHandle | None = None
        self._ticking: asyncio.TimerHandle | None = None
        if log.every_s is not None:
            self._tick_later(log.every_s)

    def submit(self, job: Job) -> None:
        """Ask. The reply hears of it from now on."""
        self.wall.catch_up()
        job.arrived_ns = time.monotonic_ns()
        job.arrived_at = self.wall.box_s()
        job.task = self._next_task()
        self.jobs[job.id] = job
        self.wall.submit(
            BoxRequest(
                job.id,
                job.segments,
                job.wanted_tokens,
                job.answer_id,
                kind="prose" if job.answer.call is None else "tool_call",
                greedy=job.greedy,
                alone=job.alone,
            )
        )

    def hang_up(self, job: Job) -> None:
        """The asker is gone. A job that is over is left alone."""
        if job.gone or job.id not in self.jobs:
            return
        job.gone = True
        self.log.cancelled(job)
        self.wall.cancel(job.id)

    def delivered(self, job: Job) -> None:
        """All that will ever be sent of `job`'s answer is sent: its truth is known once the box is
        done with it too."""
        if job.delivered:
            return
        job.delivered = True
        if job.outcome:
            self._tell_truth(job)

    def fail_all(self, message: str) -> None:
        """Every request that has a slot dies, as when a KV memory that all share is full."""
        for job in [job for job in self.jobs.values() if job.slot >= 0 and not job.gone]:
            job.gone = True
            self.log.failed(job.task, message)
            self.wall.cancel(job.id)
            job.reply.failed(job, message)

    @property
    def running(self) -> int:
        return sum(1 for job in self.jobs.values() if job.slot >= 0)

    @property
    def waiting(self) -> int:
        return len(self.jobs) - self.running

    def stop(self) -> None:
        """No more of anything; the requests that are not over are cancelled."""
        self.wall.stop()
        for job in self.jobs.values():
            job.outcome = "cancelled"
            self._tell_truth(job)
        self.jobs.clear()
        for timer in (self._watch, self._ticking):
            if timer is not None:
                timer.cancel()
        self._watch = self._ticking = None

    # --- events -------------------------------------------------------------------------------

    def _on_events(self, events: list[Event]) -> None:
        self.unix_s = b"%d" % int(time.time())
        self.log.hold()
        try:
            self._tell(events)
        finally:
            self.log.let_go()

    def _tell(self, events: list[Event]) -> None:
        seats: dict[str, int] | None = None
        brought = [event.n for event in events if event.kind in ("tokens", "first_token")]
        batch = len(brought)
        due_ns = self.wall.ns_of(events[-1].at)
        only_tokens = True
        for event in events:
            job = self.jobs[event.id]
            if event.kind == "tokens":
                self._tokens(job, event, due_ns, batch)
                continue
            only_tokens = False
            if event.kind == "admitted":
                if not job.preemptions:
                    job.admitted_at = event.at
            elif event.kind == "preempted":
                job.preemptions += 1
                job.slot = -1
            elif event.kind == "cached":
                if not job.preemptions:
                    job.cached = event.n
                self.log.queued(self.waiting - 1)  # it has a place now
                seats = self._seats_taken() if seats is None else seats
                self._seat(job, seats)
            elif event.kind == "first_token":
                job.first_token_at = job.sampled_at = event.at
                self._tokens(job, event, due_ns, batch)
            elif event.kind == "finished":
                self._finish(job, event.reason == "length")
            elif event.kind == "rejected":
                self._reject(job, event.reason)
        if batch:
            self.log.passed(batch, sum(brought))
        if only_tokens:  # the batch was the same, so its compute graph was used again
            self._graphs_reused += 1

    def _tokens(self, job: Job, event: Event, due_ns: int, batch: int) -> None:
        at, new = event.at, event.n
        job.generated += new
        job.last_token_at = at
        for _ in range(new):
            job.due_ns.append(due_ns)
            job.batch.append(batch)
        if not job.gone:
            job.reply.tokens(job, new)
        if job.generated >= SAMPLE_TOKENS and at - job.sampled_at >= SAMPLE_S:
            rate = (job.generated - 1) / (at - job.first_token_at)
            recent = (job.generated - job.sampled_tokens) / (at - job.sampled_at)
            self.log.sampled(job, rate, recent)
            job.sampled_at, job.sampled_tokens = at, job.generated

    def _seat(self, job: Job, seats: dict[str, int]) -> None:
        """`job` was given a slot."""
        slot = seats.get(job.id)
        if slot is None:  # over in the same breath
            slot = self.box.served(job.id).slot
            assert slot is not None
        job.slot = slot
        seat = self.seats[slot]
        job.slot_held, job.slot_used_us = seat.held_tokens, seat.last_used_us
        self.log.seated(job)
        if not job.gone and not job.preemptions:
            job.reply.admitted(job)
        self._watch_later()

    def _seats_taken(self) -> dict[str, int]:
        views = self.box.snapshot().slots
        return {view.request_id: view.index for view in views if view.request_id is not None}

    def _finish(self, job: Job, truncated: bool) -> None:
        job.truncated = truncated
        served = self.box.served(job.id)
        job.drafted, job.accepted = served.drafted, served.accepted
        self.log.done(job, self._graphs_reused)
        totals = self.totals
        totals.prompt_tokens += job.read_tokens
        totals.cached_tokens += job.cached
        totals.prompt_s += job.prompt_s
        totals.generated_tokens += job.generated
        totals.generation_s += job.decode_s
        totals.accepted += served.accepted
        totals.longest_tokens = max(totals.longest_tokens, job.held_tokens)
        self._release(job, "done")
        if not job.gone:
            job.reply.finished(job)

    def _reject(self, job: Job, reason: str) -> None:
        message = "the server is busy"
        if reason == TOO_LONG:
            message = too_long(job.prompt_tokens, self.ctx_per_slot)
        elif reason == POOL_EXHAUSTED:
            message = KV_EXHAUSTED
        self.log.failed(job.task, message)
        if job.slot < 0:
            self._drop(job, "failed")
        else:
            self._release(job, "failed")
        if not job.gone:
            job.reply.failed(job, message)

    def _on_cancelled(self, served: Served) -> None:
        job = self.jobs[served.id]
        if served.slot is None:
            self._drop(job, "cancelled")
        else:
            self._release(job, "cancelled")

    def _release(self, job: Job, outcome: Outcome) -> None:
        self.log.released(job)
        used_us = int(self.wall.life_s() * 1e6)
        self.seats[job.slot] = Seat(job.held_tokens, used_us, job.task, job.settings)
        self._drop(job, outcome)

    def _drop(self, job: Job, outcome: Outcome) -> None:
        del self.jobs[job.id]
        self.box.forget(job.id)
        job.outcome = outcome
        for listener in self.on_over:
            listener(job)
        if job.delivered:
            self._tell_truth(job)

    def _tell_truth(self, job: Job) -> None:
        self.truth.over(job, self._dialect, self.wall.ns_of)

    # --- the rest -----------------------------------------------------------------------------

    def _next_task(self) -> int:
        """Task numbers count passes too: the real server posts itself a task for each."""
        self._posted += 1
        return self._posted - 1 + self.box.usage.passes

    def _watch_prompts(self) -> None:
        """While prompts are read, tell the progress of long ones: passes without an event tell
        nothing by themselves."""
        self._watch = None
        self.wall.catch_up()
        now = self.wall.box_s()
        for view in self.box.snapshot().slots:
            if view.state != "prefill":
                continue
            job = self.jobs[view.request_id or ""]
            if job.wants_progress and view.processed_tokens > job.processed and not job.gone:
                job.reply.read(job, view.held_tokens)
            job.processed = view.processed_tokens
            if job.processed and now - max(job.admitted_at, job.sampled_at) >= SAMPLE_S:
                job.sampled_at = now
                self.log.reading(job, now - job.admitted_at)
        self._watch_later()

    def _watch_later(self) -> None:
        reading = [job for job in self.jobs.values() if job.slot >= 0 and not job.generated]
        if not reading:
            return
        wait = _WATCH_S / self._time_scale
        if any(job.wants_progress for job in reading):
            wait = min(wait, _PROGRESS_WALL_S)
        loop = asyncio.get_running_loop()
        if self._watch is not None:
            if self._watch.when() <= loop.time() + wait:
                return
            self._watch.cancel()
        self._watch = loop.call_later(wait, self._watch_prompts)

    def _tick_later(self, every_s: float) -> None:
        def tick() -> None:
            self.log.tick(self.running, self.waiting)
            self._tick_later(every_s)

        wait = every_s / self._time_scale
        self._ticking = asyncio.get_running_loop().call_later(wait, tick)


def too_long(prompt_tokens: int, ctx_per_slot: int) -> str:
    """llama.cpp's message for a prompt that no slot can hold."""
    return (
        f"request ({prompt_tokens} tokens) exceeds the available context size "
        f"({ctx_per_slot} tokens), try increasing it"
    )
