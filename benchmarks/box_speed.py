"""Simulated requests per CPU second: a chat crowd in closed loops on the virtual box.

Run `python benchmarks/box_speed.py [requests]`; best of three. One line a design: a paged box with
batching and caches, then with one feature at a time switched off or on. The crowd's own work
(drawing lengths, a heap of moments) is in the figure; records are not. Then the same people as
coroutines of `simulate`'s kernel, and how far the moments at which answers end differ between
leaping and stepping, over all designs.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box import Box, BoxDesign, BoxRequest, split_slots, typical_speculation
from headroom_bench.roofline.pricer import Batch
from headroom_bench.segments import Segment
from headroom_bench.simulate.kernel import Kernel, Process, Wait

PEOPLE = 32
CTX_TOKENS = 8192
TURNS = 6
"""Turns of a conversation, after which a person starts a new one."""

PAGED = BoxDesign("paged", CTX_TOKENS, 256, pool_tokens=65_536)
"""vLLM's defaults over a pool that the crowd's conversations do not all fit into."""
LLAMA_CPP = BoxDesign("unified_slots", 32_768, 4, pool_tokens=32_768, host_tokens=300_000)

DESIGNS: dict[str, tuple[BoxDesign, bool]] = {
    "paged, batching, caches": (PAGED, True),
    "  without prefix cache": (replace(PAGED, prefix_cache=False), True),
    "  pages of one token": (replace(PAGED, page_tokens=1), True),
    "  prompts and decodes apart": (replace(PAGED, mixed=False, batch_tokens=8192), True),
    "  budget of 256 tokens a pass": (replace(PAGED, batch_tokens=256), True),
    "  answers reserved, no preemption": (replace(PAGED, reserve_answer=True), True),
    "  pool of 12,288: preemption": (replace(PAGED, pool_tokens=12_288), True),
    "  one at a time": (replace(PAGED, parallel=1), True),
    "  speculation, 4 drafted": (replace(PAGED, speculation=typical_speculation(4)), True),
    "  every pass stepped": (PAGED, False),
    "split slots": (split_slots(8, CTX_TOKENS), True),
    "  host memory cache": (replace(split_slots(8, CTX_TOKENS), host_tokens=300_000), True),
    "unified slots, host cache": (LLAMA_CPP, True),
    "dynamic batch, 10 caches": (
        BoxDesign("dynamic_batch", CTX_TOKENS, 32, chunk_tokens=2048, mixed=False), True,
    ),
}  # fmt: skip
SLOW = ("speculation", "stepped")
"""Their cost grows with tokens: a tenth of the requests will do."""

PASSES = np.arange(10_000.0)
SYSTEM = Segment("system", "system", "prose", "shared", 400)


class LinearPricer:
    """A fixed time, and a time for each token read, generated, verified and kept."""

    window = None

    def pass_s(self, batch: Batch) -> float:
        seconds = 0.01 + 2e-4 * (batch.decodes + batch.verify) + 1e-8 * batch.kv_tokens
        for chunk in batch.chunks:
            seconds += 4e-4 * chunk.tokens + 1e-8 * chunk.tokens * chunk.context_tokens
        return seconds

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        first = 0.01 + 2e-4 * batch.decodes + 1e-8 * batch.kv_tokens
        return first + 1e-8 * batch.decodes * PASSES[:k]


class Person:
    """Asks, reads, asks again with everything said before."""

    def __init__(self, index: int, rng: random.Random) -> None:
        self.index = index
        self.rng = rng
        self.asked = 0
        self.said: list[Segment] = []

    def ask(self) -> BoxRequest:
        if self.asked % TURNS == 0:
            self.said = [SYSTEM]
        key = f"{self.index}/{self.asked}"
        self.asked += 1
        asked = 20 + int(280 * self.rng.random())
        self.said.append(Segment("ask", "user", "prose", f"{key}/ask", asked))
        tokens = 50 + int(350 * self.rng.random())
        answer_id = f"{key}/answer"
        request = BoxRequest(key, tuple(self.said), tokens, answer_id)
        self.said.append(Segment("answer", "assistant", "prose", answer_id, tokens))
        return request


@dataclass(frozen=True)
class Life:
    """What it took to serve a crowd."""

    seconds: float
    """Of CPU."""
    box: Box
    ends: list[float]
    """When the answers ended, in seconds of the box's clock."""


