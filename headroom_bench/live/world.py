"""The live world: real requests to a real server, on the wall clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from headroom_bench.crowd.world import Answer, Request, Stopped
from headroom_bench.errors import UserError
from headroom_bench.live.clock import RunClock, monotonic_ns
from headroom_bench.live.dialect import CHAT_PATH, chat_body
from headroom_bench.live.exchange import Exchange, Transport
from headroom_bench.live.lag import LagWatch
from headroom_bench.live.measured import fill_cuts, fill_from_wire, suspicion, to_answer
from headroom_bench.live.reading import Reading, read_stream
from headroom_bench.live.renderer import Prompt, Renderer
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord

Done = TypeVar("Done")

SLICE_NS = 500_000
"""Longest stretch of parsing, or of writing prompts, before the event loop gets its turn."""

WRITE_LIMIT_S = 30.0
"""Longest that a person waits for the record of the last answer to be on disk."""

LAG_ALLOWED_MS = 10.0
LAG_ALLOWED_SHARE = 0.05
"""A request's figures are invalid when our own loop was later than both of these: at its first
token (as a share of TTFT), or at its last (of E2E). What is known is the worst of the tenths of a
second around; one stamp is seldom that late."""
PAUSES_ALLOWED_SHARE = 0.01
"""Or when pauses took more of its life than this: of its gaps, so many would be ours."""


class Sink(Protocol):
    """Where finished records go."""

    def append(self, record: RequestRecord, event_times_s: Moments) -> Future[None]: ...


class Observer(Protocol):
    """Sees requests go out and records come in, while the run goes on."""

    def on_sent(self, request: Request) -> None: ...

    def on_record(self, record: RequestRecord, event_times_s: Moments) -> None: ...


class Pacing(Protocol):
    async def turn(self) -> None:
        """Waits until the next request may start."""
        ...


@dataclass(slots=True)
class Asking:
    """How requests are made for one target."""

    run_id: str
    target: str
    model: str
    dialect: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request's body; None leaves out one that we would send."""
    force_lengths: bool = False
    prompt_kind: str = "distinct"
    round_trip_s: float | None = None
    """The smallest round trip to the server that was seen before the run, life time."""
    max_requests: int | None = None


