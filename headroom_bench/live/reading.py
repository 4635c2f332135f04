"""What an OpenAI-style answer said, read from its stamped bytes after it ended.

Success needs a finish reason and at least one token. Events are not tokens: counts come from the
server's `usage` or `timings`, and only where both are missing are events counted and marked so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from headroom_bench.live.alike import TABLES, Alike, Stamped
from headroom_bench.live.exchange import Exchange
from headroom_bench.live.sse import StreamEvent, stream_events
from headroom_bench.live.told import told_count
from headroom_bench.live.unpacking import PackingError, unpacked
from headroom_bench.redaction import shortened

_LARGEST_EVENT_BYTES = 4 * 2**20
"""A larger one is no event that we know, and parsing it would hold up every other stream."""
_LARGEST_LOOSE_BYTES = 2**18
"""A larger one must be JSON by the rules: the lenient parser takes some 5 ms for so much."""
_LOOKED_AT = 65_536
"""Bytes of an answer in which a key is looked for before its start is quoted."""
_DECODER = json.JSONDecoder(strict=False)
"""Line ends inside a text are the server's fault, but no doubt about what it said."""
_STREAM_START = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:data|event|id|retry)?:")

Channel = Literal["content", "reasoning", "tool", "silent"]
"""silent: a token that decodes to nothing (yet), told by the server's running count."""
_SEEN_FIRST: tuple[Channel, ...] = ("content", "reasoning", "tool")
"""As which an event counts that carries several: what the most devices show."""
_OURS = ("", "message")
"""Names of events that are read by everybody who does not ask for names (WHATWG)."""
_WHOLE_BODY = 0
_FAILED = ("error", "abort")
"""Finish reasons of answers that did not finish: vLLM's, SGLang's, OpenRouter's."""


@dataclass(slots=True)
class Reading:
    """One answer, as far as it got."""

    stamps_ns: list[int] = field(default_factory=list)
    """When every event came that carried a token."""
    channels: list[Channel] = field(default_factory=list)
    """What each of them carried it on."""
    token_counts: list[int | None] = field(default_factory=list)
    """Tokens generated up to each of them, as the server says or lists them; None where it does
    not, or where nobody needs it: those between the first and the last may be left out."""
    content: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, Any] | None = None
    model: str | None = None
    done_mark: bool = False
    events: int = 0
    error: str | None = None
    error_type: str | None = None
    nonsense: str | None = None
    """The first event that could not be understood."""
    nonsense_at: int = 0
    """Which event that was, counted from 1 (0: the body itself): the last one may only have been
    cut."""

    def add_token(self, stamp_ns: int, channel: Channel) -> None:
        self.stamps_ns.append(stamp_ns)
        self.channels.append(channel)

    @property
    def text(self) -> str:
        return "".join(self.content)


def read_stream(exchange: Exchange) -> Iterator[Reading]:
    """Parses an exchange, yielding the growing reading after every event, so that the caller can
    give way to the event loop between slices. The last yield is the whole."""
    reading = Reading()
    yield reading
    if not exchange.status:
        return
    stamped = zip(exchange.stamps_ns, exchange.pieces, strict=True)
    pieces = unpacked(stamped, exchange.headers.get("content-encoding", ""))
    try:
        if exchange.status >= 300 or not _is_stream(exchange):
            _read_plain(reading, exchange, _beginning(pieces))
        else:
            yield from _read_events(reading, pieces)
    except PackingError as why:
        if not reading.done_mark and not reading.finish_reason:
            reading.nonsense, reading.nonsense_at = str(why), _WHOLE_BODY
    yield reading


def _read_events(reading: Reading, pieces: Iterable[Stamped]) -> Iterator[Reading]:
    alike = Alike()

    def take(first: Stamped, more: Iterator[Stamped]) -> Stamped | None:
        if reading.done_mark:
            return first
        texts: list[str] = []
        left = alike.take_run(first, more, reading.stamps_ns, texts)
        if texts:
            reading.events += len(texts)
            reading.channels += [alike.channel] * len(texts)
            reading.token_counts += [None] * len(texts)
            if alike.channel == "content":
                reading.content += texts
        return left

    try:
        for told in stream_events(pieces, take):
            if told is not None and not reading.done_mark:
                _read_told(reading, told, alike)
            elif told is not None:
                _read_late(reading, told.data)
            yield reading
    finally:  # also where its packing breaks off
        _catch_up(reading, alike)


def _is_stream(exchange: Exchange) -> bool:
    """Whether the body is one of events: it says so, or it says no other and looks like one."""
    kind = exchange.headers.get("content-type", "").lower()
    if "event-stream" in kind:
        return True
    told_other = kind and not kind.startswith(("text/plain", "application/octet-stream"))
    return not told_other and _STREAM_START.match(b"".join(exchange.pieces[:16])) is not None


