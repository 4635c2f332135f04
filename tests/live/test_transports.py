"""What both transports owe: phases, bounds, named failures, one send a request, a bounded end."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trustme
from proxy_server import ProxyServer, proxy_server
from raw_server import (
    CLOSE,
    DONE,
    DROP,
    END,
    HANG,
    HEAD,
    RESET,
    RawServer,
    Step,
    chunk,
    delta,
    event,
    finish,
    raw_server,
    usage,
)

from headroom_bench.errors import TargetError, UserError
from headroom_bench.live import intake
from headroom_bench.live.access import Access, Proxy, access_to, tls_context
from headroom_bench.live.exchange import Exchange, Origin, Transport
from headroom_bench.live.probe import Control
from headroom_bench.live.reading import has_token
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.live.transport_aiohttp import AiohttpTransport
from headroom_bench.live.wire import Wire
from headroom_bench.target import Target

WORD = chunk(event(delta(content=" a")))
ROLE = chunk(event(delta(role="assistant", content="")))
COMMENT = chunk(b": still here\n\n")
ANSWER: list[Step] = [HEAD, WORD, chunk(event(finish()) + event(usage(5, 1)) + DONE), END]
SHORT = 0.15
"""A phase that runs out in a test, seconds."""


@dataclass
class Through:
    """Makes a transport to a server: directly, or with aiohttp through a proxy."""

    name: str
    proxy: ProxyServer
    made: list[Transport] = field(default_factory=list)

    def __call__(self, server: RawServer, timeouts: Timeouts) -> Transport:
        if self.name == "httptools":
            self.made.append(Wire(Origin.of(server.url), timeouts=timeouts, has_token=has_token))
        else:
            self.made.append(AiohttpTransport(_over(self.proxy, server, timeouts), has_token))
        return self.made[-1]


@pytest.fixture(params=["httptools", "aiohttp"])
async def through(request: pytest.FixtureRequest) -> AsyncIterator[Through]:
    async with proxy_server() as proxy:
        through = Through(request.param, proxy)
        yield through
        for transport in through.made:
            await transport.aclose()


def _over(proxy: ProxyServer, server: RawServer, timeouts: Timeouts) -> Access:
    origin = Origin.of(f"{server.scheme}://model.test:{server.port}")
    return Access(origin, proxy=Proxy(proxy.url), timeouts=timeouts)


async def ask(transport: Transport, patience_s: float | None = None) -> Exchange:
    return await transport.exchange("/v1/x", {"X-A": "b"}, b"{}", patience_s=patience_s)


async def once(
    through: Through, script: Sequence[Step], timeouts: Timeouts, patience_s: float | None = None
) -> Exchange:
    async with raw_server(*script) as server:
        exchange = await ask(through(server, timeouts), patience_s)
        assert len(server.requests) == 1, "sent once"
        return exchange


async def test_an_answer_and_its_stamps(through: Through) -> None:
    async with raw_server(*[HEAD, 0.05, *ANSWER[1:]]) as server:
        transport = through(server, Timeouts())
        for number in range(2):
            exchange = await ask(transport)
            assert (exchange.ended, exchange.status) == ("complete", 200)
            assert exchange.reused == (number > 0)
            stamps = [exchange.started_ns, exchange.connected_ns, exchange.sent_ns]
            stamps += [exchange.headers_ns, exchange.first_byte_ns, exchange.end_ns]
            assert stamps == sorted(stamps)
            assert 0 < exchange.headers_ns < exchange.first_byte_ns - 30_000_000
            assert (
                exchange.body
                == b"".join(event(x) for x in (delta(content=" a"), finish(), usage(5, 1))) + DONE
            )
        assert transport.opened == 1
    assert server.requests[0].startswith(b"POST /v1/x HTTP/1.1\r\n")
    assert b"\r\nX-A: b\r\n" in server.requests[0]


# --- phases -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "timeouts", "told"),
    [
        ([HANG], Timeouts(headers_s=SHORT), "headers"),
        ([HANG], Timeouts(first_token_s=SHORT), "headers"),
        ([HEAD, HANG], Timeouts(first_token_s=SHORT), "first-token"),
        (
            [HEAD, ROLE, *[0.04, COMMENT] * 20, HANG],
            Timeouts(first_token_s=SHORT, silence_s=0.05),
            "first-token",
        ),
        ([HEAD, WORD, HANG], Timeouts(silence_s=SHORT), "silence"),
        ([HEAD, WORD, *[0.04, COMMENT] * 20, HANG], Timeouts(silence_s=SHORT), "silence"),
        (
            [HEAD, WORD, *[0.04, chunk(b": keep"), 0.02, chunk(b"-alive\n\n")] * 12, HANG],
            Timeouts(silence_s=SHORT),
            "silence",
        ),
        ([HEAD, *[WORD, 0.04] * 50, HANG], Timeouts(silence_s=0.1, request_s=0.3), "request"),
    ],
    ids=["headers", "headers as first token", "first token", "role and comments are no token",
         "silence", "comments are silence", "a comment cut in two", "a stream without end"],
)  # fmt: skip
async def test_a_phase_that_runs_out_is_named(
    through: Through, script: Sequence[Step], timeouts: Timeouts, told: str
) -> None:
    exchange = await once(through, script, timeouts)
    assert exchange.ended == "timeout"
    assert f"(--{told}-timeout)" in exchange.problem
    assert (exchange.end_ns - exchange.sent_ns) * 1e-9 < 0.6


async def test_slow_is_not_silent(through: Through) -> None:
    slow: list[Step] = [HEAD, 0.2, ROLE, 0.2, *[WORD, 0.05] * 6, *ANSWER[2:]]
    timeouts = Timeouts(first_token_s=1.0, silence_s=0.12)
    assert (await once(through, slow, timeouts)).ended == "complete"


async def test_the_latest_event_counts(through: Through) -> None:
    slow: list[Step] = [HEAD, *[WORD, 0.3] * 4, *ANSWER[2:]]  # the last but one is too old
    assert (await once(through, slow, Timeouts(silence_s=0.55))).ended == "complete"


async def test_patience_counts_from_the_last_event(through: Through) -> None:
    exchange = await once(through, [HEAD, WORD, *[0.04, COMMENT] * 20, HANG], Timeouts(), 0.12)
    assert exchange.ended == "abandoned"


# --- how answers break --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ([CLOSE], "eof"),
        ([HEAD, WORD, CLOSE], "eof"),
        ([HEAD, WORD, RESET], "reset"),
        ([b"SSH-2.0-OpenSSH_9.2\r\n", HANG], "not_http"),
        ([HEAD, *ANSWER[1:3], HANG], "marker"),
        ([b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", DONE, CLOSE], "complete"),
    ],
)
async def test_how_an_answer_breaks(through: Through, script: Sequence[Step], ended: str) -> None:
    exchange = await once(through, script, Timeouts())
    if ended == "reset" and exchange.connected_ns and through.name == "aiohttp":
        ended = "eof"  # the proxy of this test closes in an orderly way
    assert exchange.ended == ended


async def test_continue_and_early_hints_are_not_the_answer(through: Through) -> None:
    early = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    exchange = await once(through, [early, 0.02, *ANSWER], Timeouts())
    assert (exchange.ended, exchange.status) == ("complete", 200)
    assert "link" not in exchange.headers


# --- bounds -------------------------------------------------------------------------------------


async def test_one_endless_line(through: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LARGEST_ANSWER_BYTES", 2**20)
    endless: list[Step] = [HEAD, chunk(b"data: ")] + [chunk(b"x" * 65_536)] * 64
    exchange = await once(through, [*endless, HANG], Timeouts())
    assert exchange.ended == "too_large"
    assert len(exchange.body) <= 2**20 + 65_536


async def test_pieces_without_number(through: Through, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LARGEST_ANSWER_PIECES", 50)
    monkeypatch.setattr(intake, "CHECK_EVERY_BYTES", 100)
    tiny: list[Step] = [HEAD]
    for _ in range(200):
        tiny += [chunk(b"x"), 0.001]
    exchange = await once(through, [*tiny, HANG], Timeouts())
    assert exchange.ended == "too_large"
    assert len(exchange.pieces) <= 51


async def test_many_large_answers_together(
    through: Through, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The endless one is cut off; the small ones beside it are not."""
    monkeypatch.setattr(intake, "LARGEST_TOGETHER_BYTES", 2**20)
    async with raw_server(HEAD, WORD, 0.3, *ANSWER[2:]) as server:
        transport = through(server, Timeouts())
        small = [asyncio.create_task(ask(transport)) for _ in range(5)]
        await asyncio.sleep(0.1)
        server.script = [HEAD, *[chunk(b"x" * 65_536)] * 64, HANG]
        endless = await ask(transport)
        assert (endless.ended, "together" in endless.problem) == ("too_large", True)
        assert [(await each).ended for each in small] == ["complete"] * 5
        assert transport._held.size == transport._held.answers == 0


