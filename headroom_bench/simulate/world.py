"""The simulated world: the crowd's own coroutines against the virtual box, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from headroom_bench.box import POOL_EXHAUSTED, QUEUE_FULL, Box, BoxRequest, Event
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.prompts import SharedTexts
from headroom_bench.crowd.world import Answer, Request
from headroom_bench.measures import fill_timing, first_visible
from headroom_bench.network import Link
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment, total_tokens
from headroom_bench.simulate.kernel import Kernel, Process, Wait
from headroom_bench.simulate.ways import Path, Times, Ways

Emit = Callable[[RequestRecord, list[float]], None]
"""Takes each finished record and its token times."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a request really was, for a prediction beside a measurement."""

    ok: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    e2e_s: float | None


@dataclass(frozen=True, slots=True)
class Naming:
    """What the records are labelled with."""

    run_id: str
    target: str
    model: str | None = None


@dataclass(slots=True)
class _Asked:
    """One request on its way."""

    request: Request
    process: Process
    started_at: float
    sent_at: float
    """When its connection was open, and it went out."""
    connect_s: float | None
    concurrent: int
    prompt_tokens: int
    reasoning_tokens: int
    reusable_tokens: int
    arrived: bool = False
    streams: bool = False
    """Its answer has begun and is not over."""


