"""The JSON that llama-server sends for a generation, field by field in its order."""

from __future__ import annotations

from collections.abc import Iterable
from json.encoder import encode_basestring_ascii
from typing import Any

from mock_server.answers import Piece
from mock_server.asks import Ask
from mock_server.dialect import DONE, Voice, dumps, event
from mock_server.dialects.llamacpp_builds import Build
from mock_server.dialects.openai_events import finish_reason
from mock_server.front import Front
from mock_server.jobs import Job
from mock_server.logprobs import Chance, entry_bytes_first, told_by_token
from mock_server.timings import timings
from mock_server.tokens import split

_ROLE = b'{"role":"assistant","content":null}'


class _LlamaVoice(Voice):
    """What the routes share."""

    def __init__(self, front: Front, build: Build, name: str, ask: Ask) -> None:
        self._service = front.service
        self._vocabulary = front.vocabulary
        self._build = build
        self._id = name
        self._model = front.model
        self._ask = ask

    def broken(self, message: str) -> bytes:
        return event({"error": {"code": 500, "message": message, "type": "server_error"}})

    def _timings(self, job: Job) -> dict[str, Any]:
        return timings(job, over_all=self._build.rate_over_all).as_sent()

    def _chances(self, texts: Iterable[str], place: int) -> list[dict[str, Any]] | None:
        """Log-probabilities of tokens from `place` on; None where they are not wanted."""
        top = self._ask.top_logprobs
        return None if top is None else told_by_token(texts, place, top, self._entry)

    def _entry(self, chance: Chance) -> dict[str, Any]:
        (number, *_) = [*self._ids(chance.text), 0]
        return {"id": number} | entry_bytes_first(chance)

    def _ids(self, text: str) -> list[int]:
        return [self._vocabulary.id_of(piece) for piece in split(text)]

    def _last(self, job: Job, text: str, ids: list[int], prompt: str) -> dict[str, Any]:
        """The last event of `/completion`, which a verbose chat shows too."""
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
            "prompt": prompt,
            "has_new_line": False,
            "truncated": job.truncated,
            "stop_type": _stop_type(job),
            "stopping_word": job.answer.stopping_word,
            "tokens_cached": job.prompt_tokens + job.generated - 1,
            "timings": self._timings(job),
        }

    def _usage(self, job: Job) -> dict[str, Any]:
        told: dict[str, Any] = {
            "completion_tokens": job.generated,
            "prompt_tokens": job.prompt_tokens,
            "total_tokens": job.prompt_tokens + job.generated,
        }
        if self._build.tells_cached:
            told["prompt_tokens_details"] = {"cached_tokens": job.cached}
        return told


class Chat(_LlamaVoice):
    """`/v1/chat/completions`."""

    def __init__(
        self,
        front: Front,
        build: Build,
        name: str,
        ask: Ask,
        *,
        thoughts_apart: bool,
        prompt: str | None,
    ) -> None:
        """`thoughts_apart`: reasoning has a field of its own (`reasoning_format`), else it stands
        in the content between `<think>` marks. `prompt`: for who asked for a verbose answer."""
        super().__init__(front, build, name, ask)
        self._each_timed = ask.settings["timings_per_token"]
        self._thoughts_apart = thoughts_apart
        self._prompt = prompt
        self._begun = False
        self._called = False
        self._thinking = False
        named = dumps(
            {
                "id": name,
                "model": front.model,
                "system_fingerprint": build.info,
                "object": "chat.completion.chunk",
            }
        )
        self._rest = b"," + named[1:-1]
        self._tail = self._rest + b"}\n\n"

    def progress(self, job: Job, processed: int) -> bytes:
        told: dict[str, Any] = {}
        if self._each_timed:
            told["timings"] = self._timings(job)
        told["prompt_progress"] = {
            "total": job.prompt_tokens,
            "cache": job.cached,
            "processed": processed,
            "time_ms": int((self._service.wall.box_s() - job.admitted_at) * 1e3),
        }
        return self._delta(_ROLE, self._rest + b"," + dumps(told)[1:] + b"\n\n")

    def tokens(self, job: Job, new: int) -> bytes:
        tail = self._tail
        if self._each_timed:
            tail = self._rest + b',"timings":' + dumps(self._timings(job)) + b"}\n\n"
        told = b""
        if not self._begun:
            self._begun = True
            told = self._delta(_ROLE, self._tail)
        chances = None
        for place, piece in enumerate(job.newest(new), job.generated - new):
            if piece.text:
                if self._ask.top_logprobs is not None:
                    chances = self._chances([piece.text], place)
                told += self._delta(self._said(job, piece), tail, chances)
        return told

    def _said(self, job: Job, piece: Piece) -> bytes:
        text = piece.text
        if piece.channel == "tool":
            return self._called_with(job, text)
        key = b"content"
        if piece.channel == "reasoning":
            if self._thoughts_apart:
                key = b"reasoning_content"
            elif not self._thinking:
                text = "<think>\n" + text
            self._thinking = True
        elif self._thinking and not self._thoughts_apart:
            self._thinking = False
            text = "\n</think>\n\n" + text
        return b'{"%b":%b}' % (key, encode_basestring_ascii(text).encode())

    def _called_with(self, job: Job, text: str) -> bytes:
        call: dict[str, Any] = {"index": 0}
        if not self._called:
            self._called = True
            assert job.answer.call is not None
            call |= {"id": self._id[-32:], "type": "function"}
            call["function"] = {"name": job.answer.call.name, "arguments": text}
        else:
            call["function"] = {"arguments": text}
        return dumps({"tool_calls": [call]})

    def _delta(
        self, delta: bytes, tail: bytes, chances: list[dict[str, Any]] | None = None
    ) -> bytes:
        if chances is not None:
            delta += b',"logprobs":' + dumps({"content": chances})
        return (
            b'data: {"choices":[{"finish_reason":null,"index":0,"delta":'
            + delta
            + b'}],"created":'
            + self._service.unix_s
            + tail
        )

    def ending(self, job: Job) -> list[bytes]:
        choice = {"finish_reason": finish_reason(job), "index": 0, "delta": {}}
        timed = {"timings": self._timings(job)}
        finish = self._chunk([choice]) | self._verbose(job)
        if not self._ask.include_usage:
            return [event(finish | timed), DONE]
        told = self._chunk([]) | {"usage": self._usage(job)} | timed
        return [event(finish) + event(told), DONE]

    def _verbose(self, job: Job) -> dict[str, Any]:
        if self._prompt is None:
            return {}
        return {"__verbose": self._last(job, "", [], self._prompt)}

    def _chunk(self, choices: list[Any]) -> dict[str, Any]:
        return {
            "choices": choices,
            "created": int(self._service.unix_s),
            "id": self._id,
            "model": self._model,
            "system_fingerprint": self._build.info,
            "object": "chat.completion.chunk",
        }

    def whole(self, job: Job) -> bytes:
        answer = job.answer
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.thought and self._thoughts_apart:
            message["reasoning_content"] = answer.thought
        elif answer.thought:
            message["content"] = f"<think>\n{answer.thought}\n</think>\n\n{answer.text}"
        if answer.call is not None:
            function = {"name": answer.call.name, "arguments": answer.arguments}
            call = {"type": "function", "function": function, "id": self._id[-32:]}
            message |= {"content": None, "tool_calls": [call]}
        choice = {"finish_reason": finish_reason(job), "index": 0, "message": message}
        chances = self._chances((piece.text for piece in answer.pieces if piece.text), 0)
        if chances is not None:
            choice["logprobs"] = {"content": chances}
        return dumps(
            {
                "choices": [choice],
                "created": int(self._service.unix_s),
                "model": self._model,
                "system_fingerprint": self._build.info,
                "object": "chat.completion",
                "usage": self._usage(job),
                "id": self._id,
            }
            | self._verbose(job)
            | {"timings": self._timings(job)}
        )


