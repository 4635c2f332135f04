"""What our client costs and how late it is, beside two ordinary ones, in one run.

A paced server on one core stamps every write on the monotonic clock that both processes share;
clients take turns on the other core. Prints, for each client and number of streams, CPU time per
event (all that a record needs, parsing included), and how far TTFT and event gaps are from the
truth.

    python benchmarks/client.py [--streams 500] [--rate 50] [--seconds 8] [--ramp 1]
                                [--clients ours,aiohttp]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import resource
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import aiohttp
import httpx
import uvloop

from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import Vocabulary, common_words
from headroom_bench.crowd.world import Request
from headroom_bench.experiments.harness import Harness, harness_figures
from headroom_bench.live.clock import RunClock
from headroom_bench.live.exchange import Origin
from headroom_bench.live.lag import LagWatch
from headroom_bench.live.renderer import Renderer
from headroom_bench.live.wire import Wire
from headroom_bench.live.world import Asking, LiveWorld
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord
from headroom_bench.results.rows import line_of
from headroom_bench.segments import Segment

Stamps = dict[str, list[int]]
"""Stream id to stamps (ns): the request's sending or arrival first, then each event."""

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def sse(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choices = [{"finish_reason": finish, "index": 0, "delta": delta}]
    body = {"choices": choices, "created": 1796052974, "id": "chatcmpl-EBALCmPxYZISQHKUEJiBCUSr",
            "model": "model.gguf", "object": "chat.completion.chunk", **more}  # fmt: skip
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


# --- the paced server ---------------------------------------------------------------------------


class Stream(NamedTuple):
    """One answer on its way."""

    due_ns: int
    send: Callable[[bytes], int]
    stamps: list[int]


class Pacer:
    """Streams events at a fixed pace over plain sockets, each stream at its own phase.

    It spins on its core between two sends, so that they are late by microseconds: an event loop's
    timers have steps of a millisecond, in which writes would come bunched.
    """

    EVENT = chunk(sse({"content": " word"}))
    START = HEAD + chunk(sse({"role": "assistant", "content": None}))
    LOOK_EVERY_NS = 1_000_000
    """Between looks for new connections and requests."""

    def __init__(self, pipe: Connection, rate: float, events: int) -> None:
        self.pipe = pipe
        self.gap_ns = int(1e9 / rate)
        self.events = events
        usage = {"prompt_tokens": 10, "completion_tokens": events}
        told = sse({}, None, usage=usage)
        told = told.replace(b'{"finish_reason":null,"index":0,"delta":{}}', b"")
        last = sse({}, "length") + told + b"data: [DONE]\n\n"
        self.end = self.EVENT + chunk(last) + b"0\r\n\r\n"
        self.truth: Stamps = {}
        self.queue: deque[Stream] = deque()
        self.asked: dict[socket.socket, bytes] = {}
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)
        self.selector.register(pipe, selectors.EVENT_READ)

    def run(self) -> None:
        """Until the pipe says stop; at any other word it gets the truth so far."""
        self.pipe.send(self.listener.getsockname()[1])
        looked_ns = 0
        while True:
            now_ns = time.perf_counter_ns()
            if now_ns - looked_ns > self.LOOK_EVERY_NS:
                looked_ns = now_ns
                if not self.look():
                    return
            while self.queue and self.queue[0].due_ns <= now_ns:
                self.emit(self.queue.popleft())

    def emit(self, stream: Stream) -> None:
        last = len(stream.stamps) == self.events
        stream.stamps.append(time.perf_counter_ns())
        with contextlib.suppress(OSError):  # the client may have gone
            stream.send(self.end if last else self.EVENT)
            if not last:  # all gaps are equal: the queue stays in order
                self.queue.append(stream._replace(due_ns=stream.due_ns + self.gap_ns))

    def look(self) -> bool:
        """Accepts, reads requests, answers the pipe; False when it said stop."""
        begun = []
        for key, _ in self.selector.select(0 if self.queue else 0.001):
            if key.fileobj is self.listener:
                self.accept()
            elif key.fileobj is self.pipe:
                if self.pipe.recv() == "stop":
                    return False
                self.pipe.send(self.truth)
                self.truth = {}
            elif isinstance(key.fileobj, socket.socket):
                begun += self.read(key.fileobj)
        if begun:
            self.queue = deque(sorted([*self.queue, *begun], key=lambda stream: stream.due_ns))
        return True

    def accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self.listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.setblocking(False)
                self.asked[connection] = b""
                self.selector.register(connection, selectors.EVENT_READ)

    def read(self, connection: socket.socket) -> list[Stream]:
        try:
            data = connection.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.selector.unregister(connection)
            connection.close()
            return []
        self.asked[connection] += data
        _, _, body = self.asked[connection].partition(b"\r\n\r\n")
        if not body.endswith(b"}"):  # head and body may come apart
            return []
        self.asked[connection] = b""
        name = json.loads(body)["user"]
        stamps = self.truth[name] = [time.perf_counter_ns()]
        connection.send(self.START)
        phase = (len(self.truth) * 0.6180339887) % 1.0
        first_ns = time.perf_counter_ns() + int(self.gap_ns * (1 + phase))
        return [Stream(first_ns, connection.send, stamps)]


