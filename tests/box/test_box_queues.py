"""Where a box is a textbook's queue, it waits as the textbook says."""

from __future__ import annotations

from dataclasses import dataclass
from math import factorial

import numpy as np
import pytest
from box_toys import request
from numpy.typing import NDArray

from headroom_bench.box import Box, BoxDesign
from headroom_bench.roofline.pricer import Batch

REQUESTS = 12_000


@dataclass
class FlatPricer:
    """Every pass takes the same time."""

    seconds: float
    window: int | None = None

    def pass_s(self, batch: Batch) -> float:
        return self.seconds

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, self.seconds)


def run(box: Box, arrivals: NDArray[np.float64], lengths: NDArray[np.int64]) -> float:
    """Serve all. Returns the mean number in the system, by counting at every change."""
    inside, last, area = 0, 0.0, 0.0
    moments = [(float(at), number) for number, at in enumerate(arrivals)]
    while moments or inside:
        due = box.next_event_at(by=moments[0][0] if moments else float("inf"))
        if moments and (due is None or moments[0][0] <= due):
            at, number = moments.pop(0)
            box.submit(
                request(f"r{number}", (f"t{number}", 1), max_tokens=int(lengths[number])), at
            )
            change = 1
        else:
            assert due is not None
            at, change = due, 0
            for event in box.advance(due):
                change -= event.kind == "finished"
        area += inside * (at - last)
        inside, last = inside + change, at
    return area / last


def queue_s(box: Box) -> float:
    return float(np.mean([box.served(f"r{n}").queue_s for n in range(REQUESTS)]))


@pytest.mark.parametrize("load", [0.4, 0.8])
def test_one_slot_and_equal_answers_are_m_d_1(load: float) -> None:
    """Mean wait rho D / (2 (1 - rho)) (Pollaczek-Khinchine for a constant service time)."""
    rng = np.random.default_rng(11)
    service_s = 1.0
    arrivals = np.cumsum(rng.exponential(service_s / load, REQUESTS))
    box = Box(FlatPricer(service_s / 50), slots=1, ctx_per_slot=1000)
    inside = run(box, arrivals, np.full(REQUESTS, 50))
    assert queue_s(box) == pytest.approx(load * service_s / (2 * (1 - load)), rel=0.1)
    assert inside == pytest.approx(load + load**2 / (2 * (1 - load)), rel=0.1)


@pytest.mark.parametrize("servers", [1, 4])
@pytest.mark.parametrize("memory", ["split_slots", "paged"])
def test_slots_and_answers_of_exponential_length_are_m_m_c(memory: str, servers: int) -> None:
    """Mean wait C(c, a) / (c mu - lambda), with Erlang's C. Passes are much shorter than answers,
    so that waiting for a pass to end does not count."""
    rng = np.random.default_rng(12)
    load, tokens, pass_s = 0.75, 1000, 0.001
    lengths = np.maximum(1, rng.exponential(tokens, REQUESTS).round()).astype(np.int64)
    rate = load * servers / (tokens * pass_s)
    arrivals = np.cumsum(rng.exponential(1 / rate, REQUESTS))
    pool = 400_000 if memory == "paged" else None
    design = BoxDesign(memory, 100_000, servers, pool_tokens=pool)  # type: ignore[arg-type]
    box = Box.of(FlatPricer(pass_s), design)
    run(box, arrivals, lengths)
    offered = load * servers
    some = sum(offered**k / factorial(k) for k in range(servers))
    all_busy = offered**servers / factorial(servers) / (1 - load)
    erlang_c = all_busy / (some + all_busy)
    want = erlang_c / (servers / (tokens * pass_s) - rate)
    assert queue_s(box) == pytest.approx(want, rel=0.12)


@pytest.mark.parametrize("memory", ["unified_slots", "paged", "dynamic_batch"])
def test_littles_law(memory: str) -> None:
    """Mean number in the system = arrivals a second x mean time in it."""
    rng = np.random.default_rng(13)
    arrivals = np.cumsum(rng.exponential(0.25, REQUESTS))
    lengths = rng.integers(1, 200, REQUESTS)
    pool = 4000 if memory != "dynamic_batch" else None
    design = BoxDesign(memory, 512, 8, pool_tokens=pool)  # type: ignore[arg-type]
    box = Box.of(FlatPricer(0.01), design)
    inside = run(box, arrivals, lengths)
    served = [box.served(f"r{n}") for n in range(REQUESTS)]
    stays = np.mean([one.finished_at - one.submitted_at for one in served])
    rate = REQUESTS / max(one.finished_at for one in served)
    assert inside == pytest.approx(rate * stays, rel=1e-3)
