"""The harness watches itself: how late its own event loop runs, and what it spends."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from headroom_bench.live.clock import monotonic_ns

TICK_S = 0.005
"""A pause may begin just after a tick: up to so much of it is not seen."""
_BIN_MS = 0.1
_BINS = 20_000
"""Lateness is counted in tenths of a millisecond up to two seconds, so that memory is bounded."""
_SPAN_NS = 100_000_000
_SPANS = 36_000
"""What each tenth of a second was like is remembered for an hour."""
LATE_MS = 10.0
"""A lateness beyond this is a pause: what arrived during it is stamped noticeably late."""


class _Span(NamedTuple):
    """A tenth of a second: its number, the worst lateness in it, and how long its pauses were."""

    number: int
    worst_ms: float
    pauses_ms: float


@dataclass(frozen=True, slots=True)
class LagSeen:
    """How late the loop was during one request, milliseconds of wall time."""

    worst_ms: float
    at_first_ms: float
    """Around the moment of its first token."""
    at_last_ms: float
    pauses_ms: float
    """All pauses of more than `LATE_MS` together."""


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
        self._spans: deque[_Span] = deque(maxlen=_SPANS)
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
        number = now_ns // _SPAN_NS
        span = _Span(number, lag_ms, lag_ms if lag_ms > LATE_MS else 0.0)
        if self._spans and self._spans[-1].number == number:
            before = self._spans.pop()
            worst_ms = max(before.worst_ms, lag_ms)
            span = _Span(number, worst_ms, before.pauses_ms + span.pauses_ms)
        self._spans.append(span)

    def seen(self, sent_ns: int, first_ns: int, last_ns: int) -> LagSeen:
        """The lateness during a request that ended just now, given the stamps of its sending and
        of its first and last token. A pause that goes on now counts; a moment's lateness is that
        of its tenth of a second and of the next, in which a pause before it may be noticed."""
        now_ns = monotonic_ns()
        overdue_ms = max(0.0, (now_ns - self._due_ns) / 1e6) if self._timer is not None else 0.0
        going_on = _Span(now_ns // _SPAN_NS, overdue_ms, overdue_ms * (overdue_ms > LATE_MS))
        since, first, last = (ns // _SPAN_NS for ns in (sent_ns, first_ns, last_ns))
        worst_ms = at_first_ms = at_last_ms = pauses_ms = 0.0
        for number, span_worst_ms, span_pauses_ms in itertools.chain(
            (going_on,), reversed(self._spans)
        ):
            if number < since:
                break
            pauses_ms += span_pauses_ms
            worst_ms = max(worst_ms, span_worst_ms)
            if 0 <= number - first <= 1:
                at_first_ms = max(at_first_ms, span_worst_ms)
            if 0 <= number - last <= 1:
                at_last_ms = max(at_last_ms, span_worst_ms)
        return LagSeen(worst_ms, at_first_ms, at_last_ms, pauses_ms)

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
