"""Ollama's JSON lines, and its OpenAI-like events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

from mock_server.answers import Piece
from mock_server.dialect import Voice, dumps
from mock_server.dialects.openai_events import ChatVoice, CompletionVoice, finish_reason, usage
from mock_server.front import Front
from mock_server.jobs import Job
from mock_server.tokens import split

_NS = 1_000_000_000


def now() -> str:
    """As Go prints it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")


class NativeVoice(Voice):
    """`/api/chat` and `/api/generate`: a line a token, then one with the durations in nanoseconds.

    Fields that are zero are left out, as Go's `omitempty` does.
    """

    def __init__(self, front: Front, *, chat: bool, load_s: float, rendered: str | None) -> None:
        """`load_s`: how long the model took to load for this request. `rendered`: its prompt,
        where `/api/generate` tells it as the `context` of a next one."""
        self._front = front
        self._chat = chat
        self._load_s = load_s
        self._rendered = rendered
        self._model = dumps(front.model)

    def tokens(self, job: Job, new: int, /) -> bytes:
        told = [self._said(piece) for piece in job.newest(new) if piece.text]
        if not told:
            return b""
        stamp = now().encode()
        head = b'{"model":%b,"created_at":"%b",' % (self._model, stamp)
        return b"".join(head + said + b',"done":false}\n' for said in told if said)

    def ending(self, job: Job, /) -> list[bytes]:
        told: dict[str, Any] = {"model": self._front.model, "created_at": now()}
        if not self._chat:
            told["response"] = ""
        elif job.answer.ended == "tool":  # calls are parsed whole and come before the end
            line = told | {"message": self._message("", calls=job), "done": False}
            last = told | {"message": self._message("")} | self._done(job)
            return [dumps(line) + b"\n", dumps(last) + b"\n"]
        else:
            told["message"] = self._message("")
        return [dumps(told | self._done(job)) + b"\n"]

    def broken(self, message: str, /) -> bytes:
        return dumps({"error": message}) + b"\n"

    def whole(self, job: Job, /) -> bytes:
        told: dict[str, Any] = {"model": self._front.model, "created_at": now()}
        answer = job.answer
        if self._chat:
            calls = job if answer.ended == "tool" else None
            told["message"] = self._message(answer.text, answer.thought, calls)
        else:
            told["response"] = answer.text
            if answer.thought:
                told["thinking"] = answer.thought
        return dumps(told | self._done(job))

    def _said(self, piece: Piece) -> bytes:
        text = encode_basestring_ascii(piece.text).encode()
        thinks = piece.channel == "reasoning"
        if piece.channel == "tool":
            return b""
        if not self._chat:
            return b'"response":"","thinking":%b' % text if thinks else b'"response":%b' % text
        if thinks:
            return b'"message":{"role":"assistant","content":"","thinking":%b}' % text
        return b'"message":{"role":"assistant","content":%b}' % text

    def _message(self, text: str, thought: str = "", calls: Job | None = None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thought:
            message["thinking"] = thought
        if calls is not None:
            assert calls.answer.call is not None
            arguments = json.loads(calls.answer.arguments)
            function = {"name": calls.answer.call.name, "arguments": arguments}
            message["tool_calls"] = [{"function": function}]
        return message

    def _done(self, job: Job) -> dict[str, Any]:
        limited = job.truncated or job.answer.ended == "limit"
        told: dict[str, Any] = {"done": True, "done_reason": "length" if limited else "stop"}
        if self._rendered is not None:
            pieces = split(self._rendered + job.answer.text)
            told["context"] = [self._front.vocabulary.id_of(piece) for piece in pieces]
        waited_s = self._load_s + job.queue_s
        durations = {
            "total_duration": int((waited_s + job.prompt_s + job.decode_s) * _NS),
            "load_duration": int(waited_s * _NS),
            "prompt_eval_count": job.prompt_tokens,
            "prompt_eval_cached_count": job.cached,
            "prompt_eval_duration": int(job.prompt_s * _NS),
            "eval_count": job.generated,
            "eval_duration": int(job.decode_s * _NS),
        }
        return told | {name: value for name, value in durations.items() if value}


class OllamaChat(ChatVoice):
    """`/v1/chat/completions`. The role stands on the first token's event; while it thinks the
    content is empty."""

    fingerprint = "fp_ollama"
    thought_key = "reasoning"
    role_delta: ClassVar[dict[str, Any]] = {}

    def tokens(self, job: Job, new: int, /) -> bytes:
        said = (self._said(job, piece) for piece in job.newest(new))
        told = [self._chunk(delta) for delta in said if delta]
        if told and not self._begun:
            self._begun = True
            told[0] = told[0].replace(b'"delta":{', b'"delta":{"role":"assistant",', 1)
        return b"".join(told)

    def _no_usage(self) -> dict[str, Any]:
        return {}

    def broken(self, _: str, /) -> bytes:
        """The proxy in front of the native route reads its error line as an empty chunk, so the
        client sees an empty delta and the end: no error, no finish, no `[DONE]`."""
        return self._chunk(b'{"role":"assistant","content":""}')

    def _thought(self, text: bytes) -> bytes:
        return b'{"content":"","reasoning":%b}' % text

    def _said(self, job: Job, piece: Piece) -> bytes:
        return b"" if piece.channel == "tool" else super()._said(job, piece)

    def _choice(self, delta: bytes, finish: bytes, _: bytes) -> bytes:
        return b'{"index":0,"delta":%b,"finish_reason":%b}' % (delta, finish)

    def _finish(self, job: Job) -> bytes:
        finish = super()._finish(job)
        if job.answer.ended != "tool":
            return finish.replace(b'"delta":{}', b'"delta":{"role":"assistant","content":""}', 1)
        call = self._whole_call(job) | {"index": 0}
        delta = dumps({"role": "assistant", "content": "", "tool_calls": [call]})
        return self._chunk(delta) + finish

    def _whole_choice(self, job: Job) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "message": self._message(job)}
        return choice | {"finish_reason": finish_reason(job)}

    def _usage(self, job: Job) -> dict[str, Any]:
        return usage(job)


class OllamaCompletion(CompletionVoice):
    """`/v1/completions`."""

    def _chunk(
        self, text: str | None, reason: str | None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        told = super()._chunk(text, reason, logprobs)
        model = told.pop("model")
        return told | {"model": model, "system_fingerprint": "fp_ollama"}

    def _choice(self, text: str, reason: str | None, _: dict[str, Any] | None) -> dict[str, Any]:
        return {"text": text, "index": 0, "finish_reason": reason}
