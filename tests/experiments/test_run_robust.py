"""Runs through trouble: servers that go and come back, proxies, full disks, endings that wait."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from proxy_server import proxy_server
from raw_server import (
    DONE,
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
from run_tools import Running, headroom

WORD = chunk(event(delta(content=" a")))
LAST = chunk(event(finish()) + event(usage(20, 2)) + DONE)
ANSWER: list[Step] = [HEAD, WORD, 0.01, WORD, LAST, END]
BUSY: list[Step] = [
    b"HTTP/1.1 503 Busy\r\nContent-Type: application/json\r\nContent-Length: 38\r\n\r\n"
    b'{"error":{"message":"Loading model!"}}'
]
PLAIN = ("--users", "3", "--prompt-tokens", "20", "--output-tokens", "2")


def chats(server: RawServer) -> list[dict[str, Any]]:
    """The bodies of the chat requests that came."""
    return [
        json.loads(request.partition(b"\r\n\r\n")[2])
        for request in server.requests
        if b"/chat/completions " in request.split(b"\r\n")[0]
    ]


async def test_a_server_that_restarts_is_ridden_out(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--think", "20ms", "--duration", "6s", "--json")
        running = await Running.start(*words, out=tmp_path)
        await running.until_rows(10)
        server.script = [HEAD, WORD, 0.2, HANG]
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.5)
    async with raw_server(*ANSWER, port=server.port) as again:
        ran = await running.ended()
        assert again.requests
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    kinds = Counter(row["error_kind"] for row in rows if not row["ok"])
    assert kinds["reset"] + kinds["truncated"] >= 1, "answers that were cut"
    assert 3 <= kinds["connect_failed"] <= 9, "asked again with pauses, not hammered"
    down_s = max(row["end_s"] for row in rows if row["error_kind"] == "connect_failed")
    assert sum(row["ok"] and row["started_at_s"] > down_s for row in rows) >= 10
    assert json.loads(ran.out)["error_kinds"] == dict(kinds)


async def test_a_journal_that_becomes_a_folder_costs_only_the_servers_figures(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "server.log"
    journal.write_text("")
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--requests", "40", "--journal", str(journal))
        running = await Running.start(*words, "--think", "50ms", "--json", out=tmp_path / "out")
        await running.until_rows(5)
        journal.unlink()
        journal.mkdir()
        ran = await running.ended()
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert (summary["requests"], summary["status"]) == (40, "complete")
    assert any("could not be followed to the end" in line for line in summary["warnings"])
    assert ran.json("manifest.json")["status"] == "complete"


async def test_a_server_that_is_not_ready_is_asked_again_in_peace(tmp_path: Path) -> None:
    async with raw_server(*BUSY) as server:
        words = ("run", server.url, *PLAIN, "--duration", "3s")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
        assert len(chats(server)) <= 12
    assert ran.code == 3
    assert {row["error_kind"] for row in ran.rows("requests.jsonl")} == {"unavailable"}
    (told,) = [w for w in ran.json("summary.json")["warnings"] if w.startswith("unavailable")]
    assert told.endswith("c0/t0/r0: HTTP 503: Loading model!")


async def test_a_server_that_limits_rates_is_asked_again_when_it_said(tmp_path: Path) -> None:
    limited = (
        b"HTTP/1.1 429 Too Many\r\nRetry-After: 2\r\nContent-Length: 0\r\n"
        b"Content-Type: text/plain\r\n\r\n"
    )
    async with raw_server(limited) as server:
        words = ("run", server.url, *PLAIN, "--duration", "5s", "--max-rps", "100", "--json")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
    rows = [row for row in ran.rows("requests.jsonl") if row["user"] == 0]
    assert {row["error_kind"] for row in rows} == {"rate_limited"}
    gaps = [after["sent_s"] - before["end_s"] for before, after in itertools.pairwise(rows)]
    assert gaps
    assert all(gap > 1.99 for gap in gaps), gaps  # event loops tell time in milliseconds


def named(model: str) -> list[Step]:
    """An answer by a server that says which model wrote it."""
    said = json.dumps({**delta(content=" a"), "model": model}).encode()  # half a surrogate too
    word = chunk(b"data: " + said + b"\n\n")
    return [HEAD, word, 0.01, word, LAST, END]


class OddServer(RawServer):
    """Its control routes are odd; chats are answered as by the script."""

    tokenized = 0

    def steps(self, request: bytes) -> Sequence[Step]:
        route = request.split(b" ", 2)[1]
        if route == b"/tokenize":
            self.tokenized += 1
            if self.tokenized > 3:
                return [RESET]
        return super().steps(request)


@pytest.mark.parametrize("dialect", ["llamacpp", "vllm"])
async def test_a_tokenizer_that_breaks_off_costs_exact_lengths_alone(
    dialect: str, tmp_path: Path
) -> None:
    async with raw_server(*ANSWER, kind=OddServer) as server:
        server.documents["/tokenize"] = b'{"tokens": [1, 2]}'
        words = ("run", server.url, *PLAIN, "--requests", "4", "--dialect", dialect, "--json")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert summary["prompts"]["lengths"] == "estimated"
    assert [w for w in summary["warnings"] if "the server's tokenizer broke off" in w]
    assert all(row["ok"] for row in ran.rows("requests.jsonl"))


@pytest.mark.parametrize("name", ["m" * 400, "~no-one-here", "\ud800", "a\0b", "x" * 10**5])
async def test_a_model_of_any_name_is_measured(name: str, tmp_path: Path) -> None:
    async with raw_server(*named(name)) as server:
        server.documents["/v1/models"] = json.dumps({"data": [{"id": name}]}).encode()
        words = ("run", server.url, *PLAIN, "--requests", "3", "--hardware", "dgx-spark")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    rows = ran.rows("requests.jsonl")
    assert rows
    assert all(row["ok"] and len(row["model"]) < 2_000 for row in rows)


async def test_a_server_that_comes_back_as_another_model_is_told_of(tmp_path: Path) -> None:
    async with raw_server(*named("small")) as server:
        words = ("run", server.url, *PLAIN, "--think", "20ms", "--requests", "40", "--json")
        running = await Running.start(*words, out=tmp_path)
        await running.until_rows(10)
        server.script = named("large")
        ran = await running.ended()
    assert ran.code == 0, ran.err
    assert {row["model"] for row in ran.rows("requests.jsonl")} == {"small", "large"}
    (told,) = [w for w in json.loads(ran.out)["warnings"] if "models answered" in w]
    assert told.startswith("2 models answered, and the figures mix them: ")


async def test_over_a_proxy_with_headers_body_and_a_base_path(tmp_path: Path) -> None:
    async with proxy_server() as proxy, raw_server(*ANSWER) as server:
        words = (
            "run", f"http://model.test:{server.port}/team/v1", *PLAIN, "--requests", "6", "--json",
            "--proxy", proxy.url, "--header", "X-A: b", "--header", "User-Agent: me",
            "--extra-body", '{"temperature": 0, "stream_options": null, "top": {"k": 1}}',
        )  # fmt: skip
        ran = await (await Running.start(*words, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["harness"]["transport"] == "aiohttp"
    asked = [head.split("\r\n")[0] for head in proxy.heads]
    where = f"http://model.test:{server.port}/team/v1/chat/completions"
    assert f"POST {where} HTTP/1.1" in asked
    for body in chats(server):
        assert (body["temperature"], body["top"]) == (0, {"k": 1})
        assert "stream_options" not in body
    assert all(b"\r\nX-A: b\r\n" in request for request in server.requests[1:])
    rows = ran.rows("requests.jsonl")
    assert all(row["ok"] and 0 < row["ttft_s"] < row["e2e_s"] for row in rows)


async def test_a_proxy_is_not_used_for_this_machine(tmp_path: Path) -> None:
    async with proxy_server() as proxy, raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--requests", "3", "--proxy", proxy.url, "--json")
        env = {"http_proxy": proxy.url, "HTTP_PROXY": proxy.url, "ALL_PROXY": proxy.url}
        ran = await (await Running.start(*words, out=tmp_path, **env)).ended()
        assert not proxy.heads
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["harness"]["transport"] == "httptools"
    assert "it is not used for it" in ran.err


async def test_what_still_comes_at_the_end_is_waited_for_and_then_cut(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--think", "20ms", "--duration", "3s", "--drain", "1s")
        running = await Running.start(*words, "--json", out=tmp_path)
        await running.until_rows(6)
        server.script = [HEAD, WORD, HANG]
        begun = time.monotonic()
        ran = await running.ended()
    assert time.monotonic() - begun < 15
    assert ran.code == 0, ran.err
    assert "waiting at most 1 s for 3 answers (--drain)" in ran.err
    assert "3 answers were cut off 1 s after the end (--drain)" in json.loads(ran.out)["warnings"]
    assert ran.json("manifest.json")["status"] == "complete"


async def test_a_slow_throttle_does_not_hold_up_the_end(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--duration", "2s", "--max-rps", "0.1")
        ran = await (await Running.start(*words, out=tmp_path)).ended(within_s=12)
        trial, *asked = chats(server)  # a server that lists no model is tried first
        assert (trial["max_tokens"], len(asked)) == (1, 1)
    assert ran.code == 0, ran.err


async def test_a_full_disk_ends_the_run_and_keeps_what_was_measured(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--duration", "60s")
        running = await Running.start(*words, out=tmp_path, limit_bytes=40_000)
        ran = await running.ended(within_s=30)
    assert ran.code == 2, ran.err
    last = ran.err.splitlines()[-1]
    assert f"{ran.run}: results cannot be written: File too large; what" in last
    assert "--resume" in last
    *whole, _ = (ran.run / "requests.jsonl").read_bytes().split(b"\n")
    assert len(whole) >= 10
    assert all(json.loads(line)["request_id"] for line in whole)
    assert ran.json("manifest.json")["status"] in ("failed", "running")


async def test_a_full_disk_is_seen_while_everybody_thinks(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, "--users", "40", *PLAIN[2:], "--think", "10m", "--duration")
        running = await Running.start(*words, "20m", out=tmp_path, limit_bytes=40_000)
        ran = await running.ended(within_s=30)
    assert ran.code == 2, ran.err


async def test_a_folder_that_goes_away_ends_the_run(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *PLAIN, "--duration", "60s")
        running = await Running.start(*words, out=tmp_path)
        run = await running.until_rows(6)
        run.rename(tmp_path / "elsewhere")
        ran = await running.ended(within_s=30)
    assert ran.code == 2, ran.err
    assert ran.err.splitlines()[-1].endswith(f"{run} is gone: nothing more can be written there")
    assert "--resume" not in ran.err


async def test_an_address_with_a_zone_is_reached(tmp_path: Path) -> None:
    async with raw_server(*ANSWER, host="::1") as server:
        words = ("run", f"http://[::1%25lo]:{server.port}", *PLAIN, "--requests", "3")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
        assert ran.code == 0, ran.err
        assert all(b"Host: [::1]:" in request for request in server.requests[-3:])


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a place nobody can write to")
def test_a_folder_that_nobody_can_write_to() -> None:
    ran = headroom("run", "http://127.0.0.1:1", out=Path("/proc/results"))
    assert ran.code == 2
    (line,) = ran.err.splitlines()
    assert "results folder /proc/results/" in line