def serve(design: BoxDesign, requests: int, leap: bool) -> Life:
    """Serve `requests` answers."""
    rng = random.Random(1)
    people = [Person(index, rng) for index in range(PEOPLE)]
    asks = [(rng.uniform(0.0, 20.0), person.index) for person in people]
    heapq.heapify(asks)
    box = Box.of(LinearPricer(), design, leap)
    ends: list[float] = []
    began = time.process_time()
    while len(ends) < requests:
        ask_at = asks[0][0] if asks else float("inf")
        event_at = box.next_event_at(by=ask_at)
        if event_at is None or ask_at < event_at:
            at, index = heapq.heappop(asks)
            box.submit(people[index].ask(), at)
            continue
        for kind, id_, at, _, _ in box.advance(event_at):
            if kind in ("finished", "rejected"):
                ends.append(at)
                read_s = 1.0 + 19.0 * rng.random()
                heapq.heappush(asks, (at + read_s, int(id_.partition("/")[0])))
                box.forget(id_)
    return Life(time.process_time() - began, box, ends)


class Crowd:
    """The same people as coroutines of `simulate`'s kernel."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.kernel = Kernel()
        self.waiting: dict[str, Process] = {}

    def sleep(self, seconds: float) -> Wait[None]:
        kernel = self.kernel
        return Wait(lambda process: kernel.at(kernel.now + seconds, process.resume))

    def ask(self, request: BoxRequest) -> Wait[None]:
        def begin(process: Process) -> None:
            self.waiting[request.id] = process
            self.box.submit(request, self.kernel.now)

        return Wait(begin)

    async def live(self, person: Person) -> None:
        await self.sleep(20.0 * person.rng.random())
        while True:
            await self.ask(person.ask())
            await self.sleep(1.0 + 19.0 * person.rng.random())


def serve_kernel(design: BoxDesign, requests: int, leap: bool) -> Life:
    """Serve `requests` answers to coroutines."""
    rng = random.Random(1)
    crowd = Crowd(Box.of(LinearPricer(), design, leap))
    kernel, box = crowd.kernel, crowd.box
    ends: list[float] = []
    began = time.process_time()
    for index in range(PEOPLE):
        Process(crowd.live(Person(index, rng))).resume()
    while len(ends) < requests:
        agenda_at = kernel.next_at
        box_at = box.next_event_at(by=math.inf if agenda_at is None else agenda_at)
        if box_at is None or (agenda_at is not None and agenda_at < box_at):
            kernel.serve_next()
            continue
        kernel.now = box_at
        for kind, id_, at, _, _ in box.advance(box_at):
            if kind in ("finished", "rejected"):
                ends.append(at)
                box.forget(id_)
                crowd.waiting.pop(id_).resume()
    return Life(time.process_time() - began, box, ends)


def difference(design: BoxDesign, requests: int) -> float:
    """The most that the end of an answer differs between leaping and stepping, of the moment."""
    leaped, stepped = (np.array(serve(design, requests, leap).ends) for leap in (True, False))
    return float(np.max(np.abs(leaped / stepped - 1.0)))


def tell(name: str, lives: Iterable[Life]) -> None:
    """A line of the table: the quickest of `lives`."""
    life = min(lives, key=lambda life: life.seconds)
    count, usage = len(life.ends), life.box.usage
    cached = usage.cached_tokens / max(1, usage.cached_tokens + usage.prefill_tokens)
    print(
        f"{name:34} {count / life.seconds:7,.0f} requests per CPU second; {count:,} requests, "
        f"{usage.decode_tokens:,} tokens, {cached:.0%} of prompts cached, "
        f"{usage.preempted:,} preempted, {usage.killed:,} killed",
        flush=True,
    )


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for name, (design, leap) in DESIGNS.items():
        count = requests // 10 if any(word in name for word in SLOW) else requests
        tell(name, (serve(design, count, leap) for _ in range(3)))
    tell("paged, people as coroutines", (serve_kernel(PAGED, requests, True) for _ in range(3)))
    worst = max((difference(design, requests // 20), name) for name, (design, _) in DESIGNS.items())
    print(f"leaping against stepping: {worst[0]:.1e} of the time at worst ({worst[1].strip()})")


if __name__ == "__main__":
    main()
