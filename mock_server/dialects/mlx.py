"""The dialect of mlx_lm.server (0.32.0, as read in its source)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server.answers import Piece
from mock_server.asks import Ask
from mock_server.dialect import dumps
from mock_server.dialects.openai import OpenAi
from mock_server.dialects.openai_events import ChatVoice, CompletionVoice, finish_reason
from mock_server.jobs import Job
from mock_server.logs import Lines, Log, Peer
from mock_server.options import MockOptions
from mock_server.refusals import RefusedError


class MlxChat(ChatVoice):
    """The role stands in every delta, a tool call comes whole, and progress is told in comments."""

    thought_key = "reasoning"
    fingerprint = "0.32.0-mock"

    def _envelope(self, choices: list[Any]) -> dict[str, Any]:
        told: dict[str, Any] = {"id": self._id, "system_fingerprint": self.fingerprint}
        told |= {"object": "chat.completion.chunk", "model": self._front.model}
        return told | {"created": self._created, "choices": choices}

    def _no_usage(self) -> dict[str, Any]:
        return {}

    def _usage_event(self, job: Job) -> dict[str, Any]:
        return super()._usage_event(job) | {"object": "chat.completion"}

    def _whole_choice(self, job: Job) -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": finish_reason(job)}
        return choice | {"message": self._message(job)}

    def progress(self, job: Job, processed: int, /) -> bytes:
        return f": keepalive {processed}/{job.prompt_tokens}\n\n".encode()

    def broken(self, _: str) -> bytes:
        return b""  # the connection is cut

    def tokens(self, job: Job, new: int, /) -> bytes:
        said = (self._said(job, piece) for piece in job.newest(new))
        return b"".join(self._chunk(delta) for delta in said if delta)

    def _said(self, job: Job, piece: Piece) -> bytes:
        return b"" if piece.channel == "tool" else super()._said(job, piece)

    def _content(self, text: bytes) -> bytes:
        return b'{"role":"assistant","content":%b}' % text

    def _thought(self, text: bytes) -> bytes:
        return b'{"role":"assistant","reasoning":%b}' % text

    def _finish(self, job: Job) -> bytes:
        delta: dict[str, Any] = {"role": "assistant", "content": ""}
        if job.answer.ended == "tool":
            delta["tool_calls"] = [self._whole_call(job) | {"index": 0}]
        return self._chunk(dumps(delta), dumps(finish_reason(job)))

    def _choice(self, delta: bytes, finish: bytes, _: bytes) -> bytes:
        return b'{"index":0,"finish_reason":%b,"delta":%b}' % (finish, delta)

    def _usage(self, job: Job) -> dict[str, Any]:
        told = super()._usage(job)
        del told["completion_tokens_details"]
        return told


class MlxCompletion(CompletionVoice):
    """`/v1/completions`, with the same comments."""

    def _chunk(
        self, text: str | None, reason: str | None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        told = super()._chunk(text, reason, logprobs)
        head: dict[str, Any] = {"id": self._id, "system_fingerprint": MlxChat.fingerprint}
        head |= {"object": told["object"], "model": told["model"]}
        return head | {"created": told["created"], "choices": told["choices"]}

    def _choice(self, text: str, reason: str | None, _: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": 0, "finish_reason": reason, "text": text}

    def progress(self, job: Job, processed: int, /) -> bytes:
        return f": keepalive {processed}/{job.prompt_tokens}\n\n".encode()


class Mlx(OpenAi):
    """The routes of one mlx_lm.server, which answers as HTTP/1.0 does."""

    name = "mlx"
    owner = "mlx"
    old_http = True
    done_after_error = False
    ignores_n = True
    least_tokens = 0
    open_paths: tuple[str, ...] = ("/health",)
    default_tokens = 512
    chat_voice = MlxChat
    completion_voice = MlxCompletion

    def add_to(self, app: web.Application) -> None:
        super().add_to(app)
        app.router.add_get("/health", self._health)
        app.on_response_prepare.append(_close)

    def headers(self, _: web.Request) -> dict[str, str]:
        return {"Server": "BaseHTTP/0.6 Python/3.11.7", "Access-Control-Allow-Origin": "*"}

    def stream_headers(self, request: web.Request) -> dict[str, str]:
        more = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        return self.headers(request) | more

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        status, told = super().refusal(request, why)
        if why.reason == "route":
            return 404, b"Not Found"
        if why.reason == "json":
            return 400, {"error": f"Invalid JSON in request body: {why}"}
        if why.reason in ("too_long", "failed") and "status" not in why.told:
            status = 404  # whatever goes wrong in the generator before the headers
        return status, {"error": told["error"]["message"]}

    def stream_error(self, message: str, /, route: str = "") -> Any:  # noqa: ARG002
        return {"error": message}

    def asked(self, body: dict[str, Any], name: str, *, tools: bool) -> Ask:
        ask = super().asked(body, name, tools=tools)
        return replace(ask, progress=ask.stream, alone=body.get("seed") is not None)

    def log(
        self, lines: Lines, clock: Callable[[], float], _: MockOptions, __: BoxDesign, /
    ) -> Log:
        return MlxLog(lines, clock)

    def logprobs_of(self, _: dict[str, Any], *, chat: bool) -> int | None:  # noqa: ARG002
        return None  # not built for this server

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"status": "ok"})


async def _close(_: web.Request, response: web.StreamResponse) -> None:
    """HTTP/1.0: the close is the body's end."""
    response.force_close()
    response.headers.popall("Connection", None)


class MlxLog(Log):
    """Progress of prompts, and an access line a request."""

    def ready(self, url: str) -> None:
        self._say(f"Starting httpd at {url.removeprefix('http://')}...")

    def seated(self, job: Job) -> None:
        self._say(f"Prompt processing progress: {job.cached}/{job.prompt_tokens}")

    def reading(self, job: Job, _: float) -> None:
        held = job.cached + job.processed
        self._say(f"Prompt processing progress: {held}/{job.prompt_tokens}")

    def answered(self, peer: Peer, method: str, path: str, status: int, _: float) -> None:
        when = time.strftime("%d/%b/%Y %H:%M:%S")
        self.write(f'{peer[0]} - - [{when}] "{method} {path} HTTP/1.1" {status} -')

    def _say(self, text: str) -> None:
        self.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')},000 - INFO - {text}")
