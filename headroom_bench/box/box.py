"""The virtual server: admission, continuous batching, chunked prefill, over any memory design.

Time passes only by `advance`. Between two calls the box stands at `_at`, the end of the latest
pass (or when it last woke), and knows the passes to come as its plan. Whatever is asked for at or
before the end of a pass takes effect there, so an answer never depends on how `advance` was cut.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from math import inf
from operator import attrgetter
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box.decoders import Decoders
from headroom_bench.box.design import BoxDesign, split_slots
from headroom_bench.box.drafters import Drafters
from headroom_bench.box.dynamic import DynamicMemory
from headroom_bench.box.events import POOL_EXHAUSTED, QUEUE_FULL, TOO_LONG, BoxRequest, Event, made
from headroom_bench.box.memory import Decoding, Memory
from headroom_bench.box.overflow import cut_to_fit, too_long
from headroom_bench.box.pages import PagedMemory
from headroom_bench.box.plan import Block, Plan, Read
from headroom_bench.box.readings import SlotView, Snapshot, Usage
from headroom_bench.box.slots import SlotMemory
from headroom_bench.box.task import Outcome, Served, Task
from headroom_bench.roofline.pricer import Pricer
from headroom_bench.segments import total_tokens


class _Call(NamedTuple):
    """A submit or cancel that waits for its pass boundary."""

    at: float
    task: Task
    cancels: bool


_call_at = attrgetter("at")


class Box:
    """A server, and a FIFO queue before it.

    With `leap` the box jumps from change to change and tells no `tokens` events (see
    `token_times`); without, it steps every pass and tells them all. `Box(...)` makes one with split
    slots, `Box.of` one of any design. Times are seconds on the caller's clock.
    """

    def __init__(
        self,
        pricer: Pricer,
        slots: int,
        ctx_per_slot: int,
        batch_tokens: int = 2048,
        leap: bool = True,
    ) -> None:
        """`slots` slots of `ctx_per_slot` tokens each. Raises ValueError for a size below 1."""
        self._build(pricer, split_slots(slots, ctx_per_slot, batch_tokens), leap)

    @classmethod
    def of(cls, pricer: Pricer, design: BoxDesign, leap: bool = True) -> Self:
        """A box of that design."""
        box = cls.__new__(cls)
        box._build(pricer, design, leap)
        return box

    def _build(self, pricer: Pricer, design: BoxDesign, leap: bool) -> None:
        self.design = design
        self.usage = Usage()
        """Running sums, to be read."""
        self._leap = leap
        self._now = -inf  # advanced to
        self._at = -inf  # end of the latest pass
        self._calls: list[_Call] = []  # by time, then in order of calling
        self._queue: OrderedDict[int, Task] = OrderedDict()  # by task number
        self._reading: list[Task] = []
        self._running: dict[int, Task] = {}  # those who read or decode, by order of admission
        self._decoders = _decoding(pricer, design)
        self._memory = _memory(design, self._decoders)
        self._plan = Plan(pricer, design, self._decoders, self._memory, self._reading, leap)
        self._solo = False  # the latest admitted runs alone
        self._refused = False  # the head of the queue found no place, and nothing has changed
        self._live: dict[str, Task] = {}
        self._over: dict[str, Task] = {}
        self._submitted = 0

    # --- asking -------------------------------------------------------------------------------

    def submit(self, request: BoxRequest, at: float) -> None:
        """`request` arrives at `at`; it takes effect at the next pass boundary.

        Raises ValueError where `at` is before the time advanced to, the id is still known, the
        prompt is empty or `max_tokens` negative.
        """
        if not at >= self._now:
            self._check_time(at)
        if request.id in self._live or request.id in self._over:
            raise ValueError(f"request {request.id!r} is known already")
        prompt_tokens = total_tokens(request.segments)
        if prompt_tokens < 1 or request.max_tokens < 0:
            raise ValueError(f"request {request.id!r} has an empty prompt or negative max_tokens")
        task = Task(request, self._submitted, request.segments, prompt_tokens, at)
        self._submitted += 1
        self._live[request.id] = task
        calls, call = self._calls, made(_Call, (at, task, False))
        if not calls or calls[-1].at <= at:
            calls.append(call)
        else:
            insort(calls, call, key=_call_at)

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

    def next_event_at(self, by: float = inf) -> float | None:
        """Before this moment nothing happens if nobody asks more; None: nothing ever will.

        A call of ours has then taken effect (perhaps silently), a pass that reads or drafts is
        over, or something has come about, so following these moments always gets somewhere. With
        `by` it looks no further than that moment, and may return any later one in which nothing
        happens: asking so costs no more than the passes until then.
        """
        turn = self._plan.turn_at(by) if self._running else None
        if not self._calls:
            return turn
        call_at = self._calls[0].at
        if turn is not None and call_at > turn:
            return turn
        if call_at <= self._at:
            return self._at
        return call_at if turn is None else self._plan.boundary_at(call_at)

    def advance(self, to: float) -> list[Event]:
        """Everything that happens up to and including `to`, in order.

        Raises ValueError where `to` is before the time advanced to.
        """
        if not to >= self._now:
            self._check_time(to)
        events: list[Event] = []
        calls, plan = self._calls, self._plan
        blocks = plan.blocks
        while True:
            if calls and calls[0].at <= self._at:
                self._apply_calls(events)
            if self._queue and not self._refused:
                self._admit(events)
            if not self._running:
                if not calls or calls[0].at > to:
                    break
                self._at = calls[0].at
                continue
            block = blocks[0] if blocks else plan.grow()
            ends = block.ends
            if not ends:
                self._make_room(events)
            elif ends[plan.taken] <= to:
                self._take(block, to, events)
            else:
                break
        self._now = to
        return events

    # --- reading ------------------------------------------------------------------------------

    def decode_tokens_by(self, at: float) -> int:
        """`usage.decode_tokens` as it will be at `at`, told without letting time pass.

        Nothing may happen by then but passes that decode: `next_event_at` is after `at`.
        """
        tokens, each = self.usage.decode_tokens, len(self._decoders.tasks)
        if not each:
            return tokens
        plan = self._plan
        plan.turn_at(at)
        taken = plan.taken
        for block in plan.blocks:
            if block.decodes:
                tokens += each * (bisect_right(block.ends, at, taken) - taken)
            if block.end > at:
                break
            taken = 0
        return tokens

    def token_times(self, id: str) -> NDArray[np.float64]:  # noqa: A002
        """When the answer's tokens came, so far. Shape (tokens,), seconds.

        Raises KeyError for an id that is unknown or forgotten.
        """
        task = self._live.get(id) or self._over[id]
        return np.array(self._decoders.times(task), dtype=np.float64)

    def served(self, id: str) -> Served:  # noqa: A002
        """How a request went. Raises KeyError while it is not over, or once forgotten."""
        return self._over[id].served()

    def snapshot(self) -> Snapshot:
        """Every slot, or every running request where there are no slots, as of the latest pass."""
        views = [
            SlotView(index, "free", None, None, 0, 0, 0, 0, tokens)
            for index, tokens in self._memory.idle()
        ]
        views += map(self._view, self._running.values())
        views.sort(key=attrgetter("index"))
        free = self.design.parallel - len(self._running)
        share = self._memory.used_share()
        return Snapshot(self._now, tuple(views), free, len(self._queue), share)

    # --- calls --------------------------------------------------------------------------------

    def _check_time(self, at: float) -> None:
        if not at >= self._now:
            raise ValueError(f"time {at} s is before {self._now} s, which the box has reached")

    def _apply_calls(self, events: list[Event]) -> None:
        calls = self._calls
        while calls and calls[0].at <= self._at:
            _, task, cancels = calls.pop(0)
            if task.outcome is not None:
                continue
            if cancels:
                self._hang_up(task)
            else:
                self._receive(task, events)

    def _receive(self, task: Task, events: list[Event]) -> None:
        """A request arrives: it is turned away, or waits, perhaps cut."""
        design, request = self.design, task.request
        if too_long(design, task.prompt_tokens, request.max_tokens):
            if design.overflow == "reject":
                self._reject(task, TOO_LONG, events)
                return
            self._cut(task, events)
        if design.max_queue is not None and len(self._queue) >= design.max_queue:
            if not self._refused:
                self._admit(events)  # those who need not wait do not count
            if len(self._queue) >= design.max_queue:
                self._reject(task, QUEUE_FULL, events)
                return
        wanted, room = max(1, request.max_tokens), design.ctx - task.prompt_tokens
        task.wanted, task.truncated = min(wanted, room), room < wanted
        task.target = task.prompt_tokens
        self._queue[task.number] = task
        if len(self._queue) == 1:
            self._refused = False

    def _cut(self, task: Task, events: list[Event]) -> None:
        task.segments = cut_to_fit(task.request, self.design.ctx)
        kept = total_tokens(task.segments)
        task.cut_tokens = task.prompt_tokens - kept
        task.prompt_tokens = kept
        events.append(Event("cut", task.request.id, self._at, task.cut_tokens))

    def _reject(self, task: Task, reason: str, events: list[Event]) -> None:
        self._close(task, "rejected")
        events.append(Event("rejected", task.request.id, self._at, task.prompt_tokens, reason))

    def _hang_up(self, task: Task) -> None:
        if task.order < 0 or task.number in self._queue:
            self._queue.pop(task.number, None)
            self._refused = False
        else:
            self._leave(task)
            self._plan.restart(self._at)
        self._close(task, "cancelled")

    # --- in and out of the batch --------------------------------------------------------------

    def _admit(self, events: list[Event]) -> None:
        queue, usage, at = self._queue, self.usage, self._at
        seated = False
        while queue:
            task = next(iter(queue.values()))
            if (task.request.alone or self._solo) and self._running:
                self._refused = True  # some requests run with no other beside them
                break
            if not self._memory.seat(task):
                self._refused = True
                break
            del queue[task.number]
            self._solo = task.request.alone
            task.order = usage.admitted
            task.held = task.start
            usage.admitted += 1
            usage.cached_tokens += task.start
            usage.moved_tokens += task.moved
            if task.admitted_at is None:
                task.admitted_at = at
                task.cached_tokens = task.start
            self._reading.append(task)
            self._running[task.order] = task
            id_ = task.request.id
            events.append(made(Event, ("admitted", id_, at, task.prompt_tokens, "")))
            events.append(made(Event, ("cached", id_, at, task.start, "")))
            seated = True
        if seated:
            self._plan.restart(at)

    def _leave(self, task: Task, *, keep: bool = True) -> None:
        """`task` is in the batch no more, and its place is free."""
        memory, decoders = self._memory, self._decoders
        memory.settle()
        if task.order in decoders.tasks:
            decoders.remove(task)
            generated = len(task.times)
            written = task.prompt_tokens + generated - 1
        else:
            self._reading.remove(task)
            generated, written = len(task.times), task.held
        del self._running[task.order]
        memory.release(task, generated, written, keep=keep)
        self._refused = False

    def _close(self, task: Task, outcome: Outcome) -> None:
        """`task` is over: its note moves to those that are."""
        task.outcome = outcome
        task.finished_at = self._at
        if task.drafted:
            self.usage.drafted += task.drafted
            self.usage.accepted += task.accepted
        del self._live[task.request.id]
        if not task.forgotten:
            self._over[task.request.id] = task

    def _make_room(self, events: list[Event]) -> None:
        """The next pass does not fit: the last admitted steps back, or all die (llama.cpp, MLX)."""
        if self.design.memory == "paged":
            self._preempt(next(reversed(self._running.values())), events)
        else:
            for task in list(self._running.values()):
                self._leave(task, keep=False)
                self._close(task, "killed")
                self.usage.killed += 1
                n = task.prompt_tokens
                events.append(Event("rejected", task.request.id, self._at, n, POOL_EXHAUSTED))
        self._plan.restart(self._at)

    def _preempt(self, task: Task, events: list[Event]) -> None:
        """`task` gives back its memory and is first in the queue: it will be read again, with what
        it has of its answer."""
        self._leave(task)
        task.preemptions += 1
        self.usage.preempted += 1
        task.target = task.prompt_tokens + len(task.times)
        task.moved = 0
        self._queue[task.number] = task
        self._queue.move_to_end(task.number, last=False)
        self._refused = True  # or it would be back at once, and out again
        events.append(Event("preempted", task.request.id, self._at, len(task.times)))

    # --- passes -------------------------------------------------------------------------------

    def _take(self, block: Block, to: float, events: list[Event]) -> None:
        """The passes of the first block that end by `to` are over, as far as no call comes first:
        it is heard where the pass ends in which it comes. One at least ends by then."""
        ends, end, turn, decodes, reads = block
        plan, calls, usage, whole = self._plan, self._calls, self.usage, len(ends)
        taken = plan.taken
        count = whole if end <= to else bisect_right(ends, to, taken)
        if calls and calls[0].at < ends[count - 1]:
            count = bisect_left(ends, calls[0].at, taken) + 1
        passes, began_at, at = count - taken, self._at, ends[count - 1]
        usage.passes += passes
        usage.busy_s += at - began_at
        if len(self._running) >= self.design.parallel:
            usage.all_taken_s += at - began_at
        if decodes:
            new = ends if passes == whole else ends[taken:count]
            usage.decode_tokens += self._decoders.pass_over(new)
        for task, tokens in reads:
            if task.prefill_at is None:
                task.prefill_at = began_at
            task.held += tokens
            self._memory.read(task, tokens)
            usage.prefill_tokens += tokens
        self._at = at
        if count < whole:
            plan.taken = count
            return
        plan.taken = 0
        plan.blocks.popleft()
        if turn:
            self._turn(decodes, reads, events)

    def _turn(self, decodes: bool, reads: list[Read], events: list[Event]) -> None:
        """The pass just over was read in, or gave somebody the last token, or is told of."""
        decoders = self._decoders
        if decodes:
            if not self._leap:
                for task, gained in decoders.gains():
                    events.append(Event("tokens", task.request.id, self._at, gained))
            if decoders.next_finish <= decoders.beat:
                for task in decoders.finishing():
                    self._finish(task, events)
        for task, _ in reads:
            if task.held == task.target:
                self._know(task, events)
        self._plan.restart(self._at)

    def _know(self, task: Task, events: list[Event]) -> None:
        """All of `task`'s prompt has been read, which gives a token."""
        self._reading.remove(task)
        self._memory.known(task)
        task.times.append(self._at)
        if task.first_token_at is None:
            task.first_token_at = self._at
            events.append(made(Event, ("first_token", task.request.id, self._at, 1, "")))
        elif not self._leap:
            events.append(Event("tokens", task.request.id, self._at, 1))
        self._decoders.add(task)
        if len(task.times) == task.wanted:
            self._finish(task, events)

    def _finish(self, task: Task, events: list[Event]) -> None:
        outcome: Outcome = "length" if task.truncated else "done"
        self._leave(task)
        self._close(task, outcome)
        n = len(task.times)
        events.append(made(Event, ("finished", task.request.id, self._at, n, outcome)))

    # --- views --------------------------------------------------------------------------------

    def _view(self, task: Task) -> SlotView:
        assert task.seat is not None
        decodes = task.order in self._decoders.tasks
        generated = self._decoders.generated(task)
        return SlotView(
            index=task.seat,
            state="decode" if decodes else "prefill",
            request_id=task.request.id,
            task=task.number,
            prompt_tokens=task.prompt_tokens,
            cached_tokens=task.start,
            processed_tokens=task.held - task.start,
            generated=generated,
            held_tokens=task.prompt_tokens + generated - 1 if decodes else task.held,
        )


def _decoding(pricer: Pricer, design: BoxDesign) -> Decoding:
    page = design.page_tokens if design.memory == "paged" else 1
    if design.speculation is not None:
        return Drafters(pricer.window, page, design.speculation)
    return Decoders(pricer.window, page)


def _memory(design: BoxDesign, decoders: Decoding) -> Memory:
    if design.memory == "paged":
        return PagedMemory(design, decoders)
    if design.memory == "dynamic_batch":
        return DynamicMemory(design, decoders)
    return SlotMemory(design, decoders)
