"""The JSON that llama-server b11549 sends for a generation, field by field in its order."""

from __future__ import annotations

import json
from dataclasses import asdict
from json.encoder import encode_basestring_ascii
from typing import Any

from mock_server.service import Job, Service
from mock_server.tokens import Vocabulary, split

FINGERPRINT = "b11549-mock"
DONE = b"data: [DONE]\n\n"


def dumps(value: Any) -> bytes:
    """JSON as llama-server writes it: no blanks, text as it is."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace")  # a lone surrogate becomes a question mark


def event(value: Any) -> bytes:
    return b"data: " + dumps(value) + b"\n\n"


class Shape:
    """The events of one route, and its answer in one piece."""

    def opening(self) -> bytes:
        """What goes before the first token, in the same write."""
        return b""

    def progress(self, job: Job, processed: int) -> bytes:
        """`processed` of the prompt's tokens are in the slot."""
        raise NotImplementedError

    def token(self, job: Job, text: str) -> bytes:
        """The newest token shows `text`."""
        raise NotImplementedError

    def ending(self, job: Job) -> list[bytes]:
        """What goes after the last token, one entry a write."""
        raise NotImplementedError

    def whole(self, job: Job) -> bytes:
        raise NotImplementedError


def finish_reason(job: Job) -> str:
    return "length" if job.truncated or job.answer.ended == "limit" else "stop"


def usage(job: Job) -> dict[str, Any]:
    return {
        "completion_tokens": job.generated,
        "prompt_tokens": job.prompt_tokens,
        "total_tokens": job.prompt_tokens + job.generated,
        "prompt_tokens_details": {"cached_tokens": job.cached},
    }


class Chat(Shape):
    """`/v1/chat/completions`."""

    def __init__(
        self, service: Service, name: str, model: str, include_usage: bool, each_timed: bool
    ) -> None:
        self._service = service
        self._id = name
        self._model = model
        self._include_usage = include_usage
        self._each_timed = each_timed
        named = dumps(
            {
                "id": name,
                "model": model,
                "system_fingerprint": FINGERPRINT,
                "object": "chat.completion.chunk",
            }
        )
        self._rest = b"," + named[1:-1]
        self._tail = self._rest + b"}\n\n"

    def opening(self) -> bytes:
        return self._delta(b'{"role":"assistant","content":null}', self._tail)

    def progress(self, job: Job, processed: int) -> bytes:
        told = dumps(
            {
                "prompt_progress": {
                    "total": job.prompt_tokens,
                    "cache": job.cached,
                    "processed": processed,
                    "time_ms": int(job.timings().prompt_ms),
                }
            }
        )
        tail = self._rest + b"," + told[1:] + b"\n\n"
        return self._delta(b'{"role":"assistant","content":null}', tail)

    def token(self, job: Job, text: str) -> bytes:
        delta = b'{"content":%b}' % encode_basestring_ascii(text).encode()
        tail = self._tail
        if self._each_timed:
            tail = self._rest + b',"timings":' + dumps(asdict(job.timings())) + b"}\n\n"
        return self._delta(delta, tail)

    def _delta(self, delta: bytes, tail: bytes) -> bytes:
        return (
            b'data: {"choices":[{"finish_reason":null,"index":0,"delta":'
            + delta
            + b'}],"created":'
            + self._service.unix_s
            + tail
        )

    def ending(self, job: Job) -> list[bytes]:
        choice = {"finish_reason": finish_reason(job), "index": 0, "delta": {}}
        timed = {"timings": asdict(job.timings())}
        if not self._include_usage:
            return [event(self._chunk([choice]) | timed), DONE]
        told = self._chunk([]) | {"usage": usage(job)} | timed
        return [event(self._chunk([choice])) + event(told), DONE]

    def _chunk(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "choices": choices,
            "created": int(self._service.unix_s),
            "id": self._id,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
            "object": "chat.completion.chunk",
        }

    def whole(self, job: Job) -> bytes:
        message = {"role": "assistant", "content": job.answer.text}
        choice = {"finish_reason": finish_reason(job), "index": 0, "message": message}
        return dumps(
            {
                "choices": [choice],
                "created": int(self._service.unix_s),
                "model": self._model,
                "system_fingerprint": FINGERPRINT,
                "object": "chat.completion",
                "usage": usage(job),
                "id": self._id,
                "timings": asdict(job.timings()),
            }
        )


class Completion(Shape):
    """`/v1/completions`, where usage comes without being asked for."""

    def __init__(self, service: Service, name: str, model: str, each_timed: bool) -> None:
        self._service = service
        self._id = name
        self._model = model
        self._each_timed = each_timed

    def token(self, job: Job, text: str) -> bytes:
        body = self._body(text, None) | {"id": self._id}
        if self._each_timed:
            body["timings"] = asdict(job.timings())
        return event(body)

    def ending(self, job: Job) -> list[bytes]:
        return [event(self._last(job, "")), DONE]

    def whole(self, job: Job) -> bytes:
        return dumps(self._last(job, job.answer.text))

    def _last(self, job: Job, text: str) -> dict[str, Any]:
        told = {"usage": usage(job), "id": self._id, "timings": asdict(job.timings())}
        return self._body(text, finish_reason(job)) | told

    def _body(self, text: str, reason: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}
        return {
            "choices": [choice],
            "created": int(self._service.unix_s),
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
            "object": "text_completion",
        }


class Native(Shape):
    """`/completion`, which ends without `[DONE]`."""

    def __init__(self, model: str, prompt: str, vocabulary: Vocabulary, whole_ids: bool) -> None:
        self._model = model
        self._prompt = prompt
        self._vocabulary = vocabulary
        self._whole_ids = whole_ids

    def token(self, job: Job, text: str) -> bytes:
        return event(
            {
                "index": 0,
                "content": text,
                "tokens": self._ids(text),
                "stop": False,
                "id_slot": -1,
                "tokens_predicted": job.generated,
                "tokens_evaluated": job.prompt_tokens,
            }
        )

    def ending(self, job: Job) -> list[bytes]:
        return [event(self._last(job, "", []))]

    def whole(self, job: Job) -> bytes:
        ids = self._ids(job.answer.text) if self._whole_ids else []
        return dumps(self._last(job, job.answer.text, ids))

    def _ids(self, text: str) -> list[int]:
        return [self._vocabulary.id_of(piece) for piece in split(text)]

    def _last(self, job: Job, text: str, ids: list[int]) -> dict[str, Any]:
        return {
            "index": 0,
            "content": text,
            "tokens": ids,
            "id_slot": job.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": job.generated,
            "tokens_evaluated": job.prompt_tokens,
            "generation_settings": job.settings,
            "prompt": self._prompt,
            "has_new_line": False,
            "truncated": job.truncated,
            "stop_type": _stop_type(job),
            "stopping_word": job.answer.stopping_word,
            "tokens_cached": job.prompt_tokens + job.generated - 1,
            "timings": asdict(job.timings()),
        }


def _stop_type(job: Job) -> str:
    if not job.generated:
        return "none"
    return "limit" if job.truncated else job.answer.ended
