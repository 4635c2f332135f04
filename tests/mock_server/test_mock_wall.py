"""The box keeps the wall's time, slips when the process is late, and never bursts."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest
from mock_tools import Flat

from headroom_bench.box import Box, BoxRequest, Event, Served
from headroom_bench.segments import Segment
from mock_server.wall import Wall

PASS_S = 0.01


class Driven:
    """A box on the wall, and when each of its events was told."""

    def __init__(self, slots: int = 2, time_scale: float = 1.0, pass_s: float = PASS_S) -> None:
        self.told: list[tuple[float, Event]] = []
        self.cancelled: list[Served] = []
        self.box = Box(Flat(pass_s), slots, 4096, leap=False)
        self.wall = Wall(self.box, time_scale, self._events, self.cancelled.append)

    def _events(self, events: list[Event]) -> None:
        self.told += [(time.perf_counter(), event) for event in events]

    def ask(self, name: str, max_tokens: int) -> None:
        prompt = (Segment("ask", "user", "prose", name, 10),)
        self.wall.submit(BoxRequest(name, prompt, max_tokens, f"{name}/answer"))

    async def until_finished(self, count: int) -> None:
        while sum(event.kind == "finished" for _, event in self.told) < count:
            await asyncio.sleep(0.005)

    def token_times(self, name: str) -> list[float]:
        kinds = ("first_token", "tokens")
        return [at for at, event in self.told if event.id == name and event.kind in kinds]


async def test_deadlines_are_absolute() -> None:
    driven = Driven()
    started = time.perf_counter()
    driven.ask("a", 20)
    await driven.until_finished(1)
    took = driven.token_times("a")[-1] - started
    assert took + 1e-3 >= 20 * PASS_S
    assert took == pytest.approx(20 * PASS_S + driven.wall.slip_s, abs=0.004)


async def test_time_scale_divides_waits() -> None:
    driven = Driven(time_scale=10.0, pass_s=0.1)
    driven.ask("a", 20)
    await driven.until_finished(1)
    times = driven.token_times("a")
    lost = driven.wall.slip_s / 10
    assert times[-1] - times[0] == pytest.approx(19 * 0.01 + lost, abs=0.005)


async def test_a_late_process_slips_and_does_not_burst() -> None:
    driven = Driven()
    driven.ask("a", 12)
    await asyncio.sleep(0.035)
    time.sleep(0.08)  # the whole process stands still
    await driven.until_finished(1)
    times = driven.token_times("a")
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert max(gaps) > 0.075
    assert min(gaps) > PASS_S - 0.004
    assert 0.06 < driven.wall.worst_slip_s <= driven.wall.slip_s
    assert driven.wall.life_s() - driven.wall.box_s() == pytest.approx(driven.wall.slip_s, abs=1e-4)


async def test_passes_shorter_than_the_process_can_do_slow_down() -> None:
    driven = Driven(time_scale=1000.0, pass_s=0.001)
    driven.ask("a", 50)
    await driven.until_finished(1)
    assert driven.wall.slip_s > 0
    times = driven.token_times("a")
    assert all(b > a for a, b in itertools.pairwise(times))


@pytest.mark.parametrize("at_s", [0.005, 0.035])
async def test_cancel_frees_the_slot_at_the_next_boundary(at_s: float) -> None:
    driven = Driven(slots=1)
    driven.ask("a", 500)
    driven.ask("b", 2)
    await asyncio.sleep(at_s)
    driven.wall.cancel("a")
    await driven.until_finished(1)
    (served,) = driven.cancelled
    assert (served.id, served.outcome) == ("a", "cancelled")
    assert served.finished_at < at_s + 3 * PASS_S
    assert [event.id for _, event in driven.told if event.kind == "finished"] == ["b"]


async def test_cancel_of_the_queued_and_of_the_last() -> None:
    driven = Driven(slots=1)
    driven.ask("a", 500)
    driven.ask("b", 2)
    await asyncio.sleep(0.025)
    driven.wall.cancel("b")
    driven.wall.cancel("a")
    while len(driven.cancelled) < 2:
        await asyncio.sleep(0.001)
    assert driven.box.snapshot().free == 1
    driven.wall.catch_up()
    driven.ask("c", 2)
    await driven.until_finished(1)


async def test_answers_of_one_pass_are_told_together() -> None:
    driven = Driven()
    driven.ask("a", 10)
    driven.ask("b", 10)
    await driven.until_finished(2)
    ours, theirs = driven.token_times("a")[1:], driven.token_times("b")[:-1]
    assert all(abs(a - b) < 1e-3 for a, b in zip(ours, theirs, strict=True))