class SimulatedWorld:
    """`World` in virtual time. One instance serves a whole crowd.

    With `lengths`, prompts and answers get the token counts measured there, by request id; a
    person's life ends where the measurement has no more of it. With `links`, by persona, these
    people's requests and answers go over them; everybody else's over `path`. `event_tokens` are
    streamed in one event.
    """

    def __init__(
        self,
        box: Box,
        naming: Naming,
        emit: Emit,
        *,
        path: Path | None = None,
        links: Mapping[str, Link] | None = None,
        event_tokens: int = 1,
        max_requests: int | None = None,
        lengths: Mapping[str, Lengths] | None = None,
    ) -> None:
        self._box = box
        self._kernel = Kernel()
        self._naming = naming
        self._emit = emit
        self._ways = Ways(box, path or Path(), links or {}, event_tokens)
        self._max_requests = max_requests
        self._lengths = lengths
        self._asked: dict[str, _Asked] = {}
        self._shared_texts = SharedTexts()
        self._count = 0
        self._stopping = False
        self._sleepers: dict[int, Process] = {}
        self._sleeps = 0
        self._ended_s = 0.0

    # --- what personas see ----------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self._stopping

    def now(self) -> float:
        return self._kernel.now

    def sleep(self, seconds: float) -> Awaitable[None]:
        def begin(process: Process) -> None:
            if self._stopping:
                process.stop()
                return
            self._sleeps += 1
            self._sleepers[self._sleeps] = process
            self._kernel.at(self._kernel.now + seconds, self._wake, self._sleeps)

        return Wait(begin)

    def ask(self, request: Request) -> Awaitable[Answer]:
        return Wait(lambda process: self._begin_ask(request, process))

    def together(self, *coroutines: Coroutine[Any, Any, Any]) -> Awaitable[None]:
        def begin(process: Process) -> None:
            left = len(coroutines)
            stopped = False
            if not left:
                process.resume()

            def on_end(child: Process) -> None:
                nonlocal left, stopped
                left -= 1
                stopped = stopped or child.stopped
                if left == 0:
                    process.stop() if stopped else process.resume()

            for coroutine in coroutines:
                Process(coroutine, on_end).resume()

        return Wait(begin)

    # --- running --------------------------------------------------------------------------------

    def run(self, crowd: Crowd, duration_s: float | None) -> float:
        """Lives the crowd's life; returns the virtual moment at which it ended.

        That is when the world stopped or the last answer ended, whichever was later: a pause after
        the last answer of a life whose `lengths` have run out is no part of it.

        Raises ValueError when nothing would ever end it.
        """
        if duration_s is None and self._max_requests is None and self._lengths is None:
            raise ValueError("a simulation needs a duration, a number of requests, or lengths")
        kernel, box = self._kernel, self._box
        if duration_s is not None:
            kernel.at(duration_s, self._stop)
        for user in crowd.users():
            Process(live_as(self, user)).resume()
        while True:
            agenda_at = kernel.next_at
            box_at = box.next_event_at(by=inf if agenda_at is None else agenda_at)
            if box_at is not None and (agenda_at is None or box_at <= agenda_at):
                kernel.now = max(kernel.now, box_at)
                for event in box.advance(box_at):
                    self._on_event(event)
            elif agenda_at is not None and (self._asked or self._sleepers):
                kernel.serve_next()
            else:
                return self._ended_s

    def _stop(self, _: object = None) -> None:
        self._stopping = True
        self._ended_s = self._kernel.now
        sleepers, self._sleepers = self._sleepers, {}
        for process in sleepers.values():
            process.stop()

    def _wake(self, number: int) -> None:
        process = self._sleepers.pop(number, None)
        if process is not None:
            process.resume()

    # --- a request's way ------------------------------------------------------------------------

    def _begin_ask(self, request: Request, process: Process) -> None:
        measured = None if self._lengths is None else self._lengths.get(request.request_id)
        if self._stopping or (self._lengths is not None and measured is None):
            process.stop()
            return
        self._count += 1
        if self._max_requests is not None and self._count >= self._max_requests:
            self._stop()
        reasoning = request.reasoning_tokens
        segments, max_tokens = request.segments, request.max_tokens
        if measured is not None:
            segments = _as_measured(segments, measured)
            max_tokens = measured.completion_tokens or max_tokens
            reasoning = measured.reasoning_tokens or 0
        now = self._kernel.now
        concurrent = len(self._asked) + 1
        prompt_tokens = total_tokens(segments)
        connect_s = self._ways.connect_s(request)
        asked = _Asked(
            request,
            process,
            now,
            now + (connect_s or 0.0),
            connect_s,
            concurrent,
            prompt_tokens,
            reasoning,
            self._shared_texts.reusable_tokens(request),
        )
        self._asked[request.request_id] = asked
        if measured is not None and not measured.ok:
            self._kernel.at(now + (measured.e2e_s or 0.0), self._fail_as_measured, asked)
            return
        wanted = BoxRequest(
            request.request_id,
            segments,
            max_tokens,
            f"{request.request_id}/answer",
            # Every round of a turn but the last calls a tool.
            kind="tool_call" if request.round < request.rounds - 1 else "prose",
        )
        up_s = self._ways.up_s(request, prompt_tokens, now)
        self._kernel.at(asked.sent_at + up_s, self._arrive, wanted)
        if request.patience_s is not None:
            self._kernel.at(now + request.patience_s, self._check_patience, asked)

    def _arrive(self, wanted: BoxRequest) -> None:
        asked = self._asked.get(wanted.id)
        if asked is not None:
            asked.arrived = True
            self._box.submit(wanted, self._kernel.now)

    def _on_event(self, event: Event) -> None:
        asked = self._asked.get(event.id)
        if asked is None:
            return
        if event.kind == "first_token":
            self._stream(asked, True)
        elif event.kind in ("finished", "rejected"):
            self._stream(asked, False)
            given = self._box.token_times(event.id)
            times = self._ways.down(asked.request, given, whole=True)
            end_s = event.at + self._ways.down_s(asked.request)
            if event.kind == "finished":  # an error may overtake tokens, an end comes with the last
                end_s = float(times[-1])
            self._kernel.at(end_s, self._deliver, (asked, event, times.tolist()))

    def _stream(self, asked: _Asked, streams: bool) -> None:
        """`asked`'s answer begins to come, or comes no more."""
        if asked.streams != streams:
            asked.streams = streams
            self._ways.stream(asked.request, 1 if streams else -1, self._kernel.now)

    def _deliver(self, delivered: tuple[_Asked, Event, list[float]]) -> None:
        asked, event, times = delivered
        if self._asked.get(event.id) is not asked:  # given up on while this was on its way
            return
        record = self._record(asked)
        if event.kind == "rejected":
            times = [at for at in times if at <= self._kernel.now]
            record.error_kind, record.error = _refusal(event)
        else:
            served = self._box.served(event.id)
            record.ok = True
            record.finish_reason = "length"
            record.truncated = event.reason == "length" or served.cut_tokens > 0
        self._fill(record, asked, times)
        self._end(asked, record, times)

    def _check_patience(self, asked: _Asked) -> None:
        """Gives up when nothing has arrived for as long as the person's patience."""
        patience_s, request_id = asked.request.patience_s, asked.request.request_id
        if patience_s is None or self._asked.get(request_id) is not asked:
            return
        now = self._kernel.now
        times = self._heard_by(asked, now)
        # The moment itself is compared: `now - heard` may round to less than the patience for ever.
        due_s = (times[-1] if times else asked.started_at) + patience_s
        if now < due_s:
            self._kernel.at(due_s, self._check_patience, asked)
            return
        self._box.cancel(request_id, now)
        self._stream(asked, False)
        record = self._record(asked)
        record.error_kind = "abandoned"
        record.error = f"nothing arrived for {patience_s:g} s"
        self._fill(record, asked, times)
        self._end(asked, record, times)

    def _heard_by(self, asked: _Asked, now: float) -> list[float]:
        """When the tokens came that have arrived by `now`."""
        if not asked.arrived:
            return []
        for event in self._box.advance(now):  # it may be in the middle of a leap
            self._on_event(event)
        given = self._box.token_times(asked.request.request_id)
        times: Times = self._ways.down(asked.request, given, whole=False)
        arrived: list[float] = times[times <= now].tolist()
        return arrived

    def _fail_as_measured(self, asked: _Asked) -> None:
        record = self._record(asked)
        record.error_kind, record.error = "as_measured", "the measured request failed"
        record.end_s = self._kernel.now
        record.e2e_s = record.end_s - asked.started_at
        self._end(asked, record, [])

    def _end(self, asked: _Asked, record: RequestRecord, times: list[float]) -> None:
        del self._asked[asked.request.request_id]
        self._box.forget(asked.request.request_id)
        self._ended_s = self._kernel.now
        self._emit(record, times)
        sent_s, device = asked.sent_at, asked.request.device
        seen = None if record.ttfv_s is None else sent_s + record.ttfv_s - device.before_s
        asked.process.resume(
            Answer(
                ok=record.ok,
                end_s=self._kernel.now,
                first_visible_s=seen,
                prompt_tokens=record.prompt_tokens,
                visible_tokens=record.visible_tokens,
                error_kind=record.error_kind,
            )
        )

    # --- records --------------------------------------------------------------------------------

    def _record(self, asked: _Asked) -> RequestRecord:
        request, naming = asked.request, self._naming
        return RequestRecord(
            run_id=naming.run_id,
            world="predicted",
            request_id=request.request_id,
            conversation_id=request.conversation_id,
            persona=request.persona,
            user=request.user,
            turn=request.turn,
            round=request.round,
            target=naming.target,
            model=naming.model,
            started_at_s=asked.started_at,
            sent_s=asked.sent_at,
            connect_s=asked.connect_s,
            concurrent_at_start=asked.concurrent,
            turn_rounds=request.rounds,
            asked_tokens=request.max_tokens,
            sent_tokens=asked.prompt_tokens,
            reusable_tokens=asked.reusable_tokens,
        )

    def _fill(self, record: RequestRecord, asked: _Asked, times: list[float]) -> None:
        """Counts and times, as a client at the end of the path sees them."""
        now = self._kernel.now
        record.end_s = now
        record.e2e_s = now - asked.sent_at
        record.completion_tokens = len(times)
        record.reasoning_tokens = min(asked.reasoning_tokens, len(times))
        record.visible_tokens = len(times) - record.reasoning_tokens
        record.prompt_tokens = asked.prompt_tokens
        if record.error_kind != "abandoned":
            served = self._box.served(record.request_id)
            record.cached_tokens = served.cached_tokens
            record.server_queue_s = served.queue_s
            record.prompt_tokens = served.prompt_tokens if record.ok else asked.prompt_tokens
            if served.drafted:
                record.draft_tokens, record.accepted_tokens = served.drafted, served.accepted
            given = self._box.token_times(record.request_id)[: len(times)].tolist()
            _fill_server_times(record, served.admitted_at, given)
            if times and served.first_token_at is not None:
                server_s = served.first_token_at - served.submitted_at
                record.network_s = times[0] - asked.sent_at - server_s
        if not times:
            return
        record.context_depth_tokens = record.prompt_tokens
        record.first_byte_s = times[0]
        fill_timing(record, asked.sent_at, times, first_event_tokens=1)
        device = asked.request.device
        shown = times if device.shows_reasoning else times[record.reasoning_tokens :]
        seen = first_visible(shown, now, buffer_tokens=device.buffer_tokens, whole=device.whole)
        if seen is not None:
            record.ttfv_s = seen - asked.sent_at + device.before_s + device.after_s


