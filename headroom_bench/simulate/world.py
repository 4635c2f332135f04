"""The simulated world: the crowd's own coroutines against the virtual box, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from headroom_bench.box import POOL_EXHAUSTED, QUEUE_FULL, Box, BoxRequest, Event, Usage
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.prompts import SharedTexts, as_sent
from headroom_bench.crowd.world import Answer, Request
from headroom_bench.network import Link
from headroom_bench.records import RequestRecord
from headroom_bench.segments import total_tokens
from headroom_bench.simulate.asked import (
    Asked,
    Naming,
    Times,
    begun_record,
    fill_counts_and_times,
    fill_server_side,
)
from headroom_bench.simulate.kernel import Kernel, Process, Wait
from headroom_bench.simulate.replay import Lengths, Replay
from headroom_bench.simulate.ways import Path, Ways

__all__ = ["Emit", "Lengths", "Naming", "SimulatedWorld", "Worked"]

Emit = Callable[[RequestRecord, Times], None]
"""Takes each finished record and its token times, shape (tokens,), seconds."""

_NOTHING = np.zeros(0)


@dataclass(frozen=True, slots=True)
class Worked:
    """How hard a life was for the box and the radios, in seconds and counts."""

    seconds: float
    """How long that life was."""
    busy_s: float
    """With a pass in flight."""
    all_taken_s: float
    """With every place taken."""
    preempted: int
    killed: int
    radios_s: Mapping[str, float]
    """Airtime offered to each shared link, the rests of a duty cycle included."""


class SimulatedWorld:
    """`World` in virtual time. One instance serves a whole crowd.

    With `lengths`, prompts and answers get the token counts measured there, by request id; one that
    failed keeps the box busy for as long as it did the server; a person's life ends where the
    measurement has no more of it. With `links`, by persona, these
    people's requests and answers go over them; everybody else's over `path`. `event_tokens` are
    streamed in one event. Requests start at `max_rps` a second at the most, evenly spaced.
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
        max_rps: float | None = None,
    ) -> None:
        self._box = box
        self._kernel = Kernel()
        self._naming = naming
        self._emit = emit
        self._ways = Ways(box, path or Path(), links or {}, event_tokens)
        self._max_requests = max_requests
        self._replay = None if lengths is None else Replay(lengths)
        self._period_s = 0.0 if max_rps is None else 1.0 / max_rps
        self._next_start_s = 0.0
        self._asked: dict[str, Asked] = {}
        self._shared_texts = SharedTexts()
        self._count = 0
        self._stopping = False
        self._sleepers: dict[int, Process] = {}
        self._sleeps = 0
        self._ended_s = 0.0
        self._warmup_s = 0.0
        self._warm = Usage()
        self._warm_radios_s: dict[str, float] = {}

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
            self._kernel.at(self._kernel.now + seconds, self._wake, self._fall_asleep(process))

        return Wait(begin)

    def _fall_asleep(self, process: Process) -> int:
        """Who sleeps is woken by the end of the world too; the number tells who it was."""
        self._sleeps += 1
        self._sleepers[self._sleeps] = process
        return self._sleeps

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

    def run(self, crowd: Crowd, duration_s: float | None, warmup_s: float = 0.0) -> float:
        """Lives the crowd's life; returns the virtual moment at which it ended.

        That is when the world stopped or the last answer ended, whichever was later: a pause after
        the last answer of a life whose `lengths` have run out is no part of it. `worked` leaves the
        first `warmup_s` out.

        Raises ValueError when nothing would ever end it.
        """
        if duration_s is None and self._max_requests is None and self._replay is None:
            raise ValueError("a simulation needs a duration, a number of requests, or lengths")
        kernel, box = self._kernel, self._box
        self._warmup_s = warmup_s
        if warmup_s > 0:
            kernel.at(warmup_s, self._look)
        if duration_s is not None:
            kernel.at(duration_s, self._stop)
        for user in crowd.users():
            Process(live_as(self, user)).resume()
        while True:
            # Nobody waits: what is left to come is what the box has still to hear of hang-ups.
            agenda_at = kernel.next_at if self._asked or self._sleepers else None
            box_at = box.next_event_at(by=inf if agenda_at is None else agenda_at)
            if box_at is not None and (agenda_at is None or box_at <= agenda_at):
                kernel.now = max(kernel.now, box_at)
                for event in box.advance(box_at):
                    self._on_event(event)
            elif agenda_at is not None:
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

    # --- how hard it was ------------------------------------------------------------------------

    def worked(self) -> Worked:
        """What box and radios had to do, in the stretch that counts."""
        before, after = self._warm, self._box.usage
        return Worked(
            seconds=max(0.0, self._ended_s - self._warmup_s),
            busy_s=after.busy_s - before.busy_s,
            all_taken_s=after.all_taken_s - before.all_taken_s,
            preempted=after.preempted - before.preempted,
            killed=after.killed - before.killed,
            radios_s={
                name: seconds - self._warm_radios_s.get(name, 0.0)
                for name, seconds in self._ways.offered_s().items()
            },
        )

    def _look(self, _: object = None) -> None:
        """The warm-up is over."""
        self._catch_up()
        self._warm = replace(self._box.usage)
        self._warm_radios_s = self._ways.offered_s()

    # --- a request's way ------------------------------------------------------------------------

    def _begin_ask(self, request: Request, process: Process) -> None:
        """Waits for its turn, where starts are spaced."""
        if self._replay is not None and self._replay.of(request.request_id) is None:
            process.stop()  # nobody asked it in the measured run: it takes no turn from others
            return
        now = self._kernel.now
        if self._next_start_s <= now or self._stopping:
            self._next_start_s = now + self._period_s
            self._start(request, process, now)
            return
        number = self._fall_asleep(process)
        self._kernel.at(self._next_start_s, self._start_late, (number, request, now))
        self._next_start_s += self._period_s

    def _start_late(self, waited: tuple[int, Request, float]) -> None:
        number, request, asked_at = waited
        process = self._sleepers.pop(number, None)
        if process is not None:
            self._start(request, process, asked_at)

    def _start(self, request: Request, process: Process, asked_at: float) -> None:
        replay = self._replay
        measured = None if replay is None else replay.of(request.request_id)
        if self._stopping:
            process.stop()
            return
        self._count += 1
        if self._max_requests is not None and self._count >= self._max_requests:
            self._stop()
        reasoning = request.reasoning_tokens
        segments, max_tokens = request.segments, request.max_tokens
        if replay is not None and measured is not None:
            segments = replay.segments(segments, measured)
            if measured.ok:
                max_tokens = measured.completion_tokens or max_tokens
                reasoning = measured.reasoning_tokens or 0
        now = self._kernel.now
        concurrent = len(self._asked) + 1
        prompt_tokens = total_tokens(segments)
        connect_s = self._ways.connect_s(request)
        asked = Asked(
            request,
            process,
            asked_at,
            now + (connect_s or 0.0),
            connect_s,
            concurrent,
            prompt_tokens,
            reasoning,
            self._shared_texts.reusable_tokens(request, segments),
        )
        self._asked[request.request_id] = asked
        if measured is not None and not measured.ok:
            asked.doomed = True
            end_s = max(now, asked_at + (measured.lasted_s or 0.0))
            self._kernel.at(end_s, self._fail_as_measured, asked)
            if not measured.served:
                return
        elif request.patience_s is not None:
            self._kernel.at(now + request.patience_s, self._check_patience, asked)
        wanted = BoxRequest(
            request.request_id,
            as_sent(segments),
            max_tokens,
            f"{request.request_id}/answer",
            # Every round of a turn but the last calls a tool.
            kind="tool_call" if request.round < request.rounds - 1 else "prose",
        )
        if self._ways.shares(request):
            self._ways.account(now)
        up_s = self._ways.up_s(request, prompt_tokens)
        self._kernel.at(asked.sent_at + up_s, self._arrive, wanted)

    def _arrive(self, wanted: BoxRequest) -> None:
        asked = self._asked.get(wanted.id)
        if asked is not None:
            asked.arrived = True
            self._box.submit(wanted, self._kernel.now)

    def _catch_up(self) -> None:
        """Brings the box to the present: it may be in the middle of a leap."""
        for event in self._box.advance(self._kernel.now):
            self._on_event(event)
        if self._ways.shared:
            self._ways.account(self._kernel.now)

    def _on_event(self, event: Event) -> None:
        kind = event.kind
        if kind not in ("first_token", "finished", "rejected"):
            return
        asked = self._asked.get(event.id)
        if asked is None:
            return
        if kind == "first_token":
            self._stream(asked, True)
        else:
            self._stream(asked, False)
            if asked.doomed:
                return
            given = self._box.token_times(event.id)
            times = self._ways.down(asked.request, given, whole=True)
            end_s = event.at + self._ways.down_s(asked.request)
            if kind == "finished":  # an error may overtake tokens, an end comes with the last
                end_s = float(times[-1])
            self._kernel.at(end_s, self._deliver, (asked, event, times, given))

    def _stream(self, asked: Asked, streams: bool) -> None:
        """`asked`'s answer begins to come, or comes no more."""
        if asked.streams != streams:
            asked.streams = streams
            self._ways.stream(asked.request, 1 if streams else -1, self._kernel.now)

    def _deliver(self, delivered: tuple[Asked, Event, Times, Times]) -> None:
        asked, event, times, given = delivered
        if self._asked.get(event.id) is not asked:  # given up on while this was on its way
            return
        record = begun_record(asked, self._naming)
        served = self._box.served(event.id)
        if event.kind == "rejected":
            times = times[times <= self._kernel.now]
            record.error_kind, record.error = _refusal(event)
        else:
            record.ok = True
            # A twin may be as short as the measured answer was, which its model ended itself.
            whole = len(times) >= asked.request.max_tokens
            record.finish_reason = "length" if whole or event.reason == "length" else "stop"
            record.prompt_cut = served.cut_tokens > 0
            record.truncated = event.reason == "length" or record.prompt_cut
        fill_counts_and_times(record, asked, times, self._kernel.now)
        fill_server_side(record, served, given[: len(times)])
        self._end(asked, record, times)

    def _check_patience(self, asked: Asked) -> None:
        """Gives up when nothing has arrived for as long as the person's patience."""
        patience_s, request_id = asked.request.patience_s, asked.request.request_id
        if patience_s is None or self._asked.get(request_id) is not asked:
            return
        now = self._kernel.now
        times = self._heard_by(asked, now)
        # The moment itself is compared: `now - heard` may round to less than the patience for ever.
        due_s = (float(times[-1]) if len(times) else asked.sent_at) + patience_s
        if now < due_s:
            self._kernel.at(due_s, self._check_patience, asked)
            return
        self._hang_up(asked)
        record = begun_record(asked, self._naming)
        record.error_kind = "abandoned"
        record.error = f"nothing arrived for {patience_s:g} s"
        fill_counts_and_times(record, asked, times, now)
        self._end(asked, record, times)

    def _heard_by(self, asked: Asked, now: float) -> Times:
        """When the tokens came that have arrived by `now`."""
        if not asked.arrived:
            return _NOTHING
        self._catch_up()
        given = self._box.token_times(asked.request.request_id)
        times = self._ways.down(asked.request, given, whole=False)
        return times[: times.searchsorted(now, side="right")]

    def _hang_up(self, asked: Asked) -> None:
        self._box.cancel(asked.request.request_id, self._kernel.now)
        self._stream(asked, False)

    def _fail_as_measured(self, asked: Asked) -> None:
        if asked.arrived:
            self._catch_up()
            self._hang_up(asked)
        record = begun_record(asked, self._naming)
        record.error_kind, record.error = "as_measured", "the measured request failed"
        record.end_s = self._kernel.now
        record.e2e_s = record.end_s - asked.sent_at
        self._end(asked, record, _NOTHING)

    def _end(self, asked: Asked, record: RequestRecord, times: Times) -> None:
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


def _refusal(event: Event) -> tuple[str, str]:
    """Kind and words of what a person sees of a rejection."""
    if event.reason == QUEUE_FULL:
        return "server_busy", "as many requests as may wait are waiting"
    if event.reason == POOL_EXHAUSTED:
        return "server_error", "the memory that all requests share ran out"
    return "context_exceeded", f"{event.n} tokens do not fit"
