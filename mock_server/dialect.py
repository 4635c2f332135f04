"""What a dialect has to provide. All else is shared; quirks stay in the dialect's own file."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Protocol

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server.jobs import Job
from mock_server.logs import Lines, Log
from mock_server.options import MockOptions
from mock_server.refusals import RefusedError


class Voice:
    """How one route tells an answer: its events, and the answer in one piece.

    Bytes that are returned together are written together. A dialect's voices override what
    they have.
    """

    def opening(self, _: Job, /) -> bytes:
        """What is said before anything is known."""
        return b""

    def progress(self, _: Job, __: int, /) -> bytes:
        """So many of the prompt's tokens are in the slot."""
        return b""

    def tokens(self, job: Job, new: int, /) -> bytes:
        """What the newest `new` tokens show: `job.newest(new)`. Called in every pass that brought
        some."""
        raise NotImplementedError

    def ending(self, job: Job, /) -> list[bytes]:
        """What goes after the last token, one entry a write."""
        raise NotImplementedError

    def broken(self, message: str, /) -> bytes:
        """The stream fails."""
        raise NotImplementedError

    def whole(self, job: Job, /) -> bytes:
        """The answer in one piece, as JSON."""
        raise NotImplementedError


class Dialect(Protocol):
    """One kind of server."""

    name: str
    old_http: bool
    """Answers as HTTP/1.0 does: no chunks, the close is the end."""
    headers_with_first_token: bool
    ping_s: float | None
    """A stream that is silent for so many life seconds gets a comment, to keep the connection."""
    open_paths: tuple[str, ...]
    """Routes that no API key guards."""
    done_after_error: bool
    """A failed stream ends with `[DONE]`."""
    usage_each_choice: bool
    """With `n` above 1 each choice tells its own usage."""
    loads_on_demand: bool
    """The first request waits for the model; else every route says that it loads."""

    def add_to(self, app: web.Application, /) -> None:
        """The dialect's routes."""
        ...

    def headers(self, request: web.Request, /) -> dict[str, str]:
        """What every answer carries."""
        ...

    def stream_headers(self, request: web.Request, /) -> dict[str, str]: ...

    def json_headers(self, request: web.Request, /) -> dict[str, str]: ...

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        """Status, and the JSON of the error; plain text where it is `bytes`."""
        ...

    def stream_error(self, message: str, /, route: str = "") -> Any:
        """The JSON of an error in a stream of `route`."""
        ...

    def log(
        self, lines: Lines, clock: Callable[[], float], options: MockOptions, design: BoxDesign, /
    ) -> Log: ...


def dumps(value: Any) -> bytes:
    """JSON without blanks, text as it is."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")  # a lone surrogate becomes a question mark


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + dumps(value) + b"\n\n"


DONE = b"data: [DONE]\n\n"
