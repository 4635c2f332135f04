"""Reads the recorded journals and the recorded responses that belong to them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headroom_bench.journal.join import ServerTimings
from headroom_bench.journal.llamacpp import Entry, LlamaCppParser
from headroom_bench.journal.sources import follow_file
from headroom_bench.records import JournalRecord

CAPTURES = Path(__file__).parents[1] / "captures"
LLAMACPP = CAPTURES / "llamacpp"
PARALLEL = LLAMACPP / "b11549/journal/parallel-queue-cancel-np2-lv3.log"

SUITE = [
    "chat_eos_natural",
    "chat_ignore_eos",
    "chat_max_tokens_0",
    "chat_max_tokens_1",
    "chat_nonstream",
    "chat_stream",
    "chat_stream_continuous_usage",
    "chat_stream_logprobs",
    "chat_stream_n2",
    "chat_stream_nocache",
    "chat_stream_progress",
    "chat_stream_progress_cached",
    "chat_stream_stop",
    "chat_stream_timings_per_token",
    "chat_stream_tools",
    "chat_stream_usage",
    "native_completion_nonstream",
    "native_completion_stream",
    "native_completion_stream_ignore_eos",
    "oai_completion_stream",
    "oai_completion_stream_usage",
    "responses_stream",
]


def parse(lines: Iterable[str], t_wall: float | None = None) -> list[Entry]:
    parser = LlamaCppParser("test")
    entries = [entry for line in lines for entry in parser.feed(line, t_wall)]
    return entries + parser.close()


def whole_lines(path: Path) -> Iterator[str]:
    """The lines of a journal that nobody writes any more, as a run would read them."""
    ended = threading.Event()
    ended.set()
    return follow_file(path, from_end=False, stop=ended)


def records_of(path: Path | str) -> list[JournalRecord]:
    return only_records(parse(whole_lines(LLAMACPP / path)))


def only_records(entries: Iterable[Entry]) -> list[JournalRecord]:
    return [entry for entry in entries if isinstance(entry, JournalRecord)]


def by_task(records: Iterable[JournalRecord]) -> dict[int, JournalRecord]:
    return {record.task: record for record in records}


def final_events(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a recorded response that end an answer and carry `timings`."""
    text = _body(path.read_bytes()).decode()
    bodies = (
        [text]
        if text.startswith("{")
        else [
            line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")
        ]
    )
    for event in map(json.loads, bodies):
        ends = (
            event.get("stop")
            or event.get("choices") == []
            or any(choice["finish_reason"] for choice in event.get("choices", ()))
            or event.get("type") == "response.completed"
        )
        if ends and "timings" in event:
            yield event


def server_timings(build: str, names: Iterable[str]) -> list[ServerTimings]:
    """One per answer (two for a response of two choices), named after its file."""
    return [
        timings_of(event, name)
        for name in names
        for event in final_events(LLAMACPP / build / "http" / f"{name}.resp")
    ]


def timings_of(event: dict[str, Any], name: str) -> ServerTimings:
    timings = event["timings"]
    fields = ("prompt_n", "cache_n", "prompt_ms", "predicted_n", "predicted_ms")
    return ServerTimings(name, **{field: timings.get(field) for field in fields})


def usage_of(event: dict[str, Any]) -> tuple[int, int] | None:
    """(prompt tokens, completion tokens) as the response counts them."""
    if "tokens_evaluated" in event:
        return event["tokens_evaluated"], event["tokens_predicted"]
    usage = event.get("usage") or event.get("response", {}).get("usage")
    if usage is None:
        return None
    if "input_tokens" in usage:
        return usage["input_tokens"], usage["output_tokens"]
    return usage["prompt_tokens"], usage["completion_tokens"]


def _body(raw: bytes) -> bytes:
    head, _, body = raw.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return body
    out = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        out, body = out + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return out
