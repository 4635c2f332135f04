"""OpenAI's events, with the places where servers that copy them differ."""

from __future__ import annotations

from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

from mock_server.answers import Piece
from mock_server.asks import Ask
from mock_server.dialect import DONE, Voice, dumps, event
from mock_server.front import Front
from mock_server.jobs import Job
from mock_server.logprobs import entry, told_by_column, told_by_token

_CHOICE = "<choice>"
"""Stands where an event's choice goes."""


def finish_reason(job: Job) -> str:
    if job.truncated or job.answer.ended == "limit":
        return "length"
    return "tool_calls" if job.answer.ended == "tool" else "stop"


def usage(job: Job) -> dict[str, Any]:
    """Three counts, in OpenAI's order."""
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": job.generated,
        "total_tokens": job.prompt_tokens + job.generated,
    }


class ChatVoice(Voice):
    """`/v1/chat/completions`: role, tokens, finish, usage, `[DONE]`, each an event of its own."""

    role_delta: ClassVar[dict[str, Any]] = {"role": "assistant", "content": "", "refusal": None}
    thought_key: ClassVar[str] = "reasoning_content"
    fingerprint: ClassVar[str | None] = "fp_mock"

    def __init__(self, front: Front, ask: Ask, name: str) -> None:
        self._front = front
        self._ask = ask
        self._id = name
        self._begun = False
        self._called = False
        self._created = int(front.service.unix_s)
        usual = event(self._envelope([_CHOICE]) | self._no_usage())
        self._head, _, self._tail = usual.partition(dumps(_CHOICE))

    # --- events -------------------------------------------------------------------------------

    def tokens(self, job: Job, new: int, /) -> bytes:
        told = b""
        if not self._begun:
            self._begun = True
            told = self._chunk(dumps(self.role_delta))
        for place, piece in enumerate(job.newest(new), job.generated - new):
            said = self._said(job, piece)
            if said:
                plain = self._ask.top_logprobs is None
                told += self._chunk(
                    said, logprobs=None if plain else self._logprobs([piece], place)
                )
        return told

    def ending(self, job: Job, /) -> list[bytes]:
        told = [self._finish(job)]
        if self._ask.include_usage:
            told.append(event(self._usage_event(job)))
        return [*told, DONE]

    def broken(self, message: str) -> bytes:
        return event(self._front.dialect.stream_error(message)) + DONE

    def _finish(self, job: Job) -> bytes:
        return self._chunk(b"{}", dumps(finish_reason(job)))

    def _chunk(
        self, delta: bytes, finish: bytes = b"null", logprobs: dict[str, Any] | None = None
    ) -> bytes:
        chances = b"null" if logprobs is None else dumps(logprobs)
        return self._head + self._choice(delta, finish, chances) + self._tail

    def _choice(self, delta: bytes, finish: bytes, chances: bytes) -> bytes:
        said = (delta, chances, finish)
        return b'{"index":0,"delta":%b,"logprobs":%b,"finish_reason":%b}' % said

    def _logprobs(self, pieces: Sequence[Piece], place: int) -> dict[str, Any] | None:
        """Of tokens from `place` on; None where they are not wanted."""
        top = self._ask.top_logprobs
        if top is None:
            return None
        texts = [piece.text for piece in pieces if piece.channel == "content" and piece.text]
        return {"content": told_by_token(texts, place, top, entry), "refusal": None}

    def _said(self, job: Job, piece: Piece) -> bytes:
        """A token's delta; empty where it shows nothing."""
        if not piece.text:
            return b""
        if piece.channel == "tool":
            return self._called_with(job, piece.text)
        text = encode_basestring_ascii(piece.text).encode()
        if piece.channel == "reasoning":
            return self._thought(text)
        return self._content(text)

    def _content(self, text: bytes) -> bytes:
        """`text` is a JSON string."""
        return b'{"content":%b}' % text

    def _thought(self, text: bytes) -> bytes:
        return b'{"%b":%b}' % (self.thought_key.encode(), text)

    def _called_with(self, job: Job, arguments: str) -> bytes:
        return dumps({"tool_calls": [self._call(job, arguments)]})

    def _call(self, job: Job, arguments: str) -> dict[str, Any]:
        """The next piece of a call; the first one also says which function."""
        if self._called:
            return {"index": 0, "function": {"arguments": arguments}}
        self._called = True
        assert job.answer.call is not None
        function = {"name": job.answer.call.name, "arguments": arguments}
        return {"index": 0, "id": self._call_id(), "type": "function", "function": function}

    def _call_id(self) -> str:
        return f"call_{self._id[-24:]}"

    def _envelope(self, choices: list[Any]) -> dict[str, Any]:
        """What is around the choices of every event, in its order."""
        told: dict[str, Any] = {"id": self._id, "object": "chat.completion.chunk"}
        told |= {"created": self._created, "model": self._front.model}
        if self.fingerprint is not None:
            told["system_fingerprint"] = self.fingerprint
        return told | {"choices": choices}

    def _no_usage(self) -> dict[str, Any]:
        """What events without usage say of it."""
        return {"usage": None} if self._ask.include_usage else {}

    def _usage_event(self, job: Job) -> dict[str, Any]:
        return self._envelope([]) | {"usage": self._usage(job)}

    def _usage(self, job: Job) -> dict[str, Any]:
        return usage(job) | {
            "prompt_tokens_details": {"cached_tokens": job.cached},
            "completion_tokens_details": {"reasoning_tokens": job.answer.thought_tokens},
        }

    # --- in one piece -------------------------------------------------------------------------

    def whole(self, job: Job, /) -> bytes:
        choice = self._whole_choice(job)
        return dumps(self._whole_envelope(choice) | {"usage": self._usage(job)})

    def _whole_choice(self, job: Job) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "message": self._message(job)}
        choice["logprobs"] = self._logprobs(job.answer.pieces, 0)
        return choice | {"finish_reason": finish_reason(job)}

    def _whole_envelope(self, choice: dict[str, Any]) -> dict[str, Any]:
        """An answer in one piece, without its usage."""
        return self._envelope([choice]) | {"object": "chat.completion"}

    def _message(self, job: Job) -> dict[str, Any]:
        answer = job.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thought:
            message[self.thought_key] = answer.thought
        if answer.call is not None:
            message |= {"content": None, "tool_calls": [self._whole_call(job)]}
        return message

    def _whole_call(self, job: Job) -> dict[str, Any]:
        assert job.answer.call is not None
        function = {"name": job.answer.call.name, "arguments": job.answer.arguments}
        return {"id": self._call_id(), "type": "function", "function": function}


