"""A box on the wall clock: each pass is told of when its end has come.

Deadlines are absolute, so lateness of one pass does not add to the next. Where the process was too
late for that, the box's time slips: the box stands still for as long, and what was lost is counted.
It never catches up in a burst, which no real server would do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf

from headroom_bench.box import Box, BoxRequest, Event, Served

_TOLERANCE_S = 0.002
"""Wall seconds of lateness that a timer's grain explains, so absolute deadlines absorb them."""
_EARLY_S = 0.001
"""Timers of the event loop have a grain of about 1 ms: they are set that much early, and what is
left passes in empty rounds of the loop, which still serve sockets. Measured at 73 passes a second
under uvloop: 0.24 ms late at the median without, 0.001 ms with, for 4 % of a core; under asyncio
1.25 and 0.5 ms. A thread that sleeps and calls back was 0.2 ms late at no less cost."""
_POLL_S = 0.005
"""While a cancel waits for its pass boundary, which the box does not name, look this often."""


class Wall:
    """Drives `box`, whose time runs `time_scale` times as fast as the wall's.

    Times ending in `_s` are the box's seconds unless they say wall. `on_events` gets what happened,
    and `on_cancelled` each cancelled request once its cancel has taken effect.
    """

    def __init__(
        self,
        box: Box,
        time_scale: float,
        on_events: Callable[[list[Event]], None],
        on_cancelled: Callable[[Served], None],
    ) -> None:
        self.slip_s = 0.0
        """Box seconds lost because the process was late."""
        self.worst_slip_s = 0.0
        self.slips = 0
        self._box = box
        self._scale = time_scale
        self._on_events = on_events
        self._on_cancelled = on_cancelled
        self._loop = asyncio.get_running_loop()
        self._started = time.perf_counter()
        self._zero_ns = time.monotonic_ns()  # the same moment, on the clock that processes share
        self._due: float | None = None
        self._known: float | None = (
            None  # when the box will next speak, if a cancel changes nothing
        )
        self._reached = 0.0
        self._timer: asyncio.Handle | None = None
        self._cancelling: set[str] = set()
        self._telling = False
        self._stopped = False

    def life_s(self) -> float:
        """Seconds since the start: wall time, scaled."""
        return (time.perf_counter() - self._started) * self._scale

    def box_s(self) -> float:
        """What the box's clock shows: life less what slipped."""
        return self.life_s() - self.slip_s

    def ns_of(self, at: float) -> int:
        """When the box's moment `at` is or was, in monotonic nanoseconds, as far as time slipped
        until now."""
        return self._zero_ns + int((at + self.slip_s) / self._scale * 1e9)

    def submit(self, request: BoxRequest) -> None:
        """`request` arrives now. Raises ValueError as `Box.submit` does."""
        self.catch_up()
        self._box.submit(request, self._now())
        self._plan()
        self.catch_up()  # an idle box admits at once; told later, it would seem late

    def cancel(self, id: str) -> None:  # noqa: A002
        """The asker of `id`, which is not over, hung up now."""
        if not self._telling:
            self.catch_up()
        if not self._cancelling:
            self._known = self._box.next_event_at()
        self._box.cancel(id, self._now())
        self._cancelling.add(id)
        if not self._telling:
            self._plan()

    def catch_up(self) -> None:
        """Bring the box to now. What is due is told first."""
        if self._due is not None and self._due <= self.box_s():
            self._turn()
            self._plan()
        now = self._now()
        if self._due is None or now < self._due:
            self._advance(now)

    def stop(self) -> None:
        """No more events, whatever is still asked."""
        self._stopped = True
        self._due = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- inside -------------------------------------------------------------------------------

    def _now(self) -> float:
        """The box's present: not before what it has reached, nor after what it has yet to tell."""
        now = max(self.box_s(), self._reached)
        return now if self._due is None else max(self._reached, min(now, self._due))

    def _wake(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self.box_s():
            self._arm()
            return
        try:
            self._turn()
        finally:  # whatever a listener does, time goes on
            self._plan()

    def _turn(self) -> None:
        """What is due happens, late or not."""
        due = self._due
        assert due is not None
        late = max(0.0, self.box_s() - due)
        self._advance(due)
        following = None if self._cancelling else self._box.next_event_at()
        too_close = following is not None and following <= self.box_s()
        if late > _TOLERANCE_S * self._scale or (late and too_close):
            self.slip_s += late
            self.worst_slip_s = max(self.worst_slip_s, late)
            self.slips += 1

    def _advance(self, to: float) -> None:
        events = self._box.advance(to)
        self._reached = to
        self._telling = True
        try:
            if events:
                self._on_events(events)
            if self._cancelling:
                self._tell_cancelled(events)
        finally:
            self._telling = False

    def _tell_cancelled(self, events: list[Event]) -> None:
        for event in events:
            if event.kind in ("finished", "rejected"):  # before the cancel took effect
                self._cancelling.discard(event.id)
        for id in tuple(self._cancelling):  # noqa: A001
            try:
                served = self._box.served(id)
            except KeyError:  # the boundary is still to come
                continue
            self._cancelling.discard(id)
            self._on_cancelled(served)

    def _plan(self) -> None:
        """Set the timer for what comes next."""
        if self._cancelling:
            # Asking the box to look past a cancel makes it simulate; looking often is cheaper.
            known = self._known if self._known and self._known > self._reached else inf
            self._due = min(known, self.box_s() + _POLL_S * self._scale)
        else:
            self._due = self._known = self._box.next_event_at()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due is None or self._stopped:
            return
        wait = (self._due - self.box_s()) / self._scale
        if wait <= _EARLY_S:
            self._timer = self._loop.call_soon(self._wake)
        else:
            self._timer = self._loop.call_later(wait - _EARLY_S, self._wake)
