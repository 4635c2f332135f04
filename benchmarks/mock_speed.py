"""How fast and how punctual the mock server streams: `python benchmarks/mock_speed.py`.

Lateness runs from the end of a pass on the box's clock to the moment when the last of its tokens
has been handed to its connection. Clients are a process of their own that counts and throws away.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from headroom_bench.box import Event
from headroom_bench.roofline.pricer import Batch
from mock_server.app import SERVICE, make_app
from mock_server.options import MockOptions
from mock_server.service import Service

ANSWER_TOKENS = 200
_CLIENTS = """
import socket, selectors, sys
port, count, body = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3].encode()
ready = selectors.DefaultSelector()
for number in range(count):
    client = socket.create_connection(("127.0.0.1", port))
    own = body.replace(b"NUMBER", b"%d" % number)
    head = b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n"
    client.sendall(head + b"Content-Length: %d\\r\\n\\r\\n" % len(own) + own)
    ready.register(client, selectors.EVENT_READ)
events = 0
while ready.get_map():
    for key, _ in ready.select():
        data = key.fileobj.recv(65536)
        events += data.count(b'"content":"')
        if not data:
            ready.unregister(key.fileobj)
print(events)
"""


@dataclass(frozen=True)
class Flat:
    """Passes of one length."""

    pass_time_s: float
    window: int | None = None

    def pass_s(self, _: Batch) -> float:
        return self.pass_time_s

    def passes_s(self, _: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, self.pass_time_s)


def watch(service: Service) -> list[float]:
    """The lateness of each pass from now on, in seconds."""
    late: list[float] = []
    wall = service.wall
    handle = wall._on_events

    def timed(events: list[Event]) -> None:
        handle(events)
        late.append(wall.box_s() - events[-1].at)

    wall._on_events = timed
    return late


async def measure(streams: int, pass_s: float) -> None:
    options = MockOptions(slots=streams, ctx=streams * 1024, journal_file=Path("/dev/null"))
    app = make_app(options, Flat(pass_s))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    service = app[SERVICE]
    late = watch(service)
    messages = [{"role": "user", "content": "Stream NUMBER."}]
    asked = {"messages": messages, "max_tokens": ANSWER_TOKENS, "stream": True}
    command = [sys.executable, "-c", _CLIENTS, str(runner.addresses[0][1]), str(streams)]
    command.append(json.dumps(asked))
    started, cpu = time.perf_counter(), time.process_time()
    clients = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    told, _ = await clients.communicate()
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    await runner.cleanup()
    p50, p99 = np.percentile(np.array(late) * 1e3, [50, 99])
    speed = f"{int(told) / took:8,.0f} tokens/s, {cpu / int(told) * 1e6:5.1f} µs CPU a token"
    lateness = f"late {p50:6.3f} ms median, {p99:6.3f} ms p99"
    slipped = f"slipped {service.wall.slip_s * 1e3:5.1f} ms"
    print(f"{streams:4d} streams, {pass_s * 1e3:4.1f} ms a pass: {speed}, {lateness}, {slipped}")


async def main() -> None:
    for streams in (50, 200):
        for pass_s in (0.020, 0.0001):  # a server's pace, and as fast as the process can
            await measure(streams, pass_s)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asyncio", action="store_true", help="without uvloop")
    if parser.parse_args().asyncio:
        asyncio.run(main())
    else:
        import uvloop

        uvloop.run(main())
