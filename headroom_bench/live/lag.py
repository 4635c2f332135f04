"""The harness watches itself: how late its own event loop runs."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from headroom_bench.live.clock import monotonic_ns
from headroom_bench.measures import quantile

TICK_S = 0.01
_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class HarnessHealth:
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    cpu_share: float | None
    """Share of one core that this process used while it measured."""


class LagWatch:
    """Wakes every `TICK_S` and notes by how much it was late."""

    def __init__(self) -> None:
        self._lags_ms: list[float] = []
        self._recent: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0
        self._wall_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        lag_ms = max(0.0, (now_s - self._due_s) * 1e3)
        self._lags_ms.append(lag_ms)
        self._recent.append((monotonic_ns(), lag_ms))
        self._due_s = now_s + TICK_S
        self._timer = loop.call_at(self._due_s, self._tick)

    def worst_since_ms(self, stamp_ns: int) -> float:
        """The largest lateness seen since a stamp (as far back as is remembered)."""
        worst = 0.0
        for seen_ns, lag_ms in reversed(self._recent):
            if seen_ns < stamp_ns:
                break
            worst = max(worst, lag_ms)
        return worst

    def stop(self) -> HarnessHealth:
        if self._timer is not None:
            self._timer.cancel()
        wall_s = time.perf_counter() - self._wall_s
        share = (time.process_time() - self._cpu_s) / wall_s if wall_s > 0 else None
        if not self._lags_ms:
            return HarnessHealth(None, None, None, share)
        lags = sorted(self._lags_ms)
        return HarnessHealth(quantile(lags, 0.5), quantile(lags, 0.99), lags[-1], share)
