"""Faults before an answer: refusals, wrong answers, limits, and what happens to the log."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar, Literal

from mock_server.faults import Fault, known
from mock_server.logs import Lines

Instead = Literal["", "busy", "limited", "loading", "html", "not_http", "missing"]
"""What is answered instead of an answer."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The server at a request's arrival."""

    generates: bool
    """It asks for an answer, not for the server's state."""
    health: bool
    calls: int
    """Requests for an answer before it."""
    active: int
    """Requests for an answer that are not over."""


@dataclass
class RequestFault(Fault):
    """A fault that decides before the request is looked at."""

    plain: ClassVar[bool] = False
    """A stream is answered in one piece."""

    def instead(self, _: Moment, /) -> Instead:
        return ""

    def retry_after_s(self) -> float:
        return 0.0


@known
@dataclass
class RateLimit(RequestFault):
    """429 with `Retry-After: SECONDS`."""

    name = "rate-limit"
    reading = "failed as rate limited; asked again only after that time, if at all"
    seconds: float = 1.0

    def instead(self, moment: Moment, /) -> Instead:
        return "limited" if moment.generates else ""

    def retry_after_s(self) -> float:
        return self.seconds


@known
@dataclass
class Overload(RequestFault):
    """With STREAMS requests under way, others get 503 and `Retry-After: SECONDS`."""

    name = "overload"
    reading = "failed as unavailable; the answered ones count alone, and the share is told"
    streams: int = 4
    seconds: float = 1.0

    def instead(self, moment: Moment, /) -> Instead:
        return "busy" if moment.generates and moment.active >= self.streams else ""

    def retry_after_s(self) -> float:
        return self.seconds


@known
@dataclass
class Loading(RequestFault):
    """The first CALLS requests get 503 `Loading model`."""

    name = "loading"
    reading = "failed as unavailable, or waited out before the run"
    at_start_only = True
    calls: int = 3

    def instead(self, moment: Moment, /) -> Instead:
        return "loading" if moment.generates and moment.calls < self.calls else ""


@known
@dataclass
class HealthMissing(RequestFault):
    """`/health` is 404 while `/v1/models` is fine."""

    name = "health-missing"
    reading = "the server is up"

    def instead(self, moment: Moment, /) -> Instead:
        return "missing" if moment.health else ""


@known
@dataclass
class Html(RequestFault):
    """An HTML page with status 200 instead of an answer."""

    name = "html"
    reading = "failed as nonsense, with the page's beginning"

    def instead(self, moment: Moment, /) -> Instead:
        return "html" if moment.generates else ""


@known
@dataclass
class NotHttp(RequestFault):
    """Another protocol's greeting instead of HTTP, then the connection closes."""

    name = "not-http"
    reading = "failed as no HTTP"

    def instead(self, moment: Moment, /) -> Instead:
        return "not_http" if moment.generates else ""


@known
@dataclass
class PlainJson(RequestFault):
    """A streaming request is answered with one JSON object."""

    name = "plain-json"
    reading = "failed as nonsense, or read as an answer without a first token's time"
    plain = True


@known
@dataclass
class TruncatedBody(RequestFault):
    """One JSON object, whose Content-Length promises more than comes before the close."""

    name = "truncated-body"
    reading = "failed as truncated"
    plain = True


@known
@dataclass
class Queue(RequestFault):
    """Only STREAMS requests are taken in at once; the others wait before anything is sent."""

    name = "queue"
    reading = "successes whose first token is late; concurrency is what the server let in"
    at_start_only = True
    streams: int = 100


@known
@dataclass
class KvExhausted(RequestFault):
    """When this answer has TOKENS tokens, every request with a slot fails (unified KV memory)."""

    name = "kv-exhausted"
    reading = "all of them failed, with the message; times and tokens so far are kept"
    tokens: int = 4


@known
@dataclass
class IdleClose(RequestFault):
    """The server closes a connection that was idle for SECONDS (wall)."""

    name = "idle-close"
    reading = "the next request opens a new connection; no failure"
    at_start_only = True
    seconds: float = 1.0


# --- the log ----------------------------------------------------------------------------------


@dataclass
class LogFault(RequestFault):
    """A fault of the server's log."""

    at_start_only = True

    def wrap(self, lines: Lines, _: int, /) -> Lines:
        return lines

    def shift_s(self, _: float, /) -> float:
        """What the log's clock shows too much."""
        return 0.0


@known
@dataclass
class LogSplit(LogFault):
    """Each write ends in the middle of a line; the rest comes with the next one."""

    name = "log-split"
    reading = "no line is lost or cut: an unfinished one is waited for"

    def wrap(self, lines: Lines, _: int, /) -> Lines:
        return _Split(lines)


@known
@dataclass
class LogLost(LogFault):
    """A SHARE of the lines is missing."""

    name = "log-lost"
    reading = "records that lost a line are partial; below 95 % joined, no server rates are shown"
    share: float = 0.1

    def wrap(self, lines: Lines, seed: int, /) -> Lines:
        return _Lost(lines, self.share, random.Random(seed))


@known
@dataclass
class LogClockJump(LogFault):
    """The log's clock leaps SECONDS ahead after AFTER seconds of life."""

    name = "log-clock-jump"
    reading = "requests are joined by their timings, not by time"
    seconds: float = 3600.0
    after: float = 10.0

    def shift_s(self, life_s: float, /) -> float:
        return self.seconds if life_s >= self.after else 0.0


class _Split:
    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._rest = ""

    def write(self, text: str) -> None:
        whole = self._rest + text
        cut = max(0, len(whole) - max(2, len(text) // 2))
        self._rest = whole[cut:]
        self._lines.write(whole[:cut])

    def flush(self) -> None:
        self._lines.flush()

    def close(self) -> None:
        self._lines.write(self._rest)
        self._rest = ""


class _Lost:
    def __init__(self, lines: Lines, share: float, chance: random.Random) -> None:
        self._lines = lines
        self._share = share
        self._chance = chance

    def write(self, text: str) -> None:
        kept = [line for line in text.splitlines(keepends=True) if self._kept()]
        self._lines.write("".join(kept))

    def _kept(self) -> bool:
        return self._chance.random() >= self._share

    def flush(self) -> None:
        self._lines.flush()
