"""The virtual server with split slots: admission, continuous batching, chunked prefill.

Time passes only by `advance`. Between two calls the box stands at `_at`, the end of the latest
pass (or when it last woke), and knows the passes to come as its plan. Whatever is asked for at or
before the end of a pass takes effect there, so an answer never depends on how `advance` was cut.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import OrderedDict
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box.decoders import Decoders
from headroom_bench.box.events import TOO_LONG, BoxRequest, Event
from headroom_bench.box.plan import Block, Plan
from headroom_bench.box.readings import SlotView, Snapshot, Usage
from headroom_bench.box.slots import Slot, Slots
from headroom_bench.box.task import Outcome, Served, Task
from headroom_bench.box.timeline import Timeline
from headroom_bench.roofline.pricer import Pricer
from headroom_bench.segments import total_tokens


class _Call(NamedTuple):
    """A submit or cancel that waits for its pass boundary."""

    at: float
    task: Task
    cancels: bool


_call_at = attrgetter("at")


class Box:
    """A server with `slots` slots of `ctx_per_slot` tokens each, and a FIFO queue before them.

    Each pass gives every decoding sequence one token and spends what is left of `batch_tokens` on
    prompts, in order of admission. With `leap` the box jumps from change to change and tells no
    `tokens` events (see `token_times`); without, it steps every pass and tells them all.

    Times are seconds on the caller's clock. Raises ValueError for a size below 1.
    """

    def __init__(
        self,
        pricer: Pricer,
        slots: int,
        ctx_per_slot: int,
        batch_tokens: int = 2048,
        leap: bool = True,
    ) -> None:
        if min(slots, ctx_per_slot, batch_tokens) < 1:
            raise ValueError("slots, ctx_per_slot and batch_tokens must be at least 1")
        self.usage = Usage()
        """Running sums, to be read."""
        self._pricer = pricer
        self._ctx = ctx_per_slot
        self._leap = leap
        self._now = -inf  # advanced to
        self._at = -inf  # end of the latest pass
        self._passes = 0
        self._calls: list[_Call] = []  # by time, then in order of calling
        self._queue: OrderedDict[int, Task] = OrderedDict()  # by task number
        self._slots = Slots(slots)
        self._reading: list[Task] = []
        self._decoders = Decoders(pricer.window)
        self._plan = Plan(pricer, self._decoders, self._reading, batch_tokens, leap)
        self._timeline = Timeline()
        self._live: dict[str, Task] = {}
        self._over: dict[str, Task] = {}
        self._submitted = 0

    # --- asking -------------------------------------------------------------------------------

    def submit(self, request: BoxRequest, at: float) -> None:
        """`request` arrives at `at`; it takes effect at the next pass boundary.

        Raises ValueError where `at` is before the time advanced to, the id is still known, the
        prompt is empty or `max_tokens` negative.
        """
        self._check_time(at)
        if request.id in self._live or request.id in self._over:
            raise ValueError(f"request {request.id!r} is known already")
        prompt_tokens = total_tokens(request.segments)
        if prompt_tokens < 1 or request.max_tokens < 0:
            raise ValueError(f"request {request.id!r} has an empty prompt or negative max_tokens")
        task = Task(request, self._submitted, prompt_tokens, at)
        self._submitted += 1
        self._live[request.id] = task
        insort(self._calls, _Call(at, task, False), key=_call_at)

    def cancel(self, id: str, at: float) -> None:  # noqa: A002
        """The person of request `id` hung up at `at`: no event of it follows the next boundary.

        A request that is over or unknown is left alone, for the answer may have been on its way.
        Raises ValueError where `at` is before the time advanced to.
        """
        self._check_time(at)
        task = self._live.get(id)
        if task is not None:
            insort(self._calls, _Call(at, task, True), key=_call_at)

    def forget(self, id: str) -> None:  # noqa: A002
        """Keep nothing of request `id`: now if it is over, else as soon as it is.

        An unknown id is left alone.
        """
        if self._over.pop(id, None) is None and id in self._live:
            self._live[id].forgotten = True

    # --- time ---------------------------------------------------------------------------------

    def next_event_at(self) -> float | None:
        """Before this moment nothing happens if nobody asks more; None: nothing ever will.

        Something has then been heard (a call of ours took effect, perhaps silently) or has come
        about, so following these moments always gets somewhere.
        """
        turn = self._plan.turn_at() if self._busy() else None
        if not self._calls or (turn is not None and self._calls[0].at > turn):
            return turn
        heard = self._boundary_at(self._calls[0].at)
        return heard if turn is None else min(turn, heard)

    def advance(self, to: float) -> list[Event]:
        """Everything that happens up to and including `to`, in order.

        Raises ValueError where `to` is before the time advanced to.
        """
        self._check_time(to)
        events: list[Event] = []
        calls = self._calls
        while True:
            if calls and calls[0].at <= self._at:
                self._apply_calls(events)
            if self._queue and self._slots.free:
                self._admit(events)
            call_at = calls[0].at if calls else inf
            if self._busy():
                if not self._run(call_at, to, events):
                    break
            elif call_at <= to:
                self._at = call_at
            else:
                break
        self._now = to
        return events

    # --- reading ------------------------------------------------------------------------------

    def token_times(self, id: str) -> NDArray[np.float64]:  # noqa: A002
        """When the answer's tokens came, so far. Shape (tokens,), seconds.

        Raises KeyError for an id that is unknown or forgotten.
        """
        task = self._live.get(id) or self._over[id]
        times = task.times if task.times is not None else self._times(task)
        return np.array(times, dtype=np.float64)

    def served(self, id: str) -> Served:  # noqa: A002
        """How a request went. Raises KeyError while it is not over, or once forgotten."""
        return self._over[id].served()

    def snapshot(self) -> Snapshot:
        """Every slot, as the latest pass left it."""
        views = tuple(self._view(slot) for slot in self._slots.all())
        return Snapshot(self._now, views, len(self._slots.free), len(self._queue))

    # --- inside -------------------------------------------------------------------------------

    def _check_time(self, at: float) -> None:
        if not at >= self._now:
            raise ValueError(f"time {at} s is before {self._now} s, which the box has reached")

    def _busy(self) -> bool:
        return bool(self._reading or self._decoders.tasks)

    def _apply_calls(self, events: list[Event]) -> None:
        calls = self._calls
        while calls and calls[0].at <= self._at:
            _, task, cancels = calls.pop(0)
            if task.outcome is not None:
                continue
            if cancels:
                self._hang_up(task)
            elif task.prompt_tokens >= self._ctx:
                self._end(task, "rejected")
                events.append(
                    Event("rejected", task.request.id, self._at, task.prompt_tokens, TOO_LONG)
                )
            else:
                self._queue[task.number] = task

    def _hang_up(self, task: Task) -> None:
        if task.slot is None:
            self._queue.pop(task.number, None)
        else:
            self._plan.restart(self._passes + 1, self._at)
            if task.first_pass:
                self._decoders.remove(task)
            else:
                self._reading.remove(task)
        self._end(task, "cancelled")

    def _admit(self, events: list[Event]) -> None:
        queue, slots, usage, at = self._queue, self._slots, self.usage, self._at
        while queue and slots.free:
            _, task = queue.popitem(last=False)
            slots.take(task)
            task.order = usage.admitted
            task.admitted_at = at
            self._reading.append(task)
            usage.admitted += 1
            usage.queue_s += at - task.submitted_at
            usage.cached_tokens += task.cached_tokens
            events.append(Event("admitted", task.request.id, at, task.prompt_tokens))
            events.append(Event("cached", task.request.id, at, task.cached_tokens))
        self._plan.restart(self._passes + 1, at)

    def _run(self, call_at: float, to: float, events: list[Event]) -> bool:
        """Take passes up to `to`. True at a turn or where a call takes effect, else False."""
        plan = self._plan
        blocks = plan.blocks
        while True:
            block = blocks[0] if blocks else plan.grow()
            ends = block.ends
            heard = False
            if call_at <= to and call_at <= block.end:
                last = block.first_at_or_after(call_at)
                heard = bool(ends[last] <= to)
                count = last + 1 if heard else last
            elif block.end <= to:
                count = len(ends)
            else:
                count = block.count_until(to)
            if count > block.taken:
                self._take(block, count)
            if count == len(ends):
                plan.drop_taken()
                if block.turn:
                    self._turn(block, events)
                    return True
                if not heard:
                    continue
            return heard

    def _take(self, block: Block, count: int) -> None:
        """The block's first `count` passes are over."""
        taken = block.taken
        ends = block.ends
        new = count - taken
        whole = count == len(ends)
        end = block.end if whole else float(ends[count - 1])
        self._timeline.append(ends if whole and not taken else ends[taken:count])
        usage = self.usage
        usage.busy_s += end - self._at
        if not self._slots.free:
            usage.all_taken_s += end - self._at
        usage.passes += new
        usage.decode_tokens += new * len(self._decoders.tasks)
        for task, tokens in block.reads:
            assert task.slot is not None
            if task.prefill_at is None:
                task.prefill_at = self._at
            task.slot.valid_tokens += tokens
            usage.prefill_tokens += tokens
        block.taken = count
        self._passes += new
        self._at = end

    def _turn(self, block: Block, events: list[Event]) -> None:
        """The pass just over gave last or first tokens."""
        decoders = self._decoders
        at = self._at
        if not self._leap:
            for task in decoders.tasks.values():
                events.append(Event("tokens", task.request.id, at, 1))
        for task in decoders.finishing(self._passes):
            decoders.remove(task)
            self._finish(task, events)
        for task, _ in block.reads:
            assert task.slot is not None
            if task.slot.valid_tokens == task.prompt_tokens:
                self._reading.remove(task)
                self._first_token(task, events)
        self._plan.restart(self._passes + 1, at)

    def _first_token(self, task: Task, events: list[Event]) -> None:
        wanted = max(1, task.request.max_tokens)
        room = self._ctx - task.prompt_tokens
        task.first_token_at = self._at
        task.first_pass = self._passes
        task.last_pass = self._passes + min(wanted, room) - 1
        task.truncated = room < wanted
        events.append(Event("first_token", task.request.id, self._at, 1))
        if task.last_pass == self._passes:
            self._finish(task, events)
        else:
            self._decoders.add(task)

    def _finish(self, task: Task, events: list[Event]) -> None:
        outcome: Outcome = "length" if task.truncated else "done"
        self._end(task, outcome)
        events.append(Event("finished", task.request.id, self._at, task.generated, outcome))

    def _end(self, task: Task, outcome: Outcome) -> None:
        """`task` is over: its slot is free, its note moves to those that are over."""
        task.outcome = outcome
        task.truncated = outcome == "length"
        task.finished_at = self._at
        task.times = self._times(task)
        task.generated = len(task.times)
        if task.slot is not None:
            self._slots.release(task.slot, task.generated)
            self._trim()
        del self._live[task.request.id]
        if not task.forgotten:
            self._over[task.request.id] = task

    def _trim(self) -> None:
        oldest = next(iter(self._decoders.tasks.values()), None)
        self._timeline.forget_before(oldest.first_pass if oldest else self._passes)

    def _times(self, task: Task) -> array[float]:
        return self._timeline.run(task.first_pass, self._generated(task))

    def _generated(self, task: Task) -> int:
        return self._passes - task.first_pass + 1 if task.first_pass else 0

    def _view(self, slot: Slot) -> SlotView:
        task = slot.task
        if task is None:
            return SlotView(slot.index, "free", None, None, 0, 0, 0, 0, slot.valid_tokens)
        generated = self._generated(task)
        held = task.prompt_tokens + generated - 1 if generated else slot.valid_tokens
        return SlotView(
            index=slot.index,
            state="decode" if generated else "prefill",
            request_id=task.request.id,
            task=task.number,
            prompt_tokens=task.prompt_tokens,
            cached_tokens=task.cached_tokens,
            processed_tokens=slot.valid_tokens - task.cached_tokens,
            generated=generated,
            held_tokens=held,
        )

    def _boundary_at(self, at: float) -> float:
        """Where a call made at `at` takes effect."""
        if at <= self._at:
            return self._at
        return self._plan.boundary_at(at) if self._busy() else at