async def test_endless_headers_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    line = b"X-A: " + b"y" * 1000 + b"\r\n"
    async with raw_server(b"HTTP/1.1 200 OK\r\n", *[line] * 2000, HANG) as server:
        wire = Wire(Origin.of(server.url))
        exchange = await ask(wire)
        assert exchange.ended == "too_large"
        assert sum(map(len, exchange.headers.values())) <= 2 * intake.LARGEST_HEAD_BYTES


# --- one send -----------------------------------------------------------------------------------


async def test_a_connection_that_was_closed_unseen_is_not_written_to() -> None:
    """The close lies in the kernel, and the event loop has not come to it."""
    async with raw_server(*ANSWER, CLOSE) as server:
        wire = Wire(Origin.of(server.url))
        assert (await ask(wire)).ended == "complete"
        (kept,) = wire._idle
        assert kept.transport is not None
        kept.transport.pause_reading()  # so that the loop cannot see it
        await asyncio.sleep(0.05)
        assert kept.open
        exchange = await ask(wire)
        assert (exchange.ended, exchange.reused) == ("complete", False)
        assert len(server.requests) == 2
        wire.close()


async def test_a_request_that_may_have_been_processed_is_not_sent_again(through: Through) -> None:
    """The server takes a second request on a kept-alive connection, and hangs up on it."""
    answered = 0
    async with raw_server() as server:
        transport = through(server, Timeouts())
        server.script = ANSWER
        assert (await ask(transport)).ended == "complete"
        answered = len(server.requests)
        server.script = [CLOSE]
        exchange = await ask(transport)
        assert exchange.reused
        assert exchange.ended in ("eof", "reset")
        assert len(server.requests) == answered + 1


