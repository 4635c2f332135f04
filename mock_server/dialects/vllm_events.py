"""vLLM 0.32's events, field by field in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

from mock_server.answers import Piece
from mock_server.asks import Ask
from mock_server.dialect import DONE, Voice, dumps, event
from mock_server.dialects.openai_events import finish_reason
from mock_server.front import Front
from mock_server.jobs import Job
from mock_server.logprobs import entry, told_by_column, told_by_token

FINGERPRINT = "vllm-0.32.0-mock"


def usage(job: Job) -> dict[str, Any]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "total_tokens": job.prompt_tokens + job.generated,
        "completion_tokens": job.generated,
    }


def request_metrics(job: Job) -> dict[str, Any]:
    """The request's own times. The first token's starts at scheduling, not at arrival, and the
    rate takes the prompt's time in, as the server's do."""
    told: dict[str, Any] = {
        "time_to_first_token_ms": job.prompt_s * 1e3,
        "generation_time_ms": job.decode_s * 1e3,
        "queue_time_ms": job.queue_s * 1e3,
    }
    if job.generated > 1:
        told["mean_itl_ms"] = job.decode_s * 1e3 / (job.generated - 1)
    busy_s = job.prompt_s + job.decode_s
    return told | {"tokens_per_second": job.generated / busy_s if busy_s else 0.0}


class _VllmVoice(Voice):
    """Tokens are sent `interval` at a time, the first one at once, and whatever came with the last
    one goes with the finish reason."""

    def __init__(
        self, front: Front, ask: Ask, name: str, *, interval: int, continuous: bool, ids: bool
    ) -> None:
        """`continuous`: usage stands on each event. `ids`: token ids too."""
        self._front = front
        self._ask = ask
        self._id = name
        self._interval = interval
        self._continuous = continuous
        self._ids = ids
        self._created = int(front.service.unix_s)
        self._waiting: list[Piece] = []
        self._begun = False

    def tokens(self, job: Job, new: int, /) -> bytes:
        self._waiting = [*self._waiting, *job.newest(new)]  # not in place: voices are copied
        begun, self._begun = self._begun, True
        if begun and not job.complete and len(self._waiting) < self._interval:
            return b""
        waiting, self._waiting = self._waiting, []
        return (b"" if begun else self._role(job)) + self._events(job, waiting)

    def ending(self, job: Job, /) -> list[bytes]:
        if self._ask.include_usage:
            return [self._usage_event(job), DONE]
        return [DONE]

    def broken(self, message: str) -> bytes:
        return b"data: " + _spaced(self._front.dialect.stream_error(message)) + b"\n\n" + DONE

    def _role(self, _: Job) -> bytes:
        return b""

    def _events(self, job: Job, pieces: list[Piece]) -> bytes:
        raise NotImplementedError

    def _running(self, job: Job, generated: int) -> bytes:
        """Usage so far, where each event has it."""
        if not self._continuous:
            return b""
        total = job.prompt_tokens + generated
        counts = (job.prompt_tokens, total, generated)
        return (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,'
            b'"completion_tokens_details":null}' % counts
        )

    def _usage_event(self, job: Job) -> bytes:
        told = usage(job)
        if self._front.options.cache_report:
            told["prompt_tokens_details"] = self._details(job)
        return event(self._named() | {"choices": [], "usage": told} | self._closing(job))

    def _details(self, job: Job) -> dict[str, Any]:
        return {"cached_tokens": job.cached}

    def _closing(self, job: Job) -> dict[str, Any]:
        told: dict[str, Any] = {"system_fingerprint": FINGERPRINT}
        if self._front.options.request_metrics:
            told["metrics"] = request_metrics(job)
        return told

    def _named(self) -> dict[str, Any]:
        raise NotImplementedError

    def _id_list(self, pieces: list[Piece]) -> bytes:
        if not self._ids:
            return b"null"
        id_of = self._front.vocabulary.id_of
        return dumps([id_of(piece.text.encode("utf-8", "surrogatepass")) for piece in pieces])

    def _texts(self, pieces: Sequence[Piece]) -> list[str]:
        return [piece.text for piece in pieces if piece.channel == "content" and piece.text]

    def _last_parts(self, job: Job) -> tuple[bytes, bytes]:
        """Finish and stop reason of the event that holds the last token."""
        word = job.answer.stopping_word
        stop = dumps(word) if word else b"null"
        return dumps(finish_reason(job)), b',"stop_reason":' + stop


class VllmChat(_VllmVoice):
    """`/v1/chat/completions`. The role comes alone, when the first token exists; the finish reason
    stands on the event of the last token."""

    def __init__(
        self, front: Front, ask: Ask, name: str, *, interval: int, continuous: bool, ids: bool
    ) -> None:
        super().__init__(front, ask, name, interval=interval, continuous=continuous, ids=ids)
        self._called = False
        self._head = b"data: " + dumps(self._named())[:-1] + b',"choices":[{"index":0,"delta":'

    def _named(self) -> dict[str, Any]:
        told = {"id": self._id, "object": "chat.completion.chunk", "created": self._created}
        return told | {"model": self._front.model}

    def _role(self, job: Job) -> bytes:
        ids = self._prompt_ids(job)
        return (
            self._head
            + b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            + self._running(job, 0)
            + b',"prompt_token_ids":%b,"prompt_text":null}\n\n' % ids
        )

    def _prompt_ids(self, job: Job) -> bytes:
        return dumps([0] * job.prompt_tokens) if self._ids else b"null"

    def _events(self, job: Job, pieces: list[Piece]) -> bytes:
        """One event, or two where reasoning turns into an answer."""
        groups: list[list[Piece]] = []
        for piece in pieces:
            if groups and groups[-1][0].channel == piece.channel:
                groups[-1].append(piece)
            else:
                groups.append([piece])
        told, done = b"", job.generated - len(pieces)
        for number, group in enumerate(groups, 1):
            done += len(group)
            last = job.complete and number == len(groups)
            text = "".join(piece.text for piece in group)
            if group[0].channel or last:
                told += self._event(job, group, text, done, last)
        return told

    def _event(self, job: Job, group: list[Piece], text: str, done: int, last: bool) -> bytes:
        finish, stop = self._last_parts(job) if last else (b"null", b"")
        tail = b'],"system_fingerprint":"%b"' % FINGERPRINT.encode()
        end = tail if last and not self._ask.include_usage else b"]"
        chances = dumps(self._logprobs(group, done - len(group)))
        delta = self._delta(job, group[0].channel, text)
        parts = (delta, chances, finish, stop, self._id_list(group))
        choice = b'%b,"logprobs":%b,"finish_reason":%b%b,"token_ids":%b}' % parts
        return self._head + choice + end + self._running(job, done) + b"}\n\n"

    def _delta(self, job: Job, channel: str, text: str) -> bytes:
        if channel == "tool":
            function: dict[str, Any] = {"arguments": text}
            call: dict[str, Any] = {"index": 0, "function": function}
            if not self._called:
                self._called = True
                assert job.answer.call is not None
                named = {"id": self._call_id(), "type": "function", "index": 0}
                call = named | {"function": {"name": job.answer.call.name} | function}
            return dumps({"tool_calls": [call]})
        key = b"reasoning" if channel == "reasoning" else b"content"
        return b'{"%b":%b}' % (key, encode_basestring_ascii(text).encode())

    def _logprobs(self, pieces: Sequence[Piece], place: int) -> dict[str, Any] | None:
        top = self._ask.top_logprobs
        if top is None:
            return None
        return {"content": told_by_token(self._texts(pieces), place, top, entry)}

    def _call_id(self) -> str:
        return f"chatcmpl-tool-{self._id[-16:]}"

    def _details(self, job: Job) -> dict[str, Any]:
        return {"cached_tokens": job.cached, "created_cache_tokens": job.prompt_tokens - job.cached}

    def whole(self, job: Job, /) -> bytes:
        answer = job.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
        message |= {"annotations": None, "audio": None, "function_call": None}
        if answer.call is not None:
            function = {"name": answer.call.name, "arguments": answer.arguments}
            call = {"id": self._call_id(), "type": "function", "function": function}
            message |= {"content": None, "tool_calls": [call]}
        message["reasoning"] = answer.thought or None
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(answer.pieces, 0),
            "finish_reason": finish_reason(job),
            "stop_reason": answer.stopping_word or None,
            "token_ids": None,
            "routed_experts": None,
        }
        told: dict[str, Any] = {"id": self._id, "object": "chat.completion"}
        told |= {"created": self._created, "model": self._front.model, "choices": [choice]}
        told |= {"service_tier": None, "system_fingerprint": FINGERPRINT}
        details = self._details(job) | {"multimodal_tokens": None}
        kept = details if self._front.options.cache_report else None
        told["usage"] = usage(job) | {
            "prompt_tokens_details": kept,
            "completion_tokens_details": None,
        }
        for name in ("prompt_logprobs", "prompt_token_ids", "prompt_text"):
            told[name] = None
        told |= {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
        if self._front.options.request_metrics:
            told["metrics"] = request_metrics(job) | {"speculative_decoding": None}
        return dumps(told)


class VllmCompletion(_VllmVoice):
    """`/v1/completions`."""

    _letters = 0
    """Of the answer so far."""

    def _named(self) -> dict[str, Any]:
        told = {"id": self._id, "object": "text_completion", "created": self._created}
        return told | {"model": self._front.model}

    def _events(self, job: Job, pieces: list[Piece]) -> bytes:
        text = "".join(piece.text for piece in pieces)
        last = job.complete
        choice = self._choice(job, text, last, self._logprobs(pieces, job.generated - len(pieces)))
        told = self._named() | {"choices": [choice]}
        if self._continuous:
            told["usage"] = usage(job) | {"completion_tokens_details": None}
        if last and not self._ask.include_usage:
            told["system_fingerprint"] = FINGERPRINT
        return event(told)

    def _logprobs(self, pieces: Sequence[Piece], place: int) -> dict[str, Any] | None:
        top, offset = self._ask.top_logprobs, self._letters
        texts = self._texts(pieces)
        self._letters += sum(map(len, texts))
        return None if top is None else told_by_column(texts, place, top, offset)

    def _choice(
        self, job: Job, text: str, last: bool, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": finish_reason(job) if last else None,
            "stop_reason": (job.answer.stopping_word or None) if last else None,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def whole(self, job: Job, /) -> bytes:
        logprobs = self._logprobs(job.answer.pieces, 0)
        told = self._named() | {"choices": [self._choice(job, job.answer.text, True, logprobs)]}
        return dumps(told | {"usage": usage(job)} | self._closing(job))


def _spaced(value: Any) -> bytes:
    """JSON as Python writes it by default: vLLM's errors come so."""
    return json.dumps(value).encode()
