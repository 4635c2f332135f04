"""Every design's rules once more, in the plainest way: every pass, every sequence, no sums.

Knows nothing of the box's code but its values and the draws of acceptance. Memories are in
`plain_memory`. The property tests hold the box against it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plain_memory import PlainDynamic, PlainPages, PlainSlots

from headroom_bench.box import BoxDesign, BoxRequest, Event
from headroom_bench.box.overflow import cut_to_fit
from headroom_bench.roofline.pricer import Batch, Chunk, Pricer
from headroom_bench.seeds import seed_of
from headroom_bench.segments import Segment, total_tokens


@dataclass(frozen=True)
class Call:
    """A submit, or with `cancel` the hanging up of an earlier one."""

    at: float
    request: BoxRequest
    cancel: bool = False


@dataclass
class Outcome:
    events: list[Event]
    times: dict[str, list[float]]
    passes: int
    busy_s: float


@dataclass(eq=False)
class PlainRun:
    request: BoxRequest
    segments: tuple[Segment, ...]
    prompt: int
    wanted: int = 0
    truncated: bool = False
    target: int = 0
    held: int = 0
    start: int = 0
    moved: int = 0
    reading: bool = True
    passes: int = 0
    times: list[float] = field(default_factory=list)


class PlainBox:
    def __init__(self, pricer: Pricer, design: BoxDesign) -> None:
        self.pricer = pricer
        self.design = design
        kinds = {"paged": PlainPages, "dynamic_batch": PlainDynamic}
        self.memory = kinds.get(design.memory, PlainSlots)(design)
        self.queue: list[PlainRun] = []
        self.refused = False
        self.running: list[PlainRun] = []
        self.decode_order: list[PlainRun] = []
        self.runs: dict[str, PlainRun] = {}
        self.hung_up: set[str] = set()
        self.events: list[Event] = []
        self.passes = 0
        self.busy_s = 0.0
        self.batches: list[Batch] = []

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

    def say(self, kind: str, run: PlainRun, at: float, n: int, reason: str = "") -> None:
        self.events.append(Event(kind, run.request.id, at, n, reason))  # type: ignore[arg-type]

    def hear(self, call: Call, at: float) -> None:
        id_ = call.request.id
        if call.cancel:
            self.hung_up.add(id_)
            run = self.runs.get(id_)
            if run in self.queue:
                self.queue.remove(run)
                self.refused = False
            if run in self.running:
                self.leave(run)
            return
        if id_ in self.hung_up:
            return
        request, ctx = call.request, self.design.ctx
        run = self.runs[id_] = PlainRun(request, request.segments, total_tokens(request.segments))
        wanted = max(1, request.max_tokens)
        if run.prompt + (wanted if self.design.counts_answer else 1) > ctx:
            if self.design.overflow == "reject":
                self.say("rejected", run, at, run.prompt, "exceed_context_size")
                return
            run.segments = cut_to_fit(request, ctx)
            kept = total_tokens(run.segments)
            self.say("cut", run, at, run.prompt - kept)
            run.prompt = kept
        most = self.design.max_queue
        if most is not None and len(self.queue) >= most:
            self.admit(at)
            if len(self.queue) >= most:
                self.say("rejected", run, at, run.prompt, "queue_full")
                return
        run.wanted = min(wanted, ctx - run.prompt)
        run.truncated = run.wanted < wanted
        run.target = run.prompt
        self.queue.append(run)
        if len(self.queue) == 1:
            self.refused = False

    def admit(self, at: float) -> None:
        while self.queue and not self.refused:
            run = self.queue[0]
            alone = any(other.request.alone for other in (*self.running, run))
            if (alone and self.running) or not self.memory.seat(run, self.running):
                self.refused = True
                return
            self.queue.pop(0)
            run.held, run.reading = run.start, True
            self.running.append(run)
            self.say("admitted", run, at, run.prompt)
            self.say("cached", run, at, run.start)

    def drafted(self, run: PlainRun) -> int:
        speculation = self.design.speculation
        return min(speculation.tokens, run.wanted - len(run.times) - 1) if speculation else 0

    def reads(self, decode_tokens: int) -> list[tuple[PlainRun, int]]:
        design = self.design
        budget = design.batch_tokens - (decode_tokens if design.mixed else 0)
        reads: list[tuple[PlainRun, int]] = []
        for run in self.running:
            if run.reading and budget > 0 and len(reads) != design.prompts_a_pass:
                tokens = min(budget, run.target - run.held, design.chunk_tokens or budget)
                reads.append((run, tokens))
                budget -= tokens
        return reads

    def step(self, at: float) -> float:
        decoding = list(self.decode_order)
        reads = self.reads(sum(1 + self.drafted(run) for run in decoding))
        if reads and not self.design.mixed:
            decoding = []
        writes = {id(run): 1 + self.drafted(run) for run in decoding}
        writes |= {id(run): tokens for run, tokens in reads}
        if not self.memory.fits(self.running, writes):
            self.make_room(at)
            return at
        seconds = self.pricer.pass_s(self.batch(decoding, reads))
        at += seconds
        self.busy_s += seconds
        self.passes += 1
        for run in decoding:
            gained = 1 + self.accepted(run)
            run.times += [at] * gained
            run.held += gained
            self.say("tokens", run, at, gained)
        for run, tokens in reads:
            run.held += tokens
        self.memory.settle(self.running)
        for run in sorted(decoding, key=self.running.index):
            self.finish_if_done(run, at)
        for run, _ in reads:
            if run.held == run.target:
                self.memory.known(run)
                run.reading = False
                self.decode_order.append(run)
                run.times.append(at)
                self.say("tokens" if len(run.times) > 1 else "first_token", run, at, 1)
                self.finish_if_done(run, at)
        return at

    def batch(self, decoding: list[PlainRun], reads: list[tuple[PlainRun, int]]) -> Batch:
        contexts = [run.held for run in decoding]
        window = self.pricer.window
        drafts = [self.drafted(run) for run in decoding]
        alike = [(run.segments, run.held) for run in decoding if run.request.greedy]
        batch = Batch(
            decodes=len(decoding),
            kv_tokens=sum(contexts),
            window_tokens=sum(min(context, window or context) for context in contexts),
            windows_growing=sum(context < (window or context + 1) for context in contexts),
            chunks=tuple(Chunk(tokens, run.held) for run, tokens in reads),
            verify=sum(drafts),
            draft_passes=max(drafts, default=0),
            lockstep=len(alike) - len(set(alike)),
            moved_tokens=sum(run.moved for run, _ in reads if run.held == run.start),
        )
        self.batches.append(batch)
        return batch

    def accepted(self, run: PlainRun) -> int:
        speculation = self.design.speculation
        if speculation is None:
            return 0
        text = run.request.id
        if run.request.greedy:
            text = repr([(part.content_id, part.tokens) for part in run.segments])
        number, run.passes = run.passes, run.passes + 1
        kind, drafted = run.request.kind, self.drafted(run)
        return speculation.accepted(kind, seed_of(text) | 1, number, drafted)

    def finish_if_done(self, run: PlainRun, at: float) -> None:
        if len(run.times) == run.wanted:
            self.leave(run)
            reason = "length" if run.truncated else "done"
            self.say("finished", run, at, len(run.times), reason)

    def make_room(self, at: float) -> None:
        self.memory.settle(self.running)
        if self.design.memory == "paged":
            run = self.running[-1]
            self.leave(run)
            run.target, run.moved = run.prompt + len(run.times), 0
            self.queue.insert(0, run)
            self.refused = True
            self.say("preempted", run, at, len(run.times))
            return
        for run in list(self.running):
            self.leave(run, keep=False)
            self.say("rejected", run, at, run.prompt, "pool_exhausted")

    def leave(self, run: PlainRun, keep: bool = True) -> None:
        self.running.remove(run)
        if run in self.decode_order:
            self.decode_order.remove(run)
        self.memory.release(run, self.running, keep)
        self.refused = False
