"""Simulated requests per CPU second of a whole life: personas' coroutines, kernel, links and box.

Run `python benchmarks/simulate_speed.py [requests]`. Records are made, as every use of them needs,
but not written. One line each: over a constant way, over a shared radio, over a lossy path.
"""

from __future__ import annotations

import sys
import time

from box_speed import PAGED, LinearPricer

from headroom_bench.box import Box
from headroom_bench.crowd.crowd import Crowd, Group
from headroom_bench.crowd.persona import load_persona
from headroom_bench.network import link_named
from headroom_bench.records import RequestRecord
from headroom_bench.simulate.world import Naming, SimulatedWorld

PEOPLE = 32
LINKS = (None, "wifi6", "geo-satellite")


def live(requests: int, link: str | None) -> tuple[float, int]:
    """CPU seconds for so many requests of the shipped chat persona, and its tokens."""
    persona = load_persona("chat-reader")
    crowd = Crowd("chat", 1, (Group(persona, PEOPLE),))
    tokens = 0

    def emit(_: RequestRecord, times: list[float]) -> None:
        nonlocal tokens
        tokens += len(times)

    links = {} if link is None else {persona.name: link_named(link)}
    box = Box.of(LinearPricer(), PAGED)
    world = SimulatedWorld(box, Naming("run", "box"), emit, links=links, max_requests=requests)
    began = time.process_time()
    world.run(crowd, None)
    return time.process_time() - began, tokens


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    for link in LINKS:
        seconds, tokens = min(live(requests, link) for _ in range(3))
        print(
            f"{link or 'constant way':16} {requests / seconds:7,.0f} requests per CPU second "
            f"({requests:,} requests, {tokens:,} tokens)"
        )


if __name__ == "__main__":
    main()
