"""A crowd's life in the live world, from its first breath to its last record on disk."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.sessions import recorded_texts
from headroom_bench.crowd.texts import Vocabulary
from headroom_bench.crowd.world import Request
from headroom_bench.errors import UserError
from headroom_bench.experiments.harness import Harness
from headroom_bench.experiments.prompt_report import NewText
from headroom_bench.live.access import Access
from headroom_bench.live.clock import RunClock
from headroom_bench.live.exchange import Transport
from headroom_bench.live.lag import LagWatch
from headroom_bench.live.pace import Pace
from headroom_bench.live.reading import has_token
from headroom_bench.live.renderer import Renderer
from headroom_bench.live.wire import Wire
from headroom_bench.live.world import Asking, LiveWorld, Observer
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord
from headroom_bench.report.progress import Progress, Tally
from headroom_bench.results.run_folder import RecordWriter, RunFolder
from headroom_bench.units import counted, in_words

PROGRESS_EVERY_S = 0.5
MOST_UNCOLLECTED = 500_000
"""Objects more than at the last collection, some 50 MB, that do not wait for a gap: of garbage that
holds itself we make none, but libraries may, and a collection takes tens of milliseconds."""
SWITCH_S = 0.0005
"""Longest that a busy thread of ours (journal, metrics, writer) keeps the interpreter from the
event loop; Python's own 5 ms would be lateness in every stamp."""


@dataclass(frozen=True, slots=True)
class Writing:
    """What prompts are written with."""

    vocabulary: Vocabulary
    template: TemplateTokens


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What to do to whom. Durations in life seconds."""

    crowd: Crowd
    access: Access
    body: Mapping[str, Any]
    writing: Writing
    run_id: str
    target: str
    model: str
    dialect: str
    salt: str
    duration_s: float | None
    max_requests: int | None
    max_rps: float | None
    force_lengths: bool
    round_trip_s: float | None
    begin_s: float
    """Where the run's clock stands at the start: above 0 where a run is taken up again."""
    first_talks: Mapping[tuple[str, int], int]
    """The number of the first conversation of (persona, user), where it is not 0."""
    drain_s: float
    """How long answers in flight at the end of `duration_s` may still take, life seconds."""


@dataclass(slots=True)
class Measured:
    """What came of it; grows while the run goes on. Also an observer of the live world."""

    records: list[RequestRecord] = field(default_factory=list)
    ended_s: float = 0.0
    """When the crowd's life ended, the last answer included, on the run's clock."""
    harness: Harness = field(default_factory=Harness)
    cut_off: int = 0
    """Answers that were still coming when `--drain` ran out."""
    tally: Tally = field(default_factory=Tally)
    new_text: NewText = field(default_factory=NewText)

    def on_sent(self, request: Request) -> None:
        self.tally.in_flight += 1
        self.new_text.add(request)

    def on_record(self, record: RequestRecord, event_times_s: Moments) -> None:  # noqa: ARG002
        self.tally.in_flight -= record.sent_s is not None
        self.take_over(record)

    def take_over(self, record: RequestRecord) -> None:
        """Counts a request that ended, be it in a former part of the run."""
        self.records.append(record)
        tally = self.tally
        tally.requests += 1
        tally.errors += not record.ok
        tally.completion_tokens += record.completion_tokens or 0


async def measure(
    plan: MeasurePlan,
    clock: RunClock,
    folder: RunFolder,
    measured: Measured,
    progress: Progress,
    observers: tuple[Observer, ...],
    when_stoppable: Callable[[Callable[[], None]], None],
    say: Callable[[str], None],
) -> None:
    """Lets the crowd live until the plan's end, filling `measured` as it goes.

    `when_stoppable` is given a function that ends everything at once, answers in flight included;
    it may be called at any later time.

    Raises:
        UserError: results could not be written; what was measured before is on disk.
    """
    wire = transport_to(plan.access)
    lag = LagWatch()
    writer = RecordWriter(folder)
    world = LiveWorld(
        wire,
        clock,
        _asking(plan, measured),
        Renderer(
            plan.writing.vocabulary,
            plan.writing.template,
            plan.salt,
            recorded_texts(plan.crowd.prompts.sessions),
        ),
        writer,
        lag,
        observers=(measured, *observers),
        pace=None if plan.max_rps is None else Pace(plan.max_rps * clock.scale),
    )
    try:
        with _quiet_collector() as collect, _quick_switching():
            clock.start(plan.begin_s)
            lag.start()
            when_stoppable(world.stop_now)

            def look() -> None:
                progress.update(measured.tally)
                collect(world.in_flight == 0)
                if writer.failed:  # closing it says why
                    world.stop_now()

            await _live(plan, clock, world, _Drain(world, plan.drain_s, measured, say), look)
    finally:
        harness = measured.harness
        harness.health = lag.stop()
        harness.transport = wire.name
        harness.connections_opened, harness.in_flight_peak = wire.opened, wire.peak_in_flight
        measured.ended_s = clock.now()
        await wire.aclose()
        await asyncio.to_thread(writer.close)
        harness.writer_lag_max_s = writer.worst_lag_s


