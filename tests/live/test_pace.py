"""`--max-rps`: bounded always, and hardly below what was asked; in virtual time, so exactly."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from asyncio_throttle import throttler

from headroom_bench.live.pace import Pace


class _Skipping(selectors.SelectSelector):
    """Waits by moving the clock."""

    now_s = 1000.0
    looks = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now_s += timeout or 0.0
        self.looks += 1
        return super().select(0)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.skipping = _Skipping()
        super().__init__(self.skipping)

    def time(self) -> float:
        return self.skipping.now_s


def in_virtual_time(
    work: Callable[[_VirtualLoop], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch
) -> _VirtualLoop:
    loop = _VirtualLoop()
    monkeypatch.setattr(throttler.time, "monotonic", loop.time)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work(loop))
    return loop


def starts(
    max_rps: float, users: int, count: int, busy_s: float, monkeypatch: pytest.MonkeyPatch
) -> list[float]:
    """When `count` requests start: users ask again as soon as an answer has come."""
    found: list[float] = []

    async def crowd(loop: _VirtualLoop) -> None:
        pace = Pace(max_rps)

        async def user() -> None:
            while True:
                await pace.turn()
                if len(found) >= count:
                    return
                found.append(loop.time())
                await asyncio.sleep(busy_s)

        await asyncio.gather(*(user() for _ in range(users)))

    in_virtual_time(crowd, monkeypatch)
    return found


@pytest.mark.parametrize("max_rps", [0.5, 5, 50, 51, 300])
@pytest.mark.parametrize(("users", "busy_s"), [(1, 0.0), (40, 0.0), (400, 0.7)])
def test_the_rate_is_bounded_and_reached(
    max_rps: float, users: int, busy_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 300
    at = starts(max_rps, users, count, busy_s, monkeypatch)
    assert len(at) == count
    together = max(1, round(max_rps * 0.02))
    for first, next_one in zip(at, at[together:], strict=False):
        assert next_one - first >= together / max_rps - 1e-9, "never faster than asked"
    mean_rps = (count - together) / (at[-together] - at[0])
    could_rps = users / busy_s if busy_s else max_rps
    assert mean_rps >= 0.95 * min(max_rps, could_rps)
    assert mean_rps <= max_rps * 1.001


def test_who_comes_first_starts_first(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[int] = []

    async def queue(_: _VirtualLoop) -> None:
        pace = Pace(10)

        async def one(number: int) -> None:
            await pace.turn()
            order.append(number)

        await asyncio.gather(*(one(number) for number in range(30)))

    in_virtual_time(queue, monkeypatch)
    assert order == list(range(30))


def test_waiting_costs_the_same_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(waiters: int) -> int:
        async def crowd(_: _VirtualLoop) -> None:
            pace = Pace(5)
            waiting = [asyncio.ensure_future(pace.turn()) for _ in range(waiters)]
            await asyncio.sleep(2.0)
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

        return in_virtual_time(crowd, monkeypatch).skipping.looks

    assert looks(1000) <= looks(20) + 10