@pytest.mark.parametrize("end", [CLOSE, RESET])
@pytest.mark.parametrize(("came", "kept"), [((), True), ((HEAD,), False), ((HEAD, WORD), False)])
async def test_only_a_connection_that_brought_nothing_was_closed_while_it_was_kept(
    end: Step, came: tuple[Step, ...], kept: bool
) -> None:
    """A server that dies in the middle of an answer says so on a reused connection too."""
    async with raw_server(*ANSWER) as server:
        wire = Wire(Origin.of(server.url))
        assert (await ask(wire)).ended == "complete"
        server.script = [*came, 0.02, end]
        exchange = await ask(wire)
        assert exchange.reused
        assert exchange.ended in ("eof", "reset")
        assert ("kept-alive" in exchange.problem) == kept
        wire.close()


@pytest.mark.parametrize(("told", "reused"), [("timeout=1, max=9", False), ("timeout=60", True)])
async def test_a_connection_is_left_before_the_server_ends_it(told: str, reused: bool) -> None:
    head = HEAD.replace(b"\r\n\r\n", f"\r\nKeep-Alive: {told}\r\n\r\n".encode())
    async with raw_server(head, *ANSWER[1:]) as server:
        wire = Wire(Origin.of(server.url))
        await ask(wire)
        assert (await ask(wire)).reused == reused
        wire.close()


async def test_a_restarted_server_is_found_again(through: Through) -> None:
    async with raw_server(*ANSWER) as server:
        transport = through(server, Timeouts())
        assert (await ask(transport)).ended == "complete"
    down = await ask(transport)
    direct = through.name == "httptools"  # a proxy takes the request before it finds nobody
    assert down.ended in (("connect_failed",) if direct else ("eof", "reset"))
    async with raw_server(*ANSWER, port=server.port) as again:
        back = await ask(transport)
        assert (back.ended, back.reused) == ("complete", False)
        assert len(again.requests) == 1


# --- ends ---------------------------------------------------------------------------------------


async def test_interrupt_ends_what_is_in_flight_and_what_comes_later(through: Through) -> None:
    async with raw_server(HEAD, WORD, HANG) as server:
        transport = through(server, Timeouts())
        sent = asyncio.Event()
        going = asyncio.create_task(
            transport.exchange("/x", {}, b"{}", on_sent=lambda _: sent.set())
        )
        await sent.wait()
        await asyncio.sleep(0.02)
        transport.interrupt()
        assert (await going).ended == "interrupted"
        assert (await ask(transport)).ended == "interrupted"
        assert len(server.requests) == 1