def transport_to(access: Access) -> Transport:
    """The fast path; aiohttp where a proxy is in between, which the fast path does not speak to."""
    if access.proxy is None:
        return Wire(
            access.origin, ssl_context=access.tls, timeouts=access.timeouts, has_token=has_token
        )
    from headroom_bench.live.transport_aiohttp import AiohttpTransport

    return AiohttpTransport(access, has_token)


def _left(max_requests: int | None, measured: Measured) -> int | None:
    """Of the requests that were asked for, those that a former part of the run did not make."""
    return None if max_requests is None else max(1, max_requests - len(measured.records))


def _asking(plan: MeasurePlan, measured: Measured) -> Asking:
    return Asking(
        run_id=plan.run_id,
        target=plan.target,
        model=plan.model,
        dialect=plan.dialect,
        headers=plan.access.headers,
        body=plan.body,
        force_lengths=plan.force_lengths,
        prompt_kind=plan.crowd.prompts.kind,
        max_requests=_left(plan.max_requests, measured),
        round_trip_s=plan.round_trip_s,
    )


@dataclass(frozen=True, slots=True)
class _Drain:
    """The end of `--duration`: nobody asks any more, and what is still coming has a bound."""

    world: LiveWorld
    limit_s: float
    measured: Measured
    say: Callable[[str], None]

    def begin(self) -> None:
        self.world.stop()
        if self.world.in_flight:
            self.say(
                f"the time is up; waiting at most {in_words(self.limit_s)} for "
                f"{counted(self.world.in_flight, 'answer')} (--drain)"
            )

    def end(self) -> None:
        self.measured.cut_off = self.world.in_flight
        self.world.stop_now()


async def _live(
    plan: MeasurePlan, clock: RunClock, world: LiveWorld, drain: _Drain, look: Callable[[], None]
) -> None:
    loop = asyncio.get_running_loop()
    timers = []
    if plan.duration_s is not None:
        wall_s = clock.wall_s(max(0.0, plan.duration_s - plan.begin_s))
        timers.append(loop.call_later(wall_s, drain.begin))
        timers.append(loop.call_later(wall_s + clock.wall_s(plan.drain_s), drain.end))
    ticker = asyncio.create_task(_tick(look))
    try:
        async with asyncio.TaskGroup() as people:
            for user in plan.crowd.users():
                first = plan.first_talks.get((user.persona.name, user.index), 0)
                people.create_task(live_as(world, user, first))
    except* UserError as group:
        world.stop_now()
        raise _first(group) from None
    finally:
        for timer in timers:
            timer.cancel()
        ticker.cancel()


def _first(group: BaseExceptionGroup[UserError]) -> UserError:
    """The first single error of a group: one thing went wrong, and it is told as one."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error


async def _tick(look: Callable[[], None]) -> None:
    while True:
        look()
        await asyncio.sleep(PROGRESS_EVERY_S)


@contextmanager
def _quick_switching() -> Iterator[None]:
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


@contextmanager
def _quiet_collector() -> Iterator[Callable[[bool], None]]:
    """The garbage collector rests, but for the gaps in which nothing is in flight.

    Yields a function to call now and then with whether this is a gap; a full collection is done in
    gaps, and without one where very much has come to be, so that memory stays bounded.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()

    def collect(gap: bool) -> None:
        new_objects, _, _ = gc.get_count()
        if gap or new_objects > MOST_UNCOLLECTED:
            gc.collect()
            gc.freeze()  # what lives on is mostly records: no need to visit them again and again

    try:
        yield collect
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()
