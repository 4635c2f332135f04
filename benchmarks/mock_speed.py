"""How punctual the mock is, and what a token costs it: many streams at a server's pace.

Clients are another process and only count. Each token's lateness is from the end of its pass (by
the box) to the moment when its bytes were handed to the kernel, out of the mock's own ground truth;
drift is the median of the run's last third less that of its first.

    python benchmarks/mock_speed.py [--dialect llamacpp] [--asyncio]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from aiohttp import web
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from headroom_bench.roofline.pricer import Batch
from mock_server.app import SERVICE, make_app
from mock_server.jobs import Job
from mock_server.options import MockOptions

CASES = (
    # streams, seconds a pass, tokens an answer
    (1, 0.020, 200),
    (50, 0.020, 200),
    (500, 0.025, 200),  # 20,000 tokens a second
    (2000, 0.100, 60),  # as many again, over 2,000 connections
    (200, 0.0001, 200),  # as fast as the process can
)
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
            key.fileobj.close()
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


async def measure(streams: int, pass_s: float, tokens: int, dialect: str) -> None:
    options = MockOptions(
        dialect=dialect, slots=streams, ctx=streams * 1024, journal_file=Path("/dev/null")
    )
    app = make_app(options, Flat(pass_s))
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
    service = app[SERVICE]
    due_ns, sent_ns = array("q"), array("q")

    def keep(job: Job) -> None:
        due_ns.extend(job.due_ns)
        sent_ns.extend(job.sent_ns)

    service.on_over.append(keep)
    asked = {
        "messages": [{"role": "user", "content": "Stream NUMBER."}],
        "max_tokens": tokens,
        "stream": True,
    }
    command = [sys.executable, "-c", _CLIENTS, str(runner.addresses[0][1]), str(streams)]
    started, cpu = time.perf_counter(), time.process_time()
    clients = await asyncio.create_subprocess_exec(
        *command, json.dumps(asked), stdout=subprocess.PIPE
    )
    told, _ = await clients.communicate()
    took, cpu = time.perf_counter() - started, time.process_time() - cpu
    await runner.cleanup()
    _report(streams, pass_s, np.array(due_ns), np.array(sent_ns), took, cpu, int(told))
    print(f"      slipped {service.wall.slip_s * 1e3:.1f} ms of {took:.1f} s")


def _report(
    streams: int,
    pass_s: float,
    due_ns: NDArray[np.int64],
    sent_ns: NDArray[np.int64],
    took: float,
    cpu: float,
    events: int,
) -> None:
    order = np.argsort(due_ns)
    late_ms = (sent_ns - due_ns)[order] / 1e6
    # while all streams are there: not the ramp of connecting, nor the end
    span = slice(len(late_ms) // 5, len(late_ms) * 9 // 10)
    steady, due = late_ms[span], due_ns[order][span]
    rate = len(steady) / max(1e-9, (due[-1] - due[0]) / 1e9)
    third = len(steady) // 3
    drift = np.median(steady[-third:]) - np.median(steady[:third])
    p50, p99 = np.percentile(steady, [50, 99])
    print(
        f"{streams:5d} streams, {pass_s * 1e3:5.1f} ms a pass: {rate:8,.0f} tokens/s, "
        f"{cpu / max(1, events) * 1e6:5.1f} µs CPU a token ({cpu / took:.0%} of a core), "
        f"late {p50:6.3f} ms median, {p99:7.3f} ms p99, drift {drift:+.3f} ms"
    )


async def main(dialect: str) -> None:
    for streams, pass_s, tokens in CASES:
        await measure(streams, pass_s, tokens, dialect)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dialect", default="llamacpp")
    parser.add_argument("--asyncio", action="store_true", help="without uvloop")
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 10_000), hard))
    if given.asyncio:
        asyncio.run(main(given.dialect))
    else:
        import uvloop

        uvloop.run(main(given.dialect))
