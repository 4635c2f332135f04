"""Virtual time for plain coroutines."""

from __future__ import annotations

from typing import Any

import pytest

from headroom_bench.box import Box
from headroom_bench.crowd.world import Stopped
from headroom_bench.simulate.kernel import Kernel, Process, Wait
from headroom_bench.simulate.world import Naming, SimulatedWorld

pytestmark = pytest.mark.filterwarnings("error")


class Agenda:
    """A kernel with one kind of wait."""

    def __init__(self) -> None:
        self.kernel = Kernel()
        self.waiting: list[Process] = []

    def until(self, moment: float) -> Wait[None]:
        def begin(process: Process) -> None:
            self.waiting.append(process)
            self.kernel.at(moment, process.resume)

        return Wait(begin)

    def serve(self) -> None:
        while self.kernel.next_at is not None:
            self.kernel.serve_next()


def test_moments_come_in_order_and_equal_ones_as_they_were_set() -> None:
    agenda, heard = Agenda(), []

    async def say(name: str, *moments: float) -> None:
        for moment in moments:
            await agenda.until(moment)
            heard.append((name, agenda.kernel.now))

    for name, moments in (("a", (3.0, 4.0)), ("b", (1.0, 4.0)), ("c", (3.0,))):
        Process(say(name, *moments)).resume()
    agenda.serve()
    # b asked for 4.0 at 1.0, before a did
    assert heard == [("b", 1.0), ("a", 3.0), ("c", 3.0), ("b", 4.0), ("a", 4.0)]


def test_a_past_moment_is_served_next_and_time_never_runs_back() -> None:
    kernel, seen = Kernel(), []
    kernel.at(5.0, lambda _: kernel.at(2.0, lambda _: seen.append(kernel.now)))
    kernel.at(6.0, lambda _: seen.append(kernel.now))
    while kernel.next_at is not None:
        kernel.serve_next()
    assert seen == [5.0, 6.0]


def test_a_value_is_what_await_gives() -> None:
    got: list[Any] = []
    waiting: list[Process] = []

    async def ask() -> None:
        got.append(await Wait[int](waiting.append))

    Process(ask()).resume()
    waiting[0].resume(42)
    assert got == [42]


def test_stopped_is_thrown_once_and_ends_the_process() -> None:
    agenda, thrown, ended = Agenda(), [], []

    async def live() -> None:
        try:
            await agenda.until(9.0)
        except Stopped:
            thrown.append(agenda.kernel.now)
            raise

    process = Process(live(), ended.append)
    process.resume()
    process.stop()
    assert thrown == [0.0]
    assert ended == [process]
    assert process.stopped


def test_whoever_swallows_the_stop_has_ended_by_itself() -> None:
    ended: list[Process] = []

    async def live() -> None:
        try:
            await Wait[None](lambda _: None)
        except Stopped:
            return

    process = Process(live(), ended.append)
    process.resume()
    process.stop()
    assert ended == [process]
    assert not process.stopped


def test_a_fault_of_a_persona_is_not_hidden() -> None:
    async def faulty() -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        Process(faulty()).resume()


def world() -> SimulatedWorld:
    class Unused:
        window = None

    return SimulatedWorld(Box(Unused(), 1, 10), Naming("r", "t"), lambda *_: None)  # type: ignore[arg-type]


def test_together_waits_for_the_slowest_and_passes_the_stop_on() -> None:
    here, heard = world(), []

    async def nap(seconds: float) -> None:
        await here.sleep(seconds)
        heard.append(seconds)

    async def live() -> None:
        await here.together()
        await here.together(nap(2.0), nap(1.0))
        heard.append(here.now())
        try:
            await here.together(nap(50.0), nap(1.0))
        except Stopped:
            heard.append("stopped")

    Process(live()).resume()
    kernel = here._kernel
    kernel.at(10.0, here._stop)
    while kernel.next_at is not None:
        kernel.serve_next()
    assert heard == [1.0, 2.0, 2.0, 1.0, "stopped"]