def serve(pipe: Connection, core: int | None, rate: float, events: int) -> None:
    pin(core)
    gc.disable()
    Pacer(pipe, rate, events).run()


def pin(core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})


# --- the clients --------------------------------------------------------------------------------


OWN_WORD: dict[str, Any] = {}
"""What our client said of itself in its latest turn; `names`: the requests that it found valid."""

Begin = Callable[[], Awaitable[None]]
"""Awaited by each stream before it asks, so that they need not all ask at one instant."""


def ramp(streams: int, seconds: float) -> Begin:
    """Streams that begin one after the other."""
    turns = itertools.count()

    async def begin() -> None:
        await asyncio.sleep(seconds * next(turns) / streams)

    return begin


async def with_ours(port: int, names: list[str], seen: Stamps, begin: Begin) -> None:
    """Wire, reading, record, and the sink's JSON, as in a run."""
    clock, lag = RunClock(), LagWatch()
    records: list[RequestRecord] = []

    class Sink:
        def append(self, record: RequestRecord, times: Moments) -> Future[None]:
            line_of(record)
            records.append(record)
            zero = clock._zero_ns
            stamps = [int((record.sent_s or 0) * 1e9) + zero]
            seen[record.request_id] = stamps + [int(t * 1e9) + zero for t in times]
            done: Future[None] = Future()
            done.set_result(None)
            return done

    class Bench(LiveWorld):
        def _body(
            self,
            request: Request,
            messages: list[dict[str, str]],  # noqa: ARG002
        ) -> bytes:
            return json.dumps({"user": request.request_id}).encode()

    wire = Wire(Origin.of(f"http://127.0.0.1:{port}"))
    writing = Renderer(Vocabulary(common_words()), TemplateTokens(), "")
    world = Bench(wire, clock, Asking("r", "t", "m", "openai"), writing, Sink(), lag)
    clock.start()
    lag.start()
    ask = (Segment("ask", "user", "prose", "x", 1),)
    asked = [Request(name, name, "p", n, 0, 0, ask, 10) for n, name in enumerate(names)]

    async def one(request: Request) -> None:
        await begin()
        await world.ask(request)

    await asyncio.gather(*map(one, asked))
    told = harness_figures(Harness(lag.stop()), records, 1.0)
    OWN_WORD.update(told, names={r.request_id for r in records if r.valid})
    wire.close()


async def with_aiohttp(port: int, names: list[str], seen: Stamps, begin: Begin) -> None:
    async def one(session: aiohttp.ClientSession, name: str) -> None:
        await begin()
        stamps = seen[name] = [time.perf_counter_ns()]
        async with session.post(
            f"http://127.0.0.1:{port}/", data=json.dumps({"user": name})
        ) as got:
            rest = b""
            async for data in got.content.iter_any():
                now = time.perf_counter_ns()
                *lines, rest = (rest + data).split(b"\n\n")
                for line in lines:
                    if line.startswith(b"data: {"):
                        choices = json.loads(line[6:])["choices"]
                        if choices and choices[0]["delta"].get("content"):
                            stamps.append(now)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await asyncio.gather(*(one(session, name) for name in names))


async def with_httpx(port: int, names: list[str], seen: Stamps, begin: Begin) -> None:
    async def one(client: httpx.AsyncClient, name: str) -> None:
        await begin()
        stamps = seen[name] = [time.perf_counter_ns()]
        body = json.dumps({"user": name})
        async with client.stream("POST", f"http://127.0.0.1:{port}/", content=body) as got:
            async for line in got.aiter_lines():
                if line.startswith("data: {"):
                    now = time.perf_counter_ns()
                    choices = json.loads(line[6:])["choices"]
                    if choices and choices[0]["delta"].get("content"):
                        stamps.append(now)

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        await asyncio.gather(*(one(client, name) for name in names))


Client = Callable[[int, list[str], Stamps, Begin], Awaitable[None]]
CLIENTS: dict[str, tuple[Client, bool]] = {
    "ours": (with_ours, True),
    "aiohttp": (with_aiohttp, False),
    "aiohttp+uvloop": (with_aiohttp, True),
    "httpx": (with_httpx, False),
}
"""The client, and whether it runs on uvloop; a plain one runs on asyncio's own loop."""


