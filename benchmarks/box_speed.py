"""Simulated requests per CPU second: 32 people in closed loops on a box with 8 slots.

Run `python benchmarks/box_speed.py [requests]`. Prints one line each for leaping and stepping.
"""

from __future__ import annotations

import heapq
import random
import sys
import time

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box import Box, BoxRequest
from headroom_bench.roofline.pricer import Batch
from headroom_bench.segments import Segment

PEOPLE = 32
SLOTS = 8
CTX_TOKENS = 8192
TURNS = 6
"""Turns of a conversation, after which a person starts a new one."""


class LinearPricer:
    """A fixed time, and a time for each token read, generated and kept."""

    window = None

    def pass_s(self, batch: Batch) -> float:
        seconds = 0.01 + 2e-4 * batch.decodes + 1e-8 * batch.kv_tokens
        for chunk in batch.chunks:
            seconds += 4e-4 * chunk.tokens + 1e-8 * chunk.tokens * chunk.context_tokens
        return seconds

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        first = 0.01 + 2e-4 * batch.decodes + 1e-8 * batch.kv_tokens
        return first + 1e-8 * batch.decodes * np.arange(k)


class Person:
    """Asks, reads, asks again with everything said before."""

    def __init__(self, index: int, rng: random.Random) -> None:
        self.index = index
        self.rng = rng
        self.asked = 0
        self.said: list[Segment] = []

    def ask(self) -> BoxRequest:
        if self.asked % TURNS == 0:
            self.said = [Segment("system", "system", "prose", "shared", 400)]
        key = f"{self.index}/{self.asked}"
        self.asked += 1
        self.said.append(Segment("ask", "user", "prose", f"{key}/ask", self.rng.randint(20, 300)))
        tokens = self.rng.randint(50, 400)
        request = BoxRequest(key, tuple(self.said), tokens, f"{key}/answer")
        self.said.append(Segment("answer", "assistant", "prose", f"{key}/answer", tokens))
        return request


def serve(requests: int, leap: bool) -> tuple[float, Box]:
    """Serve `requests` answers. Returns the CPU seconds it took, and the box."""
    rng = random.Random(1)
    people = [Person(index, rng) for index in range(PEOPLE)]
    asks = [(rng.uniform(0.0, 20.0), person.index) for person in people]
    heapq.heapify(asks)
    box = Box(LinearPricer(), SLOTS, CTX_TOKENS, leap=leap)
    served = 0
    began = time.process_time()
    while served < requests:
        event_at = box.next_event_at()
        if asks and (event_at is None or asks[0][0] < event_at):
            at, index = heapq.heappop(asks)
            box.submit(people[index].ask(), at)
            continue
        assert event_at is not None
        for event in box.advance(event_at):
            if event.kind == "finished":
                served += 1
                index = int(event.id.partition("/")[0])
                heapq.heappush(asks, (event.at + rng.uniform(1.0, 20.0), index))
                box.forget(event.id)
    return time.process_time() - began, box


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    for name, leap, count in (("leap", True, requests), ("step", False, requests // 20)):
        seconds, box = serve(count, leap)
        usage = box.usage
        print(
            f"{name}: {count / seconds:,.0f} requests per CPU second ({count:,} requests, "
            f"{usage.passes:,} passes, {usage.decode_tokens:,} decode tokens, "
            f"busy {usage.busy_s:,.0f} s)"
        )


if __name__ == "__main__":
    main()
