"""One request and its answer as they went over the wire, and where they go to."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol
from urllib.parse import unquote, urlsplit

from headroom_bench.errors import UserError
from headroom_bench.target import can_be_host

Ended = Literal[
    "complete",  # the message ended as HTTP says
    "marker",  # the stream's own end mark came; the body may still be open
    "eof",  # the connection closed in the middle of the message
    "reset",
    "connect_failed",
    "connect_timeout",
    "timeout",  # a phase took longer than allowed
    "not_http",
    "too_large",
    "abandoned",  # our person gave up
    "interrupted",  # the run was stopped
]


@dataclass(slots=True)
class Exchange:
    """What happened on the wire. Stamps are monotonic nanoseconds; 0 means that it never came."""

    started_ns: int = 0
    connected_ns: int = 0
    reused: bool = False
    sent_ns: int = 0
    headers_ns: int = 0
    first_byte_ns: int = 0
    end_ns: int = 0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    pieces: list[bytes] = field(default_factory=list)
    """The body as it arrived."""
    stamps_ns: list[int] = field(default_factory=list)
    """When each piece did. Two lists, not pairs: the garbage collector need not visit numbers and
    bytes, of which there are as many as there are tokens on their way."""
    ended: Ended = "eof"
    problem: str = ""

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL points: the pool's key, and what requests need from it."""

    host: str
    port: int
    tls: bool
    base_path: str

    @classmethod
    def of(cls, url: str) -> Origin:
        """Raises `UserError` for anything but an http(s) URL with a host.

        A message never shows the URL whole: it may hold a password or a key.
        """
        try:
            parts = urlsplit(url)
            port, host = parts.port, unquote(parts.hostname or "")
        except ValueError:  # a port that is none, half an IPv6 address; why shows what may be a key
            raise UserError(
                "the target's URL has no valid port or host; write http://HOST:PORT"
            ) from None
        if port == 0:
            raise UserError("the target's URL has port 0, where nothing can be reached")
        shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        if parts.scheme not in ("http", "https") or not host:
            raise UserError(f"{shown!r} is not a URL; write http://HOST:PORT")
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise UserError(
                f"{shown!r}: a target's URL takes no user, query or fragment; send keys in a header"
            )
        if not can_be_host(host) or not parts.path.isascii():
            raise UserError(f"{shown!r} holds letters that a URL cannot; encode them")
        if any(ord(letter) <= 32 or ord(letter) == 127 for letter in host + parts.path):
            raise UserError(f"{shown!r} holds blanks or control characters")
        tls = parts.scheme == "https"
        base = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host, port or (443 if tls else 80), tls, base)

    @property
    def netloc(self) -> str:
        """As the server gets to see it: a zone is this machine's business."""
        return self._at(self.host.partition("%")[0])

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self._at(self.host)}{self.base_path}"

    def _at(self, host: str) -> str:
        host = f"[{host}]" if ":" in host else host
        default = 443 if self.tls else 80
        return host if self.port == default else f"{host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host.partition("%")[0]).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")


class Transport(Protocol):
    """What carries exchanges to one origin."""

    name: str
    """As the summary's `harness.transport` says it."""
    opened: int
    """Connections that were made."""
    peak_in_flight: int

    async def exchange(
        self,
        path: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        patience_s: float | None = None,
        on_sent: Callable[[Exchange], None] | None = None,
    ) -> Exchange:
        """POSTs `body` and reads the answer to its end, whatever that end is. Never raises.

        `patience_s` is wall time: a silence longer than it ends the exchange as `abandoned`.
        `on_sent` is called when the request was handed to a connected socket.
        """
        ...

    def interrupt(self) -> None:
        """Ends every exchange in flight now, and those that are asked for later at once."""
        ...

    async def aclose(self) -> None:
        """Ends what is in flight and closes every connection, within seconds."""
        ...
