"""Which answers our own lateness spoils: those whose figures it could have changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future

import pytest

from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import Vocabulary, common_words
from headroom_bench.crowd.world import Request
from headroom_bench.live.clock import RunClock, monotonic_ns
from headroom_bench.live.exchange import Exchange
from headroom_bench.live.lag import LagWatch
from headroom_bench.live.renderer import Renderer
from headroom_bench.live.world import Asking, LiveWorld
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment

MS = 1_000_000
FIRST_MS, LAST_MS = 500, 5_500
"""When the tokens came, after the request was sent."""


class Told:
    """A transport that tells of an answer of eleven tokens, sent at `sent_ns`."""

    name, opened, peak_in_flight = "told", 0, 0

    def __init__(self, sent_ns: int) -> None:
        self.sent_ns = sent_ns
        self.sent: list[bytes] = []
        """Every body that was sent."""
        self.word = " w"

    async def exchange(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        patience_s: float | None = None,
        on_sent: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        self.sent.append(body)
        stamps = [self.sent_ns + at * MS for at in range(FIRST_MS, LAST_MS + 1, 500)]
        told = Exchange(self.sent_ns, self.sent_ns, False, self.sent_ns, stamps[0], stamps[0])
        told.status, told.headers = 200, {"content-type": "text/event-stream"}
        told.stamps_ns, told.end_ns, told.ended = stamps, stamps[-1], "complete"
        word = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
        word %= self.word.encode()
        end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
        told.pieces = [word] * (len(stamps) - 1) + [word + end]
        return told

    def interrupt(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class Kept:
    def __init__(self) -> None:
        self.records: list[RequestRecord] = []

    def append(self, record: RequestRecord, event_times_s: Moments) -> Future[None]:
        self.records.append(record)
        written: Future[None] = Future()
        written.set_result(None)
        return written


async def measured(*lags: tuple[int, float], scale: float = 1.0) -> RequestRecord:
    """The record of the answer, our loop having been (after how many ms, by how many ms) late."""
    sent_ns = monotonic_ns() - (LAST_MS + 100) * MS
    lag, kept = LagWatch(), Kept()
    for after_ms, late_ms in lags:
        lag.note(sent_ns + after_ms * MS, late_ms)
    writing = Renderer(Vocabulary(common_words()), TemplateTokens(), "")
    asking = Asking("r", "t", "m", "openai")
    world = LiveWorld(Told(sent_ns), RunClock(scale), asking, writing, kept, lag)
    ask = (Segment("ask", "user", "prose", "x", 1),)
    await world.ask(Request("p-0/c0/t0/r0", "p-0/c0", "p", 0, 0, 0, ask, 20))
    (record,) = kept.records
    assert record.ok, record.error
    return record


@pytest.mark.parametrize(
    ("lags", "valid"),
    [
        ([], True),
        ([(FIRST_MS, 20.0)], True),  # of a TTFT of 500 ms
        ([(FIRST_MS, 30.0)], False),
        ([(FIRST_MS + 80, 30.0)], False),  # noticed after the token
        ([(2_000, 30.0)], True),  # one pause in the middle of five seconds
        ([(2_000, 30.0), (3_000, 30.0)], False),
        ([(at, 9.0) for at in range(0, LAST_MS, 20)], True),  # no pauses
        ([(LAST_MS, 300.0)], False),
        ([(-400, 900.0)], True),  # before it was sent
    ],
)
async def test_lateness_that_could_change_a_figure_spoils_it(
    lags: list[tuple[int, float]], valid: bool
) -> None:
    record = await measured(*lags)
    assert record.valid is valid
    assert record.harness_lag_ms == max((ms for at, ms in lags if at >= 0), default=0.0)


async def test_faster_than_life_a_millisecond_spoils_more() -> None:
    """At ten times life, 30 ms on the wall are 300 of a TTFT of 5,000."""
    assert not (await measured((FIRST_MS, 30.0), scale=10.0)).valid
    assert (await measured((FIRST_MS, 20.0), scale=10.0)).valid
