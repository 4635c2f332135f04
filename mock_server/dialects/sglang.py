"""The SGLang dialect (0.5.23, as read in its source)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server import asks
from mock_server.asks import Ask
from mock_server.dialects.openai import OpenAi, parse_ask
from mock_server.dialects.sglang_events import SglangChat, SglangCompletion, SglangNative
from mock_server.dialects.sglang_log import SglangLog
from mock_server.dialects.sglang_metrics import SglangMetrics
from mock_server.dialects.uvicorn import headers_as_uvicorn
from mock_server.front import Front
from mock_server.logs import Lines, Log
from mock_server.options import MockOptions
from mock_server.refusals import RefusedError

_NATIVE_TOKENS = 128
"""`max_new_tokens` of the native route, where none are asked for."""
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class Sglang(OpenAi):
    """The routes of one SGLang server."""

    name = "sglang"
    owner = "sglang"
    least_tokens = 0
    open_paths: tuple[str, ...] = ("/health", "/health_generate")

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self._metrics_of: SglangMetrics | None = None
        self._flushes = 0

    def add_to(self, app: web.Application) -> None:
        super().add_to(app)
        get, post = app.router.add_get, app.router.add_post
        get("/health", self._health)
        get("/health_generate", self._health)
        for path in ("/get_model_info", "/model_info"):
            get(path, self._model_info)
        for path in ("/get_server_info", "/server_info"):
            get(path, self._server_info)
        get("/metrics", self._metrics)
        post("/generate", self._generate)
        for add in (get, post):
            add("/flush_cache", self._flush)
        app.on_startup.append(self._count)
        app.on_response_prepare.append(headers_as_uvicorn)

    async def _count(self, _: web.Application) -> None:
        """Metrics count from the start on."""
        service = self._front.service
        self._metrics_of = SglangMetrics(self._front.model, service)
        service.on_over.append(self._metrics_of.over)

    # --- how it answers -----------------------------------------------------------------------

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
        if request.path == "/generate":
            return status, {"error": {"message": message}}
        kind = {400: "BadRequestError", 401: "Unauthorized"}.get(status, "InternalServerError")
        told = {"object": "error", "message": message, "type": kind, "param": error["param"]}
        return status, told | {"code": status}

    def stream_error(self, message: str, /, route: str = "") -> Any:
        if route == "/generate":
            return {"error": {"message": message}}
        told = {"object": "error", "message": message, "type": "InternalServerError"}
        return {"error": told | {"param": None, "code": 500}}

    def log(
        self, lines: Lines, clock: Callable[[], float], _: MockOptions, design: BoxDesign, /
    ) -> Log:
        return SglangLog(lines, clock, design)

    # --- generation ---------------------------------------------------------------------------

    def chat_name(self, body: dict[str, Any]) -> str:
        return self._name(body)

    def completion_name(self, body: dict[str, Any]) -> str:
        return self._name(body)

    def _name(self, body: dict[str, Any]) -> str:
        """The request's own, where it brings one that is not in use."""
        given = asks.text(body, "rid")
        free = given and given not in self._front.service.jobs
        return given if given and free else self._front.hex_name()

    def chat_voice_of(self, body: dict[str, Any], ask: Ask, name: str, /) -> SglangChat:
        return SglangChat(self._front, ask, name, continuous=_continuous(body))

    def completion_voice_of(self, body: dict[str, Any], ask: Ask, name: str, /) -> SglangCompletion:
        return SglangCompletion(self._front, ask, name, continuous=_continuous(body))

    def salt_of(self, body: dict[str, Any]) -> str:
        keys = [asks.text(body, name) or "" for name in ("cache_salt", "extra_key")]
        return f"{self._flushes}/{'/'.join(keys)}" if any(keys) or self._flushes else ""

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        name = self._name(body)
        ask = replace(_native_ask(body, name), salt=self.salt_of(body))
        text = asks.text(body, "text")
        if text is None and "input_ids" in body:
            text = front.text_of(asks.token_ids(body["input_ids"], "input_ids"))
        if not text:
            told = "Either text, input_ids or input_embeds should be provided."
            raise RefusedError("value", told, field="text")
        voice = SglangNative(front, name)
        segments = front.segmenter.raw(text)
        return await front.answer(request, ask, segments, voice, name=name)

    # --- the rest -----------------------------------------------------------------------------

    async def _flush(self, request: web.Request) -> web.StreamResponse:
        """From now on no prompt finds anything of before. Not while there are requests."""
        idle = not self._front.service.jobs
        self._flushes += idle
        return web.Response(
            text=_FLUSHED, status=200 if idle else 400, headers=self.headers(request)
        )

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(headers=self.headers(request))

    async def _model_info(self, request: web.Request) -> web.StreamResponse:
        name = self._front.model
        told = {"model_path": name, "tokenizer_path": name, "is_generation": True}
        return self._front.json(request, told | {"weight_version": "default"})

    async def _server_info(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        told: dict[str, Any] = {"model_path": front.model, "served_model_name": front.model}
        told |= {"context_length": front.service.ctx_per_slot, "version": "0.5.23"}
        told["max_running_requests"] = front.service.slots
        tokens = front.service.room_tokens
        return self._front.json(request, told | {"max_total_num_tokens": tokens})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if not self._front.options.metrics or self._metrics_of is None:
            raise RefusedError("route", "Not Found", status=404)
        self._front.service.wall.catch_up()
        kind = {"content-type": "text/plain; version=0.0.4; charset=utf-8"}
        headers = self.headers(request) | kind
        return web.Response(body=self._metrics_of.text().encode(), headers=headers)


def _continuous(body: dict[str, Any]) -> bool:
    return asks.flag(asks.table(body, "stream_options"), "continuous_usage_stats")


def _native_ask(body: dict[str, Any], name: str) -> Ask:
    """`sampling_params` in OpenAI's words."""
    given = asks.table(body, "sampling_params")
    words = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens"}
    told = {words.get(key, key): value for key, value in given.items()}
    told.setdefault("max_tokens", _NATIVE_TOKENS)
    return parse_ask(told | {"stream": body.get("stream")}, name, least_tokens=0)
