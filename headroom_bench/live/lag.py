"""The harness watches itself: how late its own event loop runs, and what it spends."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from headroom_bench.live.clock import monotonic_ns

TICK_S = 0.01
_BIN_MS = 0.1
_BINS = 20_000
"""Lateness is counted in tenths of a millisecond up to two seconds, so that memory is bounded."""
_SPAN_NS = 100_000_000
_SPANS = 36_000
"""The worst lateness of each tenth of a second is remembered for an hour."""


@dataclass(frozen=True, slots=True)
class HarnessHealth:
    lag_p50_ms: float | None
    lag_p99_ms: float | None
    lag_max_ms: float | None
    cpu_share: float | None
    """Share of one core that this process used while it measured."""


class LagWatch:
    """Wakes every `TICK_S` and notes by how much it was late.

    uvloop's timers have steps of a millisecond, so up to one millisecond is no lateness of ours.
    """

    def __init__(self) -> None:
        self._counts = [0] * (_BINS + 1)
        self._ticks = 0
        self._max_ms = 0.0
        self._spans: deque[tuple[int, float]] = deque(maxlen=_SPANS)
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0
        self._wall_s = 0.0
        self._cpu_s = 0.0

    def start(self) -> None:
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()
        self._set()

    def _set(self) -> None:
        self._due_ns = monotonic_ns() + int(TICK_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now_ns = monotonic_ns()
        self.note(now_ns, max(0.0, (now_ns - self._due_ns) / 1e6))
        self._set()

    def note(self, now_ns: int, lag_ms: float) -> None:
        """Counts one lateness."""
        self._ticks += 1
        self._max_ms = max(self._max_ms, lag_ms)
        self._counts[min(_BINS, int(lag_ms / _BIN_MS))] += 1
        span = now_ns // _SPAN_NS
        if self._spans and self._spans[-1][0] == span:
            self._spans[-1] = (span, max(self._spans[-1][1], lag_ms))
        else:
            self._spans.append((span, lag_ms))

    def worst_since_ms(self, stamp_ns: int) -> float:
        """The largest lateness since a stamp, or in the tenth of a second before it; one that is
        going on now counts."""
        overdue_ms = (monotonic_ns() - self._due_ns) / 1e6 if self._timer is not None else 0.0
        worst = max(0.0, overdue_ms)
        first = stamp_ns // _SPAN_NS
        for span, lag_ms in reversed(self._spans):
            if span < first:
                break
            worst = max(worst, lag_ms)
        return worst

    def stop(self) -> HarnessHealth:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wall_s = time.perf_counter() - self._wall_s
        share = (time.process_time() - self._cpu_s) / wall_s if wall_s > 0 else None
        if not self._ticks:
            return HarnessHealth(None, None, None, share)
        return HarnessHealth(self._quantile_ms(0.5), self._quantile_ms(0.99), self._max_ms, share)

    def _quantile_ms(self, q: float) -> float:
        """The upper edge of the bin that holds the quantile."""
        left = q * self._ticks
        for number, count in enumerate(self._counts):
            left -= count
            if left <= 0:
                return min(self._max_ms, (number + 1) * _BIN_MS)
        return self._max_ms