def errors_ms(seen: Stamps, truth: Stamps) -> tuple[list[float], list[float], int]:
    """TTFT and gap errors (|ours - truth|, ms), and how many events were missed."""
    ttft, gaps, missed = [], [], 0
    for name, stamps in truth.items():
        ours = seen.get(name, [])
        if len(ours) != len(stamps):
            missed += abs(len(stamps) - len(ours))
            continue
        ttft.append((ours[1] - stamps[1]) / 1e6)
        gaps += [
            abs((b - a) - (d - c)) / 1e6
            for a, b, c, d in zip(ours[1:], ours[2:], stamps[1:], stamps[2:], strict=False)
        ]
    return sorted(ttft), sorted(gaps), missed


def figures_off(seen: Stamps, truth: Stamps) -> dict[str, float]:
    """By how much the figures of a summary would be wrong, as a share of their true value."""

    def figures(stamps: list[list[int]]) -> dict[str, float]:
        ttft = sorted(s[1] - s[0] for s in stamps)
        tpot = sorted((s[-1] - s[1]) / (len(s) - 2) for s in stamps)
        gaps = sorted(b - a for s in stamps for a, b in itertools.pairwise(s[1:]))
        return {
            "TTFT p50": at(ttft, 0.5),
            "TTFT p95": at(ttft, 0.95),
            "TPOT p50": at(tpot, 0.5),
            "TPOT p95": at(tpot, 0.95),
            "ITL p50": at(gaps, 0.5),
        }

    both = [name for name in truth if len(seen.get(name, [])) == len(truth[name])]
    # A server's truth begins where the request came in; ours where it was sent.
    ours = figures([seen[name] for name in both])
    true = figures([[seen[name][0], *truth[name][1:]] for name in both])
    return {name: ours[name] / true[name] - 1 for name in true}


def own_word(seen: Stamps, truth: Stamps) -> str:
    """Whether our client says that it can be believed, and whether it can."""
    kept = {name: stamps for name, stamps in truth.items() if name in OWN_WORD["names"]}
    off = figures_off(seen, kept) if kept else {"everything": float("nan")}
    worst = max(off, key=lambda name: abs(off[name]))
    word = "believes itself" if OWN_WORD["valid"] else "says that it was the bottleneck"
    return (
        f"    {word}: {OWN_WORD['cpu_share']:.0%} of a core, loop late p99 "
        f"{OWN_WORD['lag_p99_ms']:.1f} and at most {OWN_WORD['lag_max_ms']:.1f} ms, "
        f"{OWN_WORD['valid_share']:.0%} valid; their worst figure: {worst} off by {off[worst]:+.2%}"
    )


def at(values: list[float], q: float) -> float:
    return values[min(len(values) - 1, int(q * len(values)))] if values else float("nan")


def run_client(
    name: str, port: int, streams: int, ramp_s: float, core: int | None, pipe: Connection
) -> tuple[float, Stamps, Stamps]:
    """CPU seconds, what the client saw, and the truth."""
    pin(core)
    seen: Stamps = {}
    names = [f"{name}-{n}" for n in range(streams)]
    gc.collect()
    if name == "ours":  # as in a run: the collector rests
        gc.disable()
    before = time.process_time()
    client, fast = CLIENTS[name]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if fast else None) as runner:
        runner.run(client(port, names, seen, ramp(streams, ramp_s)))  # type: ignore[arg-type]
    spent = time.process_time() - before
    gc.enable()
    pipe.send("truth")
    return spent, seen, pipe.recv()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", default="500")
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument(
        "--ramp", type=float, default=1.0, help="seconds until all have asked (0: a burst)"
    )
    parser.add_argument("--clients", default=",".join(CLIENTS))
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    cores = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [None, None]
    client_core, server_core = (cores[0], cores[-1]) if len(cores) > 1 else (None, None)
    events = int(options.rate * options.seconds)
    print("client          streams  tok/s    CPU us/event  TTFT late ms p50/p99  gap error p50/p99")
    for streams in map(int, options.streams.split(",")):
        for name in options.clients.split(","):
            ours, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(
                target=serve, args=(theirs, server_core, options.rate, events), daemon=True
            )
            process.start()
            spent, seen, truth = run_client(
                name, ours.recv(), streams, options.ramp, client_core, ours
            )
            ours.send("stop")
            process.join(5)
            ttft, gaps, missed = errors_ms(seen, truth)
            written = sum(len(stamps) - 1 for stamps in truth.values())
            print(
                f"{name:15} {streams:7} {streams * options.rate:7.0f} {spent / written * 1e6:12.1f}"
                f"      {at(ttft, 0.5):8.3f} {at(ttft, 0.99):8.3f}"
                f"      {at(gaps, 0.5):8.3f} {at(gaps, 0.99):8.3f}"
                + (f"   {missed} events missed" if missed else ""),
                flush=True,
            )
            if name == "ours":
                print(own_word(seen, truth), flush=True)


if __name__ == "__main__":
    main()
