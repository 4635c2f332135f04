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


def test_the_worst_since_a_moment() -> None:
    watch = LagWatch()
    watch.note(1_000_000_000, 7.0)
    watch.note(2_000_000_000, 3.0)
    watch.note(3_000_000_000, 5.0)
    assert watch.worst_since_ms(3_000_000_000) == 5.0
    assert watch.worst_since_ms(2_500_000_000) == 5.0
    assert watch.worst_since_ms(1_000_000_000) == 7.0
    assert watch.worst_since_ms(3_200_000_000) == 0.0


def test_nothing_seen_is_not_known() -> None:
    health = LagWatch().stop()
    assert (health.lag_p50_ms, health.lag_max_ms) == (None, None)


async def test_a_blocked_loop_is_seen_while_it_is_blocked_and_after() -> None:
    watch = LagWatch()
    watch.start()
    await asyncio.sleep(0.03)
    began = monotonic_ns()
    time.sleep(0.08)  # a callback that takes too long
    assert watch.worst_since_ms(began) >= 60
    await asyncio.sleep(0.03)
    assert watch.worst_since_ms(began) >= 60
    health = watch.stop()
    assert health.lag_max_ms is not None
    assert health.lag_max_ms >= 60