class Completion(_LlamaVoice):
    """`/v1/completions`, where usage comes without being asked for."""

    def tokens(self, job: Job, new: int) -> bytes:
        told = b""
        for place, piece in enumerate(job.newest(new), job.generated - new):
            if not piece.text:
                continue
            chances = self._chances([piece.text], place)
            body = self._body(piece.text, None, chances) | {"id": self._id}
            if job.settings.get("timings_per_token"):
                body["timings"] = self._timings(job)
            told += event(body)
        return told

    def ending(self, job: Job) -> list[bytes]:
        return [event(self._ended(job, "", None)), DONE]

    def whole(self, job: Job) -> bytes:
        chances = self._chances((piece.text for piece in job.answer.pieces if piece.text), 0)
        return dumps(self._ended(job, job.answer.text, chances))

    def _ended(self, job: Job, text: str, chances: list[Any] | None) -> dict[str, Any]:
        told = {"usage": self._usage(job), "id": self._id, "timings": self._timings(job)}
        return self._body(text, finish_reason(job), chances) | told

    def _body(self, text: str, reason: str | None, chances: list[Any] | None) -> dict[str, Any]:
        logprobs = None if chances is None else {"content": chances}
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": reason}
        return {
            "choices": [choice],
            "created": int(self._service.unix_s),
            "model": self._model,
            "system_fingerprint": self._build.info,
            "object": "text_completion",
        }


class Native(_LlamaVoice):
    """`/completion`, which ends without `[DONE]`."""

    def __init__(
        self,
        front: Front,
        build: Build,
        ask: Ask,
        prompt: str,
        whole_ids: bool,
    ) -> None:
        """`whole_ids`: an answer in one piece also lists its token ids."""
        super().__init__(front, build, "", ask)
        self._prompt = prompt
        self._whole_ids = whole_ids

    def tokens(self, job: Job, new: int) -> bytes:
        first = job.generated - new + 1
        return b"".join(
            self._token(job, number, piece.text)
            for number, piece in enumerate(job.newest(new), first)
            if piece.text
        )

    def _token(self, job: Job, number: int, text: str) -> bytes:
        told: dict[str, Any] = {
            "index": 0,
            "content": text,
            "tokens": self._ids(text),
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": number,
            "tokens_evaluated": job.prompt_tokens,
        }
        if job.settings["timings_per_token"]:
            told["timings"] = self._timings(job)
        chances = self._chances([text], number - 1)
        return event(told if chances is None else told | {"completion_probabilities": chances})

    def ending(self, job: Job) -> list[bytes]:
        return [event(self._last(job, "", [], self._prompt))]

    def whole(self, job: Job) -> bytes:
        ids = self._ids(job.answer.text) if self._whole_ids else []
        told = self._last(job, job.answer.text, ids, self._prompt)
        chances = self._chances((piece.text for piece in job.answer.pieces if piece.text), 0)
        return dumps(told if chances is None else told | {"completion_probabilities": chances})


def _stop_type(job: Job) -> str:
    if not job.generated:
        return "none"
    return "limit" if job.truncated else job.answer.ended
