"""How far our client's stamps are from the mock's ground truth, at 1, 50 and 500 streams.

The mock runs in a process of its own and stamps each token as its bytes go to the kernel, on a
clock that both share. Prints, over all requests, how much later we saw the first token and
each token, and the error of the gaps between tokens.

    python benchmarks/mock_bias.py [--dialect llamacpp] [--streams 1 50 500]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1]))

from mock_speed import Flat

from headroom_bench.live.exchange import Exchange, Origin
from headroom_bench.live.reading import read_stream
from headroom_bench.live.wire import Wire
from mock_server.app import serve
from mock_server.options import MockOptions

PASS_S = 0.025
TOKENS = 120


async def ask(wire: Wire, number: int) -> tuple[str, Exchange]:
    body = {
        "messages": [{"role": "user", "content": f"Stream {number}."}],
        "max_tokens": TOKENS,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    name = {"X-Request-Id": f"r{number}"}
    asked = json.dumps(body).encode()
    return f"r{number}", await wire.exchange("/v1/chat/completions", name, asked)


def stamps_of(exchange: Exchange) -> list[int]:
    *_, reading = read_stream(exchange)
    return reading.stamps_ns


async def measure(streams: int, dialect: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        truth_file = Path(folder) / "truth.jsonl"
        command = [sys.executable, __file__, "--serve", dialect, str(truth_file), str(streams)]
        server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert server.stdout is not None
        url = (await server.stdout.readline()).decode().strip()
        wire = Wire(Origin.of(url))
        seen = dict(await asyncio.gather(*(ask(wire, number) for number in range(streams))))
        wire.close()
        while len(truth_file.read_text().splitlines()) < streams:
            await asyncio.sleep(0.05)
        server.terminate()
        await server.wait()
        told = [json.loads(line) for line in truth_file.read_text().splitlines()]
    _report(streams, seen, {truth["request_id"]: truth for truth in told})


def _report(streams: int, seen: dict[str, Exchange], true: dict[str, dict[str, Any]]) -> None:
    first: list[float] = []
    late: list[np.ndarray] = []
    gaps: list[np.ndarray] = []
    for name, exchange in seen.items():
        ours, theirs = np.array(stamps_of(exchange)), np.array(true[name]["token_sent_ns"])
        assert len(ours) == len(theirs) == TOKENS, (name, len(ours), len(theirs))
        first.append((ours[0] - theirs[0]) / 1e6)
        late.append((ours - theirs) / 1e6)
        gaps.append((np.diff(ours) - np.diff(theirs)) / 1e6)
    every, gap = np.concatenate(late), np.abs(np.concatenate(gaps))
    print(
        f"{streams:4d} streams: first token late by {np.median(first):.3f} ms median, "
        f"{np.percentile(first, 99):.3f} p99; each token {np.median(every):.3f} median, "
        f"{np.percentile(every, 99):.3f} p99; gaps wrong by {np.median(gap):.3f} median, "
        f"{np.percentile(gap, 99):.3f} p99",
        flush=True,
    )


def serve_here(dialect: str, truth_file: str, streams: int) -> None:
    options = MockOptions(
        dialect=dialect,
        slots=streams,
        ctx=streams * 1024,
        journal_file=Path("/dev/null"),
        truth_file=Path(truth_file),
    )
    ready = lambda url: print(url, flush=True)  # noqa: E731
    uvloop.run(serve(options, ready, Flat(PASS_S)))


async def main(dialect: str, counts: list[int]) -> None:
    for streams in counts:
        await measure(streams, dialect)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve_here(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        parser = argparse.ArgumentParser(description=__doc__)
        parser.add_argument("--dialect", default="llamacpp")
        parser.add_argument("--streams", type=int, nargs="+", default=[1, 50, 500])
        given = parser.parse_args()
        uvloop.run(main(given.dialect, given.streams))