def _read_told(reading: Reading, told: StreamEvent, alike: Alike) -> None:
    stamp_ns, name, data = told
    data = data.strip()
    if data == b"[DONE]":
        reading.done_mark = True
        return
    if not data:
        return
    reading.events += 1
    tokens = len(reading.stamps_ns)
    parsed = _read_event(reading, stamp_ns, name, data, alike)
    if parsed is not None and len(reading.stamps_ns) == tokens + 1:
        alike.learn(data, parsed)


def _read_late(reading: Reading, data: bytes) -> None:
    """An event after the end: counts may still come, and nothing else is part of the answer."""
    parsed = _json(data)
    if isinstance(parsed, dict) and reading.usage is None and reading.timings is None:
        _read_tables(reading, parsed)


def has_token(exchange: Exchange) -> Iterator[bool]:
    """Whether a token has come yet, told after every step of the reading."""
    return (bool(reading.stamps_ns) for reading in read_stream(exchange))


def _catch_up(reading: Reading, alike: Alike) -> None:
    """Takes from the latest event that was read without parsing what there is beside its text."""
    parsed = _json(alike.last_json) if alike.last else None
    alike.last = b""
    if isinstance(parsed, dict):
        reading.token_counts[-1] = _generated_so_far(parsed)
        _read_tables(reading, parsed)


def _read_tables(reading: Reading, parsed: dict[str, Any]) -> None:
    if isinstance(parsed.get("usage"), dict):
        reading.usage = parsed["usage"]
    if isinstance(parsed.get("timings"), dict):
        reading.timings = parsed["timings"]
    if isinstance(parsed.get("model"), str):
        reading.model = parsed["model"]


