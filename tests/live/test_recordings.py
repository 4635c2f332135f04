"""Every recorded chat stream of the real servers, sent again byte for byte, is read rightly."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_stream_behaviours import measure

from headroom_bench.records import RequestRecord

CAPTURES = Path(__file__).parents[1] / "captures"

FAILS = {
    "chat_stream_ctx_full": None,
    "chat_stream_kvu_exhausted_a": "context_exceeded",
    "chat_stream_kvu_exhausted_b": "context_exceeded",
    "chat_stream_engine_killed": "stream_error",
    "chat_stream_client_cancel": "truncated",
    "chat_stream_ping_1s": "empty",  # the first token was the end of sequence
}
"""Recordings that did not end well, and the kind that they are (None: a success all the same)."""


def recordings(fits: Callable[[bytes], bool], *patterns: str) -> list[Any]:
    found = (path for pattern in patterns for path in CAPTURES.glob(pattern))
    files = sorted(path for path in found if fits(path.read_bytes()))
    assert files
    return [pytest.param(path, id="-".join((path.parts[-3], path.stem))) for path in files]


async def replay(path: Path) -> RequestRecord:
    record, _, _ = await measure([path.read_bytes(), "close"])
    return record


def streamed(raw: bytes) -> bool:
    return b"text/event-stream" in raw


def refused(raw: bytes) -> bool:
    return int(raw.split(b" ", 2)[1]) >= 300


def last(pattern: str, text: str) -> int | None:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else None


@pytest.mark.parametrize(
    "path",
    recordings(streamed, "llamacpp/*/http/chat_stream*.resp", "vllm/0.32.0/*/chat_stream*.resp"),
)
async def test_recorded_streams(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    record = await replay(path)
    kind = FAILS.get(path.stem)
    assert record.error_kind == kind
    assert record.ok == (kind is None)
    if not record.ok:
        assert record.error
        return
    finish = re.findall(r'"finish_reason":"(\w+)"', text)
    assert record.finish_reason == finish[-1]
    counted = last(r'"completion_tokens":(\d+)', text) or last(r'"predicted_n":(\d+)', text)
    if "_n2" not in path.stem:  # two choices share one stream: usage comes apart
        assert record.completion_tokens == (counted or record.stream_events)
    if counted:
        assert record.tokens_source in ("usage", "timings")
    if '"prompt_n"' in text:
        cached, read = last(r'"cache_n":(\d+)', text), last(r'"prompt_n":(\d+)', text)
        assert record.cached_tokens == cached
        if cached is not None and read is not None and "_n2" not in path.stem:
            assert record.prompt_tokens == cached + read
        assert record.server_prefill_s is not None
    assert record.stream_events
    assert record.ttft_s is not None


@pytest.mark.parametrize(
    "path", recordings(refused, "llamacpp/*/http/err_*.resp", "vllm/0.32.0/http/err_*.resp")
)
async def test_recorded_refusals(path: Path) -> None:
    raw = path.read_bytes()
    status = int(raw.split(b" ", 2)[1])
    record = await replay(path)
    assert not record.ok
    assert record.error is not None
    assert record.error.startswith(f"HTTP {status}: ")
    expected = {401: "unauthorized", 404: "not_found"}.get(status, "refused")
    if "context_exceeded" in path.stem or path.stem.startswith("err_context"):
        expected = "context_exceeded"
    if status >= 500:
        expected = "server_error"
    assert record.error_kind == expected
