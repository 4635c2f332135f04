"""The box's rules once more, in the plainest way: every pass, every sequence, no sums.

Knows nothing of the box's code but its values. The property tests hold the box against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom_bench.box import BoxRequest, Event
from headroom_bench.roofline.pricer import Batch, Chunk, Pricer
from headroom_bench.segments import Segment, shared_prefix_tokens, total_tokens


@dataclass(frozen=True)
class Call:
    """A submit, or with `cancel` the hanging up of an earlier one."""

    at: float
    request: BoxRequest
    cancel: bool = False


@dataclass
class Seat:
    index: int
    text: tuple[Segment, ...] = ()
    valid: int = 0
    left_at: int = -1
    run: Run | None = None


@dataclass(eq=False)
class Run:
    request: BoxRequest
    prompt: int
    seat: Seat | None = None
    times: list[float] = field(default_factory=list)


@dataclass
class Outcome:
    events: list[Event]
    times: dict[str, list[float]]
    passes: int
    busy_s: float


class Stepper:
    def __init__(self, pricer: Pricer, slots: int, ctx: int, batch_tokens: int) -> None:
        self.pricer = pricer
        self.ctx = ctx
        self.batch_tokens = batch_tokens
        self.seats = [Seat(index) for index in range(slots)]
        self.queue: list[Run] = []
        self.running: list[Run] = []
        self.runs: dict[str, Run] = {}
        self.hung_up: set[str] = set()
        self.events: list[Event] = []
        self.leaves = 0
        self.passes = 0
        self.busy_s = 0.0

    def serve(self, calls: list[Call]) -> Outcome:
        waiting = sorted(calls, key=lambda call: call.at)
        at = waiting[0].at
        while True:
            while waiting and waiting[0].at <= at:
                self.hear(waiting.pop(0), at)
            self.admit(at)
            if self.running:
                at = self.step(at)
            elif waiting:
                at = waiting[0].at
            else:
                times = {id_: run.times for id_, run in self.runs.items()}
                return Outcome(self.events, times, self.passes, self.busy_s)

    def say(self, kind: str, run: Run, at: float, n: int, reason: str = "") -> None:
        self.events.append(Event(kind, run.request.id, at, n, reason))  # type: ignore[arg-type]

    def hear(self, call: Call, at: float) -> None:
        id_ = call.request.id
        if call.cancel:
            self.hung_up.add(id_)
            run = self.runs.get(id_)
            if run in self.queue:
                self.queue.remove(run)
            if run in self.running:
                self.leave(run)
            return
        run = self.runs[id_] = Run(call.request, total_tokens(call.request.segments))
        if id_ in self.hung_up:
            return
        if run.prompt >= self.ctx:
            self.say("rejected", run, at, run.prompt, "exceed_context_size")
        else:
            self.queue.append(run)

    def admit(self, at: float) -> None:
        while self.queue and any(seat.run is None for seat in self.seats):
            run = self.queue.pop(0)
            shared = {
                seat.index: min(shared_prefix_tokens(seat.text, run.request.segments), seat.valid)
                for seat in self.seats
                if seat.run is None
            }
            index = max(shared, key=lambda i: (shared[i], -i))
            if not shared[index] > 0.1 * run.prompt:
                index = min(shared, key=lambda i: (self.seats[i].left_at, -i))
            seat = run.seat = self.seats[index]
            seat.run, seat.text = run, run.request.segments
            seat.valid = min(shared[index], run.prompt - 1)
            self.running.append(run)
            self.say("admitted", run, at, run.prompt)
            self.say("cached", run, at, seat.valid)

    def step(self, at: float) -> float:
        decoding = [run for run in self.running if run.times]
        contexts = [run.prompt + len(run.times) - 1 for run in decoding]
        budget = self.batch_tokens - len(decoding)
        reads = []
        for run in self.running:
            if not run.times and budget > 0:
                tokens = min(budget, run.prompt - run.seat.valid)
                budget -= tokens
                reads.append((run, tokens))
        chunks = tuple(Chunk(tokens, run.seat.valid) for run, tokens in reads)
        window = self.pricer.window
        if window is None:
            batch = Batch(len(decoding), sum(contexts), sum(contexts), len(decoding), chunks)
        else:
            capped = sum(min(context, window) for context in contexts)
            growing = sum(context < window for context in contexts)
            batch = Batch(len(decoding), sum(contexts), capped, growing, chunks)
        seconds = self.pricer.pass_s(batch)
        at += seconds
        self.busy_s += seconds
        self.passes += 1
        for run in decoding:
            run.times.append(at)
            self.say("tokens", run, at, 1)
        for run in decoding:
            self.finish_if_done(run, at)
        for run, tokens in reads:
            run.seat.valid += tokens
            if run.seat.valid == run.prompt:
                run.times.append(at)
                self.say("first_token", run, at, 1)
                self.finish_if_done(run, at)
        return at

    def finish_if_done(self, run: Run, at: float) -> None:
        full = run.prompt + len(run.times) >= self.ctx
        done = len(run.times) >= max(1, run.request.max_tokens)
        if done or full:
            self.leave(run)
            self.say("finished", run, at, len(run.times), "done" if done else "length")

    def leave(self, run: Run) -> None:
        seat = run.seat
        if run.times:
            answer = Segment("a", "assistant", "prose", run.request.answer_id, len(run.times))
            seat.text = (*run.request.segments, answer)
            seat.valid = run.prompt + len(run.times) - 1
        seat.run = None
        seat.left_at = self.leaves
        self.leaves += 1
        self.running.remove(run)