class LiveWorld:
    """`World` over HTTP. One instance serves a whole crowd."""

    def __init__(
        self,
        wire: Transport,
        clock: RunClock,
        asking: Asking,
        renderer: Renderer,
        sink: Sink,
        lag: LagWatch,
        *,
        observers: tuple[Observer, ...] = (),
        pace: Pacing | None = None,
    ) -> None:
        self._wire = wire
        self._clock = clock
        self._asking = asking
        self._renderer = renderer
        self._sink = sink
        self._lag = lag
        self._observers = observers
        self._pace = pace
        self._pacing: set[asyncio.Task[None]] = set()
        self._sleepers: set[asyncio.Future[None]] = set()
        self._writing: dict[tuple[str, int], Future[None]] = {}
        self._preparing = asyncio.Lock()
        """One prompt is written at a time, a piece in each turn of the event loop."""
        self._reading = asyncio.Lock()
        """One answer is read at a time: many that end together would each take their slice in one
        turn of the event loop, while those that still stream wait for their stamps."""
        self._stopping = False
        self._over = False
        """Nothing is sent any more, where a budget that is used up still sends its last prompts."""
        self._asked = 0
        self.in_flight = 0

    @property
    def stopping(self) -> bool:
        return self._stopping

    def now(self) -> float:
        return self._clock.now()

    async def sleep(self, seconds: float) -> None:
        if self._stopping:
            raise Stopped
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(self._clock.wall_s(seconds), _wake, woken)
        self._sleepers.add(woken)
        try:
            await woken
        finally:
            timer.cancel()
            self._sleepers.discard(woken)

    async def together(self, *coroutines: Coroutine[Any, Any, Any]) -> None:
        results = await asyncio.gather(*coroutines, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def stop(self) -> None:
        """No new requests, those whose prompt is not written yet among them; sleepers wake to end.
        Requests in flight go on to their end."""
        self._over = True
        self._admit_no_more()

    def _admit_no_more(self) -> None:
        self._stopping = True
        for woken in list(self._sleepers):
            if not woken.done():
                woken.set_exception(Stopped())
        for waiting in list(self._pacing):
            waiting.cancel()

    def stop_now(self) -> None:
        """Ends requests in flight too."""
        self.stop()
        self._wire.interrupt()

    async def ask(self, request: Request) -> Answer:
        started_at_s = self.now()
        await self._last_record_written(request)
        if self._pace is not None and not self._stopping:
            await self._paced(self._pace)
        self._take_turn()
        record = self._new_record(request, started_at_s)
        async with self._preparing:
            await asyncio.sleep(0)  # so that those that ask in the same turn queue up behind
            prompt = await _in_turns(self._renderer.prompting(request), lambda: self._over)
            await asyncio.sleep(0)
            body = self._body(request, prompt.messages)
        record.asked_tokens, record.sent_tokens = request.max_tokens, prompt.tokens
        record.reusable_tokens = prompt.reusable_tokens
        record.template_tokens = prompt.template_tokens
        self.in_flight += 1
        record.concurrent_at_start = self.in_flight
        try:
            exchange = await self._exchange(request, body)
        finally:
            self.in_flight -= 1
        async with self._reading:
            await asyncio.sleep(0)  # so that those that ended in the same turn queue up behind
            await self._take_down(request, prompt, exchange, record)
        if exchange.ended == "interrupted":
            raise Stopped
        return to_answer(request, record, exchange)

    async def _take_down(
        self, request: Request, prompt: Prompt, exchange: Exchange, record: RequestRecord
    ) -> None:
        """Reads an answer, completes its record, and hands it to whoever keeps or shows it."""
        reading = await _in_turns(_parsing(exchange))
        await asyncio.sleep(0)
        round_trip_s = self._asking.round_trip_s
        times = fill_from_wire(record, request, exchange, reading, self._clock, round_trip_s)
        self._judge_ourselves(record, exchange, reading)
        await asyncio.sleep(0)
        fill_cuts(record, prompt.least_tokens)
        self._renderer.learn(request, record, reading.text)
        self._writing[request.persona, request.user] = self._sink.append(record, times)
        for observer in self._observers:
            observer.on_record(record, times)

    async def _paced(self, pace: Pacing) -> None:
        """Waits for its turn; the end of the run ends the wait."""
        waiting = asyncio.ensure_future(pace.turn())
        self._pacing.add(waiting)
        try:
            await asyncio.wait({waiting})
        finally:
            waiting.cancel()
            self._pacing.discard(waiting)
        if waiting.done() and not waiting.cancelled():
            waiting.result()

    def _take_turn(self) -> None:
        """Counts a request against the run's budget; the last one stops the world."""
        if self._stopping:
            raise Stopped
        self._asked += 1
        limit = self._asking.max_requests
        if limit is not None and self._asked >= limit:
            self._admit_no_more()

    async def _last_record_written(self, request: Request) -> None:
        writing = self._writing.pop((request.persona, request.user), None)
        if writing is not None and not writing.done():
            waiting = asyncio.wrap_future(writing)
            waiting.add_done_callback(_seen)
            await asyncio.wait({waiting}, timeout=WRITE_LIMIT_S)
        if writing is not None and not writing.done():
            told = f"no answer from the disk in {WRITE_LIMIT_S:g} s"
            raise UserError(f"results cannot be written: {told}")
        if writing is not None:
            writing.result()

    def _new_record(self, request: Request, started_at_s: float) -> RequestRecord:
        return RequestRecord(
            run_id=self._asking.run_id,
            world="measured",
            request_id=request.request_id,
            conversation_id=request.conversation_id,
            persona=request.persona,
            user=request.user,
            turn=request.turn,
            round=request.round,
            turn_rounds=request.rounds,
            target=self._asking.target,
            model=self._asking.model,
            started_at_s=started_at_s,
            prompt_kind=self._asking.prompt_kind,
        )

    def _body(self, request: Request, messages: list[dict[str, str]]) -> bytes:
        asking = self._asking
        body = chat_body(
            messages,
            request.max_tokens,
            asking.model,
            asking.dialect,
            force=asking.force_lengths or request.force_length,
            more=asking.body,
        )
        return json.dumps(body, separators=(",", ":")).encode()

    async def _exchange(self, request: Request, body: bytes) -> Exchange:
        def on_sent(_: Exchange) -> None:
            for observer in self._observers:
                observer.on_sent(request)

        patience_s = request.patience_s
        return await self._wire.exchange(
            CHAT_PATH,
            self._asking.headers,
            body,
            patience_s=None if patience_s is None else self._clock.wall_s(patience_s),
            on_sent=on_sent,
        )

    def _judge_ourselves(self, record: RequestRecord, exchange: Exchange, reading: Reading) -> None:
        sent_ns = exchange.sent_ns or exchange.started_ns
        stamps_ns = reading.stamps_ns or [exchange.end_ns]
        lag = self._lag.seen(sent_ns, stamps_ns[0], stamps_ns[-1])
        record.harness_lag_ms = lag.worst_ms
        scale = self._clock.scale  # faster than life, a wall millisecond spoils more of it
        life_ms = (exchange.end_ns - sent_ns) / 1e6
        late = (
            lag.at_first_ms * scale > _lag_allowed_ms(record.ttft_s)
            or lag.at_last_ms * scale > _lag_allowed_ms(record.e2e_s)
            or lag.pauses_ms > PAUSES_ALLOWED_SHARE * life_ms
        )
        record.valid = not late and exchange.ended != "interrupted"
        record.suspect = suspicion(record, self._asking.round_trip_s)


def _lag_allowed_ms(figure_s: float | None) -> float:
    return max(LAG_ALLOWED_MS, LAG_ALLOWED_SHARE * 1e3 * (figure_s or 0.0))


def _seen(waiting: asyncio.Future[None]) -> None:
    """Its failure is told where the record's own future is asked."""
    if not waiting.cancelled():
        waiting.exception()


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


async def _in_turns(
    steps: Generator[None, None, Done], over: Callable[[], bool] = lambda: False
) -> Done:
    """Takes steps for a slice of time, then lets the event loop have its turn. Raises `Stopped`
    where it is over before they are done."""
    slice_ends_ns = monotonic_ns() + SLICE_NS  # the loop's own time stands still meanwhile
    while not over():
        try:
            next(steps)
        except StopIteration as done:
            result: Done = done.value
            return result
        if monotonic_ns() > slice_ends_ns:
            await asyncio.sleep(0)
            slice_ends_ns = monotonic_ns() + SLICE_NS
    raise Stopped


def _parsing(exchange: Exchange) -> Generator[None, None, Reading]:
    """Reads an ended exchange, in steps between which other streams are stamped on time."""
    reading = Reading()
    for reading in read_stream(exchange):  # noqa: B007  (the last one is the whole)
        yield
    return reading
