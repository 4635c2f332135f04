"""Simulated requests per CPU second of a whole life: personas' coroutines, kernel, links and box.

Run `python benchmarks/simulate_speed.py [requests] [LINK …]`; `all` for the whole catalogue. Each
line is of one link, after one of a constant way. Records are made, as every use of them needs; the
second figure is with the records and their token times written to disk. As in `headroom-bench
simulate`, the garbage collector waits while the crowd lives.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from box_speed import PAGED, LinearPricer
from numpy.typing import NDArray

from headroom_bench.box import Box
from headroom_bench.catalog.network import networks
from headroom_bench.crowd.crowd import Crowd, Group
from headroom_bench.crowd.persona import load_persona
from headroom_bench.network import link_named
from headroom_bench.records import RequestRecord
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.simulate.world import Naming, SimulatedWorld

PEOPLE = 32
LINKS = (None, "gbe", "wifi6", "wifi-crowded", "internet-continental", "geo-satellite")
ROUNDS = 5


def live(requests: int, link: str | None, folder: Path) -> tuple[float, float, int]:
    """CPU seconds for so many requests of the shipped chat persona, the same with the rows written
    into `folder`, and the tokens of all answers."""
    persona = load_persona("chat-reader")
    crowd = Crowd("chat", 1, (Group(persona, PEOPLE),))
    records: list[RequestRecord] = []
    token_times: list[NDArray[np.float64]] = []

    def emit(record: RequestRecord, times: NDArray[np.float64]) -> None:
        records.append(record)
        token_times.append(times)

    links = {} if link is None else {persona.name: link_named(link)}
    box = Box.of(LinearPricer(), PAGED)
    world = SimulatedWorld(box, Naming("run", "box"), emit, links=links, max_requests=requests)
    gc.disable()
    began = time.process_time()
    world.run(crowd, None)
    lived = time.process_time()
    gc.enable()
    out = RunFolder(folder)
    out.write_rows("requests.jsonl", records)
    names = [record.request_id for record in records]
    out.write_token_times(zip(names, token_times, strict=True))
    written = time.process_time()
    return lived - began, written - began, sum(map(len, token_times))


def every_link() -> tuple[str | None, ...]:
    """The constant way and all of the catalogue; what only adds to a path, over Ethernet."""
    names = (
        n.id if n.rtt_ms is not None and n.up_mbit_s else f"{n.id} over gbe" for n in networks()
    )
    return None, *names


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    links = every_link() if sys.argv[2:] == ["all"] else tuple(sys.argv[2:]) or LINKS
    best: dict[str | None, tuple[float, float, int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(
            ROUNDS
        ):  # in turns, so that a busy moment of the machine spoils none of them
            for link in links:
                run = live(requests, link, Path(folder))
                best[link] = min(best.get(link, run), run)
    for link, (lived_s, written_s, tokens) in best.items():
        print(
            f"{link or 'constant way':26} {requests / lived_s:7,.0f} requests per CPU second, "
            f"{requests / written_s:7,.0f} with records written ({requests:,} requests, "
            f"{tokens:,} tokens)"
        )


if __name__ == "__main__":
    main()
