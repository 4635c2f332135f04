"""`--max-rps`: request starts spaced evenly, for servers that are shared or paid for."""

from __future__ import annotations

import asyncio

from asyncio_throttle.throttler import Throttler

_LEAST_PERIOD_S = 0.02
"""At higher rates several starts share a period: waits of a millisecond would cost them a tenth."""
_LOOKS_PER_PERIOD = 40
_LEAST_LOOK_S = 0.001
"""Event loops tell time in milliseconds."""


class Pace:
    """At most `max_rps` starts a second of wall time; who comes first starts first.

    Only the foremost waiter looks at the throttler, so that waiting costs the same however many
    wait. A start is late by half a look on average: 1 / 80 of the period at low rates.
    """

    def __init__(self, max_rps: float) -> None:
        at_once = max(1, round(max_rps * _LEAST_PERIOD_S))
        period_s = at_once / max_rps
        look_s = max(_LEAST_LOOK_S, period_s / _LOOKS_PER_PERIOD)
        self._throttler = Throttler(rate_limit=at_once, period=period_s, retry_interval=look_s)
        self._foremost = asyncio.Lock()

    async def turn(self) -> None:
        """Waits until the next start is due."""
        async with self._foremost, self._throttler:
            pass
