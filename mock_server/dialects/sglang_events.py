"""SGLang's events: OpenAI's with its own fields, and those of its native route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from mock_server.answers import Piece
from mock_server.asks import Ask
from mock_server.dialect import DONE, Voice, dumps, event
from mock_server.dialects.openai_events import ChatVoice, CompletionVoice, finish_reason
from mock_server.front import Front
from mock_server.jobs import Job
from mock_server.logprobs import entry_bytes_first, told_by_token
from mock_server.tokens import split

_NOTHING: dict[str, Any] = {
    "role": None,
    "content": None,
    "reasoning_content": None,
    "tool_calls": None,
}
_EOS_ID = 2


def usage(job: Job, front: Front, generated: int) -> dict[str, Any]:
    """With what was generated so far."""
    details = {"cached_tokens": job.cached} if front.options.cache_report else None
    return {
        "prompt_tokens": job.prompt_tokens,
        "total_tokens": job.prompt_tokens + generated,
        "completion_tokens": generated,
        "prompt_tokens_details": details,
        "reasoning_tokens": min(generated, job.answer.thought_tokens),
    }


def matched(job: Job) -> str | int | None:
    """The stop string, or the end token's id, that ended the answer."""
    return job.answer.stopping_word or (_EOS_ID if finish_reason(job) == "stop" else None)


def _with_usage(told: bytes, job: Job, front: Front) -> bytes:
    """Events with the usage so far where they have none."""
    so_far = b'"usage":' + dumps(usage(job, front, job.generated))
    return told.replace(b'"usage":null}\n\n', so_far + b"}\n\n")


class SglangChat(ChatVoice):
    """Role first; every field stands in each delta, mostly null, and usage in each event; the
    finish event tells what matched."""

    role_delta: ClassVar[dict[str, Any]] = _NOTHING | {"role": "assistant", "content": ""}
    fingerprint = None

    def __init__(self, front: Front, ask: Ask, name: str, *, continuous: bool) -> None:
        """`continuous`: usage so far stands in each event."""
        super().__init__(front, ask, name)
        self._continuous = continuous

    def tokens(self, job: Job, new: int, /) -> bytes:
        told = super().tokens(job, new)
        return _with_usage(told, job, self._front) if self._continuous else told

    def _no_usage(self) -> dict[str, Any]:
        return {"usage": None}

    def _content(self, text: bytes) -> bytes:
        return b'{"role":null,"content":%b,"reasoning_content":null,"tool_calls":null}' % text

    def _thought(self, text: bytes) -> bytes:
        return b'{"role":null,"content":null,"reasoning_content":%b,"tool_calls":null}' % text

    def _called_with(self, job: Job, arguments: str) -> bytes:
        return dumps(_NOTHING | {"tool_calls": [self._call(job, arguments)]})

    def _choice(self, delta: bytes, finish: bytes, chances: bytes) -> bytes:
        said = (delta, chances, finish)
        told = b'{"index":0,"delta":%b,"logprobs":%b,"finish_reason":%b,"matched_stop":null}'
        return told % said

    def _logprobs(self, pieces: Sequence[Piece], place: int) -> dict[str, Any] | None:
        top = self._ask.top_logprobs
        if top is None:
            return None
        texts = [piece.text for piece in pieces if piece.channel == "content" and piece.text]
        return {"content": told_by_token(texts, place, top, entry_bytes_first)}

    def _finish(self, job: Job) -> bytes:
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b,"matched_stop":%b}'
        said = (dumps(_NOTHING), dumps(finish_reason(job)), dumps(matched(job)))
        return self._head + choice % said + self._tail

    def _usage(self, job: Job) -> dict[str, Any]:
        return usage(job, self._front, job.generated)

    def _whole_choice(self, job: Job) -> dict[str, Any]:
        return super()._whole_choice(job) | {"matched_stop": matched(job)}

    def _message(self, job: Job) -> dict[str, Any]:
        thoughts = {"reasoning_content": job.answer.thought or None, "tool_calls": None}
        return super()._message(job) | thoughts | self._calls(job)

    def _calls(self, job: Job) -> dict[str, Any]:
        if job.answer.call is None:
            return {}
        return {"tool_calls": [self._whole_call(job)]}


class SglangCompletion(CompletionVoice):
    """`/v1/completions`, with the same additions."""

    def __init__(self, front: Front, ask: Ask, name: str, *, continuous: bool) -> None:
        super().__init__(front, ask, name)
        self._continuous = continuous

    def tokens(self, job: Job, new: int, /) -> bytes:
        told = super().tokens(job, new)
        return _with_usage(told, job, self._front) if self._continuous else told

    def _chunk(
        self, text: str | None, reason: str | None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        return super()._chunk(text, reason, logprobs) | {"usage": None}

    def _choice(
        self, text: str, reason: str | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        told = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return told | {"matched_stop": None}

    def _usage(self, job: Job) -> dict[str, Any]:
        return usage(job, self._front, job.generated)


class SglangNative(Voice):
    """`/generate`: each event holds the whole text so far, unless only what is new is wanted."""

    def __init__(self, front: Front, name: str) -> None:
        self._front = front
        self._id = name
        self._text = ""
        self._ids: list[int] = []

    def tokens(self, job: Job, new: int, /) -> bytes:
        text = "".join(piece.text for piece in job.newest(new))
        self._text += text
        self._ids += [self._front.vocabulary.id_of(piece) for piece in split(text)]
        return b"" if job.complete else event(self._told(job, None))

    def ending(self, job: Job, /) -> list[bytes]:
        return [event(self._told(job, _why(job))), DONE]

    def broken(self, message: str, /) -> bytes:
        return event({"error": {"message": message}}) + DONE

    def whole(self, job: Job, /) -> bytes:
        self._text = job.answer.text
        self._ids = [self._front.vocabulary.id_of(piece) for piece in split(self._text)]
        return dumps(self._told(job, _why(job)))

    def _told(self, job: Job, why: dict[str, Any] | None) -> dict[str, Any]:
        meta: dict[str, Any] = {
            "id": self._id,
            "finish_reason": why,
            "prompt_tokens": job.prompt_tokens,
            "weight_version": "default",
            "total_retractions": job.preemptions,
            "completion_tokens": job.generated,
            "cached_tokens": job.cached,
        }
        if why is not None:
            meta["e2e_latency"] = job.queue_s + job.prompt_s + job.decode_s
            if job.drafted:
                meta["spec_accept_rate"] = job.accepted / job.drafted
                steps = max(1, job.generated - 1 - job.accepted)
                meta["spec_accept_length"] = (job.generated - 1) / steps
        return {"text": self._text, "output_ids": self._ids, "meta_info": meta}


def _why(job: Job) -> dict[str, Any]:
    if finish_reason(job) == "length":
        return {"type": "length", "length": job.generated}
    return {"type": "stop", "matched": matched(job)}