class CompletionVoice(Voice):
    """`/v1/completions`."""

    def __init__(self, front: Front, ask: Ask, name: str) -> None:
        self._front = front
        self._ask = ask
        self._id = name
        self._created = int(front.service.unix_s)
        self._letters = 0

    def tokens(self, job: Job, new: int, /) -> bytes:
        return b"".join(
            event(self._chunk(piece.text, None, self._logprobs([piece.text], place)))
            for place, piece in enumerate(job.newest(new), job.generated - new)
            if piece.text
        )

    def ending(self, job: Job, /) -> list[bytes]:
        told = [event(self._chunk("", finish_reason(job)))]
        if self._ask.include_usage:
            told.append(event(self._chunk(None, None) | {"usage": self._usage(job)}))
        return [*told, DONE]

    def broken(self, message: str) -> bytes:
        return event(self._front.dialect.stream_error(message)) + DONE

    def whole(self, job: Job, /) -> bytes:
        texts = [piece.text for piece in job.answer.pieces]
        told = self._chunk(job.answer.text, finish_reason(job), self._logprobs(texts, 0))
        return dumps(told | {"usage": self._usage(job)})

    def _usage(self, job: Job) -> dict[str, Any]:
        return usage(job)

    def _logprobs(self, texts: list[str], place: int) -> dict[str, Any] | None:
        top, offset = self._ask.top_logprobs, self._letters
        self._letters += sum(map(len, texts))
        return None if top is None else told_by_column(texts, place, top, offset)

    def _chunk(
        self, text: str | None, reason: str | None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        choices = [] if text is None else [self._choice(text, reason, logprobs)]
        return {
            "id": self._id,
            "object": "text_completion",
            "created": self._created,
            "model": self._front.model,
            "choices": choices,
        }

    def _choice(
        self, text: str, reason: str | None, logprobs: dict[str, Any] | None
    ) -> dict[str, Any]:
        return {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