def _beginning(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    """A body up to the size above which nobody parses it."""
    kept, size = [], 0
    for _, piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size > _LARGEST_EVENT_BYTES:
            break
    return b"".join(kept)


def _read_plain(reading: Reading, exchange: Exchange, body: bytes) -> None:
    """A body that is not a stream: an error object, or something we did not ask for."""
    parsed = _json(body)
    if isinstance(parsed, dict) and _read_error(reading, parsed):
        return
    start = shortened(body[:_LOOKED_AT].decode("utf-8", "replace"), 120).strip()
    if exchange.status < 300:
        kind = exchange.headers.get("content-type", "")
        reading.nonsense = f"{kind or 'no content type'} instead of an event stream: {start!r}"
    else:
        reading.error = start or f"HTTP status {exchange.status}"


def _read_event(
    reading: Reading, stamp_ns: int, name: str, data: bytes, alike: Alike
) -> dict[str, Any] | None:
    """Adds what an event says; returns it, where it has one choice with a delta alone."""
    parsed = _json(data)
    if not isinstance(parsed, dict):
        start = shortened(data[:_LOOKED_AT].decode("utf-8", "replace"), 80)
        if name == "error":
            reading.error = start
        elif reading.nonsense is None and name in _OURS:  # others may say what they like
            reading.nonsense = f"an event that is not a JSON object: {start!r}"
            reading.nonsense_at = reading.events
        return None
    if _read_error(reading, parsed, whole=not name or name == "error"):
        return None
    if name == "error":
        reading.error = str(parsed.get("message", parsed))
        return None
    choices = parsed.get("choices")
    choices = [c for c in choices if isinstance(c, dict)] if isinstance(choices, list) else []
    before = len(reading.stamps_ns)
    spoken = [channel for choice in choices for channel in _read_choice(reading, choice)]
    if spoken:  # one event is one moment, whatever it carries
        reading.add_token(stamp_ns, min(spoken, key=_SEEN_FIRST.index))
    if alike.last and (
        len(reading.stamps_ns) == before
        or not all(isinstance(parsed.get(table), dict) for table in alike.tables)
    ):
        _catch_up(reading, alike)
    alike.last = b""  # what follows counts from here
    _read_tables(reading, parsed)
    told = _generated_so_far(parsed) or _counted_up(reading, choices)
    if choices and told is not None and not reading.finish_reason:
        _note_silent(reading, stamp_ns, told)
    new = len(reading.stamps_ns) - len(reading.token_counts)
    reading.token_counts += [told] * new
    whole = len(choices) == 1 == len(parsed["choices"])
    return parsed if whole and isinstance(choices[0].get("delta"), dict) and not name else None


def _note_silent(reading: Reading, stamp_ns: int, told: int) -> None:
    """A count that rose while no text came: the token decodes to nothing, but it has come."""
    if len(reading.stamps_ns) > len(reading.token_counts):
        return
    known = reading.token_counts[-1] if reading.token_counts else 0
    if known is not None and told > known:
        reading.add_token(stamp_ns, "silent")


def _generated_so_far(parsed: dict[str, Any]) -> int | None:
    """The running count that llama.cpp (`timings_per_token`) and vLLM (continuous usage) send."""
    for table, field_name in (("timings", "predicted_n"), ("usage", "completion_tokens")):
        counts = parsed.get(table)
        told = told_count(counts, field_name)
        if told:
            return told
    return None


def _counted_up(reading: Reading, choices: list[dict[str, Any]]) -> int | None:
    """The running count by what events tell of their own tokens (ids, or log-probabilities)."""
    before = reading.token_counts[-1] if reading.token_counts else 0
    own = sum(map(_own_tokens, choices))
    return before + own if before is not None and own else None


def _own_tokens(choice: dict[str, Any]) -> int:
    """Tokens of one event: vLLM's `token_ids` (`return_token_ids`), or one log-probability each."""
    chances = choice.get("logprobs")
    for told in (
        choice.get("token_ids"),
        chances.get("content") if isinstance(chances, dict) else None,
    ):
        if isinstance(told, list):
            return len(told)
    return 0


def _read_choice(reading: Reading, choice: dict[str, Any]) -> Iterator[Channel]:
    """Takes what a choice says, and tells the channels that it says it on."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        said = delta.get("content")
        if isinstance(thought, str) and thought:
            yield "reasoning"
        if isinstance(said, str) and said:
            reading.content.append(said)
            yield "content"
        if delta.get("tool_calls"):
            yield "tool"
    text = choice.get("text")  # the older completions route
    if isinstance(text, str) and text:
        reading.content.append(text)
        yield "content"
    if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
        reading.finish_reason = choice["finish_reason"]


def _read_error(reading: Reading, parsed: dict[str, Any], whole: bool = True) -> bool:
    """Takes an error, if it is one. `whole`: nothing else says what this is, as an event's name
    does; then a `detail` is one too, where no part of an answer is with it."""
    error = parsed.get("error")
    if not error and parsed.get("object") == "error":  # older vLLM's and SGLang's
        error = parsed
    if not error and whole and not parsed.keys() & {"choices", *TABLES}:  # FastAPI's
        error = parsed.get("detail")
    if not error:
        return False
    if isinstance(error, dict):
        reading.error = str(error.get("message") or error)
        reading.error_type = str(error.get("type") or error.get("code") or "")
    else:
        reading.error = str(error)
    return True


def _json(data: bytes) -> Any:
    if len(data) > _LARGEST_EVENT_BYTES:
        return None
    try:
        return msgspec.json.decode(data)  # in a quarter of the time, and strict
    except (ValueError, RecursionError):
        pass  # what servers write in spite of the rules is read all the same
    if len(data) > _LARGEST_LOOSE_BYTES:
        return None
    try:
        return _DECODER.decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def failure(exchange: Exchange, reading: Reading) -> tuple[str, str] | None:
    """The named kind and the message of what went wrong; None for a success.

    Kinds: connect_failed, connect_timeout, timeout, reset, not_http, too_large, abandoned,
    interrupted, unauthorized, not_found, rate_limited, unavailable, context_exceeded, refused,
    server_error, stream_error, nonsense, truncated, empty.
    """
    if exchange.status >= 300:
        return _status_kind(exchange.status, reading), _shown(exchange.status, reading)
    if reading.error is not None:
        kind = "context_exceeded" if _is_context(reading) else "stream_error"
        return kind, reading.error
    if reading.finish_reason in _FAILED:
        return "stream_error", f"the answer ended with the finish reason {reading.finish_reason}"
    broke_off = exchange.ended == "reset" and reading.finish_reason  # nothing is missing
    if exchange.ended not in ("complete", "marker", "eof") and not broke_off:
        return exchange.ended, exchange.problem
    if exchange.ended == "eof" and not reading.finish_reason:
        if not exchange.headers_ns:
            return "reset", "the connection closed before any answer"
        return "truncated", "the answer broke off without a finish reason"
    last = reading.nonsense_at == reading.events and not reading.done_mark
    if reading.nonsense is not None and not (last and reading.stamps_ns):  # the close tore it
        return "nonsense", reading.nonsense
    if not reading.finish_reason:
        return "truncated", "the answer ended without a finish reason"
    if not reading.stamps_ns and not _counted(reading):
        return "empty", f"finished ({reading.finish_reason}) without a token"
    return None


def _counted(reading: Reading) -> bool:
    """Whether the server says that tokens came although no event showed any text. One alone is
    the end of sequence itself: llama.cpp counts it."""
    return (told_count(reading.usage, "completion_tokens") or 0) > 1


def _status_kind(status: int, reading: Reading) -> str:
    if _is_context(reading):
        return "context_exceeded"
    named = {401: "unauthorized", 403: "unauthorized", 404: "not_found", 429: "rate_limited"}
    if status in named:
        return named[status]
    if status == 503:
        return "unavailable"
    return "server_error" if status >= 500 else "refused"


def _is_context(reading: Reading) -> bool:
    told = f"{reading.error_type or ''} {reading.error or ''}".lower()
    return (
        "exceed_context" in told
        or "max_model_len" in told
        or (
            "context" in told
            and any(w in told for w in ("exceed", "maximum", "too long", "length"))
        )
    )


def _shown(status: int, reading: Reading) -> str:
    return f"HTTP {status}: {reading.error or 'no message'}"