async def test_interrupt_does_not_wait_for_a_connection() -> None:
    async with raw_server(HANG) as server:  # takes the connection and never shakes hands
        wire = Wire(Origin.of(f"https://127.0.0.1:{server.port}"))
        going = asyncio.create_task(ask(wire))
        await asyncio.sleep(0.05)
        wire.interrupt()
        async with asyncio.timeout(1):
            assert (await going).ended == "interrupted"


async def test_closing_is_bounded(through: Through) -> None:
    async with raw_server(HEAD, WORD, HANG) as server:
        transport = through(server, Timeouts())
        going = asyncio.create_task(ask(transport))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        await transport.aclose()
        assert (await going).ended == "interrupted"
        assert time.monotonic() - begun < 1


# --- TLS ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1", "model.test").configure_cert(context)
    return context


def _ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


@asynccontextmanager
async def _control(access: Access) -> AsyncIterator[Control]:
    control = Control(access)
    try:
        yield control
    finally:
        await control.close()


PLAIN: list[Step] = [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]


@pytest.mark.parametrize("trust", ["ca_file", "insecure"])
async def test_a_private_certificate_is_trusted_where_asked(
    trust: str, authority: trustme.CA, server_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    ca_file = _ca_file(authority, tmp_path) if trust == "ca_file" else None
    target = Target("t", "", ca_file=ca_file, insecure=trust == "insecure")
    async with raw_server(*ANSWER, tls=server_tls) as server:
        access = access_to(target, server.url, Timeouts(), {})
        wire = Wire(access.origin, ssl_context=access.tls)
        assert (await ask(wire)).ended == "complete"
        assert (await ask(wire)).reused
        server.script = PLAIN
        async with _control(access) as control:
            assert (await control.get("/x")).json() == {}
        wire.close()


async def test_a_private_certificate_is_refused_with_what_helps(
    server_tls: ssl.SSLContext,
) -> None:
    async with raw_server(*ANSWER, tls=server_tls) as server:
        access = access_to(Target("t", ""), server.url, Timeouts(), {})
        exchange = await ask(Wire(access.origin, ssl_context=access.tls))
        assert exchange.ended == "connect_failed"
        assert "--ca-file" in exchange.problem
        async with _control(access) as control:
            with pytest.raises(TargetError, match=r"certificate.* --ca-file FILE, or --insecure"):
                await control.get("/x")
        assert not server.requests


async def test_a_handshake_that_never_ends_is_a_connect_timeout() -> None:
    async with raw_server(HANG) as server:
        url = f"https://127.0.0.1:{server.port}"
        wire = Wire(Origin.of(url), timeouts=Timeouts(connect_s=0.1))
        exchange = await ask(wire)
        assert exchange.ended == "connect_timeout"
        assert "--connect-timeout" in exchange.problem


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ([b"HTTP/1.0 200 OK\r\n\r\nwhole", DROP], "complete"),
        ([*ANSWER, DROP], "complete"),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", DROP], "eof"),
    ],
)
async def test_tls_that_ends_without_a_goodbye(
    script: list[Step], ended: str, authority: trustme.CA, server_tls: ssl.SSLContext
) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    async with raw_server(*script, tls=server_tls) as server:
        wire = Wire(Origin.of(server.url), ssl_context=trusting)
        assert (await ask(wire)).ended == ended
        wire.close()


def test_a_ca_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    with pytest.raises(UserError, match=r"ca_file .*: cannot be used: No such file"):
        tls_context(str(path), False)
    path.write_text("no certificate")
    with pytest.raises(UserError, match=r"ca_file .*ca\.pem: cannot be used"):
        tls_context(str(path), False)


# --- proxies ------------------------------------------------------------------------------------


async def test_a_proxy_gets_its_login_and_the_server_does_not() -> None:
    async with proxy_server() as proxy, raw_server(*ANSWER) as server:
        access = Access(
            Origin.of(f"http://model.test:{server.port}"), proxy=Proxy(proxy.url, ("me", "pass"))
        )
        transport = AiohttpTransport(access)
        assert (await ask(transport)).ended == "complete"
        server.script = PLAIN
        async with _control(access) as control:
            assert (await control.get("/y")).status_code == 200
        await transport.aclose()
    assert [head.split(" ")[1] for head in proxy.heads] == [
        f"http://model.test:{server.port}{path}" for path in ("/v1/x", "/y")
    ]
    assert all("proxy-authorization: basic bwu6cgfzcw==" in head.lower() for head in proxy.heads)
    assert f"\r\nHost: model.test:{server.port}\r\n".encode() in server.requests[0]


