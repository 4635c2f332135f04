"""Whether the mock's memory stays flat: many short requests, then its resident memory over time.

python benchmarks/mock_memory.py [--requests 100000] [--dialect llamacpp]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 10
_CLIENT = """
import socket, sys, json
port, count, first, path = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
connection = socket.create_connection(("127.0.0.1", port))
reader = connection.makefile("rb")
for number in range(first, first + count):
    messages = [{"role": "user", "content": f"Question {number} of many, with some more words."}]
    body = json.dumps({"messages": messages, "max_tokens": 4, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n"
    connection.sendall(head.encode() + body)
    while (line := reader.readline()) not in (b"0\\r\\n", b""):
        pass
    reader.readline()
"""


def resident_mb(pid: int) -> float:
    """From /proc, in 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError("no VmRSS")


def measure(requests: int, dialect: str) -> list[float]:
    """Resident memory after each tenth of the requests, the first taken after a warm-up."""
    command = [sys.executable, "-m", "mock_server", "--dialect", dialect, "--slots", "8"]
    command += ["--journal-file", "/dev/null", "--time-scale", "1000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().decode().rpartition(":")[2].strip()
            share = requests // ROUNDS
            seen: list[float] = []
            for number in range(ROUNDS + 1):
                started = time.perf_counter()
                count = share if number else min(share, 3000)
                asked = [sys.executable, "-c", _CLIENT, port, str(count), str(number * share)]
                subprocess.run([*asked, "/v1/chat/completions"], check=True)
                seen.append(resident_mb(server.pid))
                took = time.perf_counter() - started
                print(f"{count:7d} requests in {took:5.1f} s: {seen[-1]:7.1f} MB", flush=True)
        finally:
            server.terminate()
            server.wait()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--dialect", default="llamacpp")
    given = parser.parse_args()
    seen = measure(given.requests, given.dialect)
    grown = seen[-1] - seen[1]
    print(json.dumps({"first_mb": seen[1], "last_mb": seen[-1], "grown_mb": grown}))


if __name__ == "__main__":
    main()
