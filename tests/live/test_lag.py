"""The lag watch: what it counts, and that its memory is bounded."""

from __future__ import annotations

import asyncio
import time

import pytest

from headroom_bench.live.clock import monotonic_ns
from headroom_bench.live.lag import LagWatch


def test_quantiles_are_those_of_the_latenesses() -> None:
    watch = LagWatch()
    for number in range(1000):
        watch.note(number * 10_000_000, 50.0 if number % 100 == 99 else 0.25)
    health = watch.stop()
    assert health.lag_p50_ms == pytest.approx(0.3)
    assert health.lag_p99_ms == pytest.approx(0.3)
    assert health.lag_max_ms == 50.0


def test_what_a_request_met_of_our_lateness() -> None:
    watch = LagWatch()
    second = 1_000_000_000
    watch.note(1 * second, 70.0)  # before it
    watch.note(2 * second, 3.0)
    watch.note(3 * second, 15.0)
    watch.note(3 * second + 20_000_000, 12.0)
    watch.note(4 * second, 8.0)
    seen = watch.seen(2 * second, 2 * second + 50_000_000, 4 * second - 50_000_000)
    assert (seen.worst_ms, seen.at_first_ms, seen.at_last_ms) == (15.0, 3.0, 8.0)
    assert seen.pauses_ms == 27.0, "pauses only, and not those before it was sent"
    calm = watch.seen(3 * second + 500_000_000, 3 * second + 600_000_000, 5 * second)
    assert (calm.at_first_ms, calm.at_last_ms, calm.pauses_ms) == (0.0, 0.0, 0.0)


def test_nothing_seen_is_not_known() -> None:
    health = LagWatch().stop()
    assert (health.lag_p50_ms, health.lag_max_ms) == (None, None)


async def test_a_blocked_loop_is_seen_while_it_is_blocked_and_after() -> None:
    watch = LagWatch()
    watch.start()
    await asyncio.sleep(0.03)
    began = monotonic_ns()
    time.sleep(0.08)  # a callback that takes too long
    during = watch.seen(began, monotonic_ns(), monotonic_ns())
    assert during.worst_ms >= 60
    assert during.pauses_ms >= 60
    await asyncio.sleep(0.03)
    assert watch.seen(began, began, monotonic_ns()).worst_ms >= 60
    health = watch.stop()
    assert health.lag_max_ms is not None
    assert health.lag_max_ms >= 60