async def test_tls_goes_through_a_tunnel(
    authority: trustme.CA, server_tls: ssl.SSLContext, tmp_path: Path
) -> None:
    async with proxy_server() as proxy, raw_server(*ANSWER, tls=server_tls) as server:
        target = Target(
            "t", "", headers={"X-Key": "for the server"}, ca_file=_ca_file(authority, tmp_path),
            proxy=proxy.url,
        )  # fmt: skip
        url = f"https://model.test:{server.port}"
        access = access_to(target, url, Timeouts(), {})
        transport = AiohttpTransport(access)
        exchange = await transport.exchange("/v1/x", access.headers, b"{}")
        assert exchange.ended == "complete"
        server.script = PLAIN
        async with _control(access) as control:
            assert (await control.get("/y")).status_code == 200
        await transport.aclose()
    assert {head.split(" ")[0] for head in proxy.heads} == {"CONNECT"}
    assert not any("for the server" in head for head in proxy.heads)
    assert b"X-Key: for the server\r\n" in server.requests[0]


async def test_a_proxy_that_is_not_there_or_refuses() -> None:
    async with proxy_server(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n") as proxy:
        access = Access(Origin.of("https://model.test:1"), tls_context(None, True))
        tunnel = AiohttpTransport(_through(access, proxy))
        exchange = await ask(tunnel)
        assert (exchange.ended, exchange.problem) == (
            "connect_failed", "the proxy answered HTTP 407",
        )  # fmt: skip
        await tunnel.aclose()
    gone = AiohttpTransport(_through(Access(Origin.of("http://model.test:1")), proxy))
    exchange = await ask(gone)
    assert exchange.ended == "connect_failed"
    assert exchange.problem.startswith("proxy: ")
    await gone.aclose()


def _through(access: Access, proxy: ProxyServer) -> Access:
    return Access(access.origin, access.headers, access.tls, Proxy(proxy.url))


ENVIRONMENT = {"http_proxy": "http://me:secret@192.0.2.1:3128", "no_proxy": "inside.test"}


def test_which_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy", "https_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)

    def used(proxy: str | None, url: str) -> Proxy | None:
        return access_to(Target("t", "", proxy=proxy), url, Timeouts(), {}).proxy

    assert used(None, "http://model.test") is None, "the environment's only where asked"
    assert used("env", "http://model.test") == Proxy("http://192.0.2.1:3128", ("me", "secret"))
    assert used("env", "http://inside.test") is None
    assert used("http://192.0.2.2:1", "http://model.test") == Proxy("http://192.0.2.2:1")
    for loopback in ("127.0.0.1", "localhost", "[::1]", "127.8.8.8"):
        assert used("http://192.0.2.2:1", f"http://{loopback}:80") is None
    with pytest.raises(UserError, match="names no proxy"):
        used("env", "https://model.test")
    monkeypatch.setenv("https_proxy", "socks5://192.0.2.1:1080")
    with pytest.raises(UserError, match="proxy env: what the environment names is none: write"):
        used("env", "https://model.test")


# --- addresses ----------------------------------------------------------------------------------


async def test_ipv6(through: Through) -> None:
    try:
        listening = raw_server(*ANSWER, host="::1")
        async with listening as server:
            wire = Wire(Origin.of(server.url))
            assert (await ask(wire)).ended == "complete"
            assert f"\r\nHost: [::1]:{server.port}\r\n".encode() in server.requests[0]
            server.script = PLAIN
            async with _control(Access(Origin.of(server.url))) as control:
                assert (await control.get("/x")).status_code == 200
            wire.close()
    except OSError:
        pytest.skip("no IPv6 here")


@pytest.mark.parametrize(
    ("url", "netloc", "base"),
    [
        ("http://[fe80::1%25eth0]:81/v1", "[fe80::1]:81", ""),
        ("https://h:443/api/v1/", "h", "/api"),
        ("http://h/a/b", "h", "/a/b"),
    ],
)
def test_where_a_url_points(url: str, netloc: str, base: str) -> None:
    origin = Origin.of(url)
    assert (origin.netloc, origin.base_path) == (netloc, base)


@pytest.mark.parametrize(
    "url",
    ["http://u:hush-hush@h", "http://h?key=hush-hush", "http://h#hush-hush", "ftp://h", "http://",
     "http://h:99999", "http://[::1", "http://h\r\nX: y", "http://h/ü", "http://h/a b"],
)  # fmt: skip
def test_urls_that_are_refused_without_being_shown(url: str) -> None:
    with pytest.raises(UserError) as why:
        Origin.of(url)
    assert "hush-hush" not in str(why.value)