def _refusal(event: Event) -> tuple[str, str]:
    """Kind and words of what a person sees of a rejection."""
    if event.reason == QUEUE_FULL:
        return "server_busy", "as many requests as may wait are waiting"
    if event.reason == POOL_EXHAUSTED:
        return "server_error", "the memory that all requests share ran out"
    return "context_exceeded", f"{event.n} tokens do not fit"


def _fill_server_times(
    record: RequestRecord, admitted_at: float | None, times: list[float]
) -> None:
    """`times` are the box's own."""
    if admitted_at is None or not times:
        return
    record.server_prefill_s = times[0] - admitted_at
    evaluated = (record.prompt_tokens or 0) - (record.cached_tokens or 0)
    if record.server_prefill_s > 0:
        record.server_prefill_tok_s = evaluated / record.server_prefill_s
    record.server_decode_s = times[-1] - times[0]
    if record.server_decode_s > 0:
        record.server_decode_tok_s = (len(times) - 1) / record.server_decode_s


def _as_measured(segments: tuple[Segment, ...], measured: Lengths) -> tuple[Segment, ...]:
    """The prompt with its newest segment resized so that the whole has the measured length."""
    if measured.prompt_tokens is None:
        return segments
    newest = segments[-1]
    tokens = newest.tokens + measured.prompt_tokens - total_tokens(segments)
    return (*segments[:-1], newest.resized(max(1, tokens)))
