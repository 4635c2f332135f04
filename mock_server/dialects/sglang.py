"""The SGLang dialect (0.5.23, as read in its source)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server.answers import Piece
from mock_server.designs import room_of
from mock_server.dialect import dumps
from mock_server.dialects.openai import OpenAi
from mock_server.dialects.openai_events import ChatVoice, finish_reason, usage
from mock_server.jobs import Job
from mock_server.logprobs import entry_bytes_first, told_by_token
from mock_server.logs import Lines, Log
from mock_server.options import MockOptions
from mock_server.refusals import RefusedError

_LOG_PASSES = 40
"""Decode passes from one log line to the next."""


class SglangChat(ChatVoice):
    """Role first; `reasoning_content` stands in each delta, mostly null; the finish event tells
    what matched."""

    role_delta: ClassVar[dict[str, Any]] = {
        "role": "assistant",
        "content": "",
        "reasoning_content": None,
        "tool_calls": None,
    }
    fingerprint = None

    def _content(self, text: bytes) -> bytes:
        return b'{"role":null,"content":%b,"reasoning_content":null,"tool_calls":null}' % text

    def _thought(self, text: bytes) -> bytes:
        return b'{"role":null,"content":null,"reasoning_content":%b,"tool_calls":null}' % text

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
        matched = job.answer.stopping_word or (1 if finish_reason(job) == "stop" else None)
        nothing = b'{"role":null,"content":null,"reasoning_content":null,"tool_calls":null}'
        choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b,"matched_stop":%b}'
        said = (nothing, dumps(finish_reason(job)), dumps(matched))
        return self._head + choice % said + self._tail

    def _usage(self, job: Job) -> dict[str, Any]:
        details = {"cached_tokens": job.cached} if self._front.options.cache_report else None
        told = usage(job) | {"prompt_tokens_details": details}
        return told | {"reasoning_tokens": job.answer.thought_tokens}


class Sglang(OpenAi):
    """The routes of one SGLang server."""

    name = "sglang"
    owner = "sglang"
    open_paths: tuple[str, ...] = ("/health", "/health_generate")
    chat_voice = SglangChat

    def add_to(self, app: web.Application) -> None:
        super().add_to(app)
        get = app.router.add_get
        get("/health", self._health)
        get("/health_generate", self._health)
        for path in ("/get_model_info", "/model_info"):
            get(path, self._model_info)
        for path in ("/get_server_info", "/server_info"):
            get(path, self._server_info)
        get("/metrics", self._metrics)

    def headers(self, _: web.Request) -> dict[str, str]:
        return {"server": "uvicorn"}

    def listed(self) -> dict[str, Any]:
        ctx = self._front.service.ctx_per_slot
        told = {"root": self._front.model, "parent": None, "max_model_len": ctx}
        return super().listed() | told

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        status, told = super().refusal(request, why)
        if why.reason == "route":
            return status, {"detail": "Not Found"}
        error = told["error"]
        message = error["message"]
        if why.reason == "too_long":
            ctx, prompt = why.told["ctx"], why.told["prompt_tokens"]
            message = f"The input ({prompt} tokens) is longer than the model's context length "
            message += f"({ctx} tokens)."
        kind = {400: "BadRequestError", 401: "Unauthorized"}.get(status, "InternalServerError")
        told = {"object": "error", "message": message, "type": kind, "param": error["param"]}
        return status, told | {"code": status}

    def stream_error(self, message: str) -> Any:
        told = {"object": "error", "message": message, "type": "InternalServerError"}
        return {"error": told | {"param": None, "code": 500}}

    def log(
        self, lines: Lines, clock: Callable[[], float], _: MockOptions, design: BoxDesign, /
    ) -> Log:
        return SglangLog(lines, clock, room_of(design))

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response()

    async def _model_info(self, request: web.Request) -> web.StreamResponse:
        name = self._front.model
        told = {"model_path": name, "tokenizer_path": name, "is_generation": True}
        return self._front.json(request, told)

    async def _server_info(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        told: dict[str, Any] = {"model_path": front.model, "served_model_name": front.model}
        told |= {"context_length": front.service.ctx_per_slot, "version": "0.5.23"}
        told["max_running_requests"] = front.service.slots
        tokens = front.service.room_tokens
        return self._front.json(request, told | {"max_total_num_tokens": tokens})

    async def _metrics(self, _: web.Request) -> web.StreamResponse:
        front = self._front
        if not front.options.metrics:
            raise RefusedError("route", "Not Found")
        service, totals = front.service, front.service.totals
        service.wall.catch_up()
        held = sum(view.held_tokens for view in service.box.snapshot().slots if view.request_id)
        room = service.room_tokens
        read = totals.prompt_tokens + totals.cached_tokens
        rows = {
            "prompt_tokens_total": ("counter", read),
            "generation_tokens_total": ("counter", totals.generated_tokens),
            "cached_tokens_total": ("counter", totals.cached_tokens),
            "num_running_reqs": ("gauge", service.running),
            "num_queue_reqs": ("gauge", service.waiting),
            "token_usage": ("gauge", held / room),
            "cache_hit_rate": ("gauge", totals.cached_tokens / read if read else 0.0),
        }
        label = f'{{model_name="{front.model}"}}'
        lines = [
            f"# TYPE sglang:{name} {kind}\nsglang:{name}{label} {value}\n"
            for name, (kind, value) in rows.items()
        ]
        return web.Response(text="".join(lines), content_type="text/plain")


class SglangLog(Log):
    """Lines of batches, none of single requests."""

    def __init__(self, lines: Lines, clock: Callable[[], float], room_tokens: int) -> None:
        super().__init__(lines, clock)
        self._room = room_tokens
        self._passes = 0
        self._made = 0
        self._since = 0.0
        self._tokens_held: dict[str, int] = {}

    def ready(self, url: str) -> None:
        self._say("The server is fired up and ready to roll!")
        self._say(f"Uvicorn running on {url}")

    def seated(self, job: Job) -> None:
        told = f"Prefill batch, #new-seq: 1, #new-token: {job.prompt_tokens - job.cached}, "
        told += f"#cached-token: {job.cached}, token usage: {self._share():.2f}, "
        self._say(f"{told}#running-req: {len(self._tokens_held)}, #queue-req: 0, ")
        self._tokens_held[job.id] = job.prompt_tokens

    def released(self, job: Job) -> None:
        self._tokens_held.pop(job.id, None)

    def passed(self, decoding: int) -> None:
        self._passes += 1
        self._made += decoding
        if self._passes % _LOG_PASSES:
            return
        now = self._clock()
        rate = self._made / (now - self._since) if now > self._since else 0.0
        told = (
            f"Decode batch, #running-req: {decoding}, #token: {sum(self._tokens_held.values())}, "
        )
        told += f"token usage: {self._share():.2f}, cuda graph: True, "
        self._say(f"{told}gen throughput (token/s): {rate:.2f}, #queue-req: 0, ")
        self._made, self._since = 0, now

    def _share(self) -> float:
        return sum(self._tokens_held.values()) / self._room

    def _say(self, text: str) -> None:
        self.write(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {text}")
