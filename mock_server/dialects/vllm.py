"""The vLLM dialect: the routes of 0.32.0 as they were recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from headroom_bench.box import BoxDesign
from headroom_bench.segments import Segment, total_tokens
from mock_server import asks
from mock_server.asks import ENDLESS_TOKENS, Ask
from mock_server.dialects.openai import OpenAi
from mock_server.dialects.uvicorn import headers_as_uvicorn
from mock_server.dialects.vllm_events import VllmChat, VllmCompletion
from mock_server.dialects.vllm_log import VllmLog
from mock_server.dialects.vllm_metrics import VllmMetrics
from mock_server.front import Front
from mock_server.logs import Lines, Log
from mock_server.options import MockOptions
from mock_server.prompts import render
from mock_server.refusals import RefusedError
from mock_server.tokens import LONGEST_LETTERS, split

_HTTP = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError"}
_PYDANTIC = {
    "integer": ("int_parsing", "valid integer, unable to parse string as an integer"),
    "number": ("int_parsing", "valid integer, unable to parse string as an integer"),
    "boolean": ("bool_parsing", "valid boolean, unable to interpret input"),
    "array": ("list_type", "valid list"),
    "object": ("dict_type", "valid dictionary"),
}


class Vllm(OpenAi):
    """The routes of one vLLM server."""

    name = "vllm"
    owner = "vllm"
    empty_prompt = "The decoder prompt cannot be empty"
    open_paths: tuple[str, ...] = ("/health", "/version", "/metrics", "/tokenize", "/detokenize")

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self._metrics_of: VllmMetrics | None = None

    def add_to(self, app: web.Application) -> None:
        super().add_to(app)
        get, post = app.router.add_get, app.router.add_post
        get("/health", self._health)
        get("/version", self._version)
        get("/metrics", self._metrics)
        post("/tokenize", self._tokenize)
        post("/detokenize", self._detokenize)
        app.on_startup.append(self._count)
        app.on_response_prepare.append(headers_as_uvicorn)

    async def _count(self, _: web.Application) -> None:
        """Metrics count from the start on."""
        service = self._front.service
        self._metrics_of = VllmMetrics(self._front.model, service)
        service.on_over.append(self._metrics_of.over)

    # --- how it answers -----------------------------------------------------------------------

    def headers(self, _: web.Request) -> dict[str, str]:
        return {"server": "uvicorn", "vary": "Origin"}

    def stream_headers(self, request: web.Request) -> dict[str, str]:
        return self.headers(request) | {"content-type": "text/event-stream; charset=utf-8"}

    def json_headers(self, request: web.Request) -> dict[str, str]:
        return self.headers(request) | {"content-type": "application/json"}

    def listed(self) -> dict[str, Any]:
        told = super().listed() | {"root": self._front.model, "parent": None}
        permission = {
            "id": "modelperm-mock",
            "object": "model_permission",
            "created": self._front.started_unix_s,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        ctx = self._front.service.ctx_per_slot
        return told | {"max_model_len": ctx, "permission": [permission]}

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        if why.reason == "route":
            return why.told["status"], {"detail": "Not Found"}
        if why.reason == "unauthorized":
            return 401, {"error": "Unauthorized"}
        field = why.told.get("field")
        if why.reason in ("json", "type", "missing"):
            return 400, _validation(why)
        status, _ = super().refusal(request, why)
        message, kind = str(why), _HTTP.get(status, "InternalServerError")
        if why.reason == "too_long":
            field, message = _too_long(**why.told)
        return status, _error(message, kind, field, status)

    def stream_error(self, message: str, /, route: str = "") -> Any:  # noqa: ARG002
        return _error(message, "InternalServerError", None, 500)

    def log(
        self, lines: Lines, clock: Callable[[], float], _: MockOptions, design: BoxDesign, /
    ) -> Log:
        return VllmLog(lines, clock, design)

    # --- generation ---------------------------------------------------------------------------

    def check(self, body: dict[str, Any]) -> None:
        model, front = asks.text(body, "model"), self._front
        if model is not None and model != front.model:
            told = f"The model `{model}` does not exist. Valid aliases: {front.model}."
            raise RefusedError("model", told, field="model")
        limit = asks.whole(body, "max_completion_tokens", "max_tokens")
        ctx = front.service.ctx_per_slot
        if limit is not None and limit < 1:
            told = f"max_tokens must be at least 1, got {limit}."
            raise _wrong_limit(told, limit)
        if limit is not None and limit > ctx:
            told = f"max_tokens={limit} cannot be greater than max_model_len={ctx}. "
            raise _wrong_limit(told + "Please request fewer output tokens.", limit)

    def chat_name(self, _: dict[str, Any]) -> str:
        return f"chatcmpl-{self._front.hex_name(16)}"

    def completion_name(self, _: dict[str, Any]) -> str:
        return f"cmpl-{self._front.hex_name(16)}"

    def chat_voice_of(self, body: dict[str, Any], ask: Ask, name: str, /) -> VllmChat:
        return VllmChat(self._front, ask, name, **self._manner(body))

    def completion_voice_of(self, body: dict[str, Any], ask: Ask, name: str, /) -> VllmCompletion:
        return VllmCompletion(self._front, ask, name, **self._manner(body))

    def check_fits(self, ask: Ask, segments: list[Segment], text: Callable[[], str], /) -> None:
        """The prompt and all of the answer that is asked for must fit. A `text` that is too long
        for any tokenizing is refused by its letters. Raises `RefusedError`."""
        ctx, prompt = self._front.service.ctx_per_slot, total_tokens(segments)
        wanted = ask.tokens if ask.limited and ask.tokens < ENDLESS_TOKENS else 1
        if prompt + wanted > ctx:
            told = f"{prompt} and {wanted} tokens do not fit"
            letters = len(text()) if prompt > ctx else 0
            raise RefusedError("too_long", told, prompt_tokens=prompt, ctx=ctx, letters=letters)

    def _manner(self, body: dict[str, Any]) -> dict[str, Any]:
        """How often events come, and what they carry."""
        interval = asks.whole(body, "stream_interval") or self._front.options.stream_interval
        options = asks.table(body, "stream_options")
        return {
            "interval": max(1, interval),
            "continuous": asks.flag(options, "continuous_usage_stats"),
            "ids": asks.flag(body, "return_token_ids"),
        }

    def salt_of(self, body: dict[str, Any]) -> str:
        return asks.text(body, "cache_salt") or ""

    # --- the rest -----------------------------------------------------------------------------

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(headers=self.headers(request))

    async def _version(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"version": "0.32.0"})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        assert self._metrics_of is not None
        self._front.service.wall.catch_up()
        kind = {"content-type": "text/plain; version=1.0.0; charset=utf-8"}
        text = self._metrics_of.text()
        return web.Response(body=text.encode(), headers=self.headers(request) | kind)

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        prompt = asks.text(body, "prompt")
        if prompt is None:
            prompt = render(asks.parse_messages(body))
        pieces = split(prompt)
        told: dict[str, Any] = {"count": len(pieces), "max_model_len": front.service.ctx_per_slot}
        told["tokens"] = [front.vocabulary.id_of(piece) for piece in pieces]
        strings = [piece.decode("utf-8", "replace") for piece in pieces]
        shown = asks.flag(body, "return_token_strs")
        return front.json(request, told | {"token_strs": strings if shown else None})

    async def _detokenize(self, request: web.Request) -> web.StreamResponse:
        body = await self._front.body(request)
        ids = asks.token_ids(body.get("tokens", []), "tokens")
        return self._front.json(request, {"prompt": self._front.text_of(ids)})


def _error(message: str, kind: str, field: str | None, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": field, "code": status}}


def _too_long(ctx: int, prompt_tokens: int, letters: int = 0) -> tuple[str, str]:
    """Parameter and message."""
    message = f"This model's maximum context length is {ctx} tokens. However, your "
    most = ctx * LONGEST_LETTERS
    if letters <= most:
        message += f"request has {prompt_tokens} input tokens. Please reduce the length of the "
        message += f"input messages. (parameter=input_tokens, value={prompt_tokens})"
        return "input_tokens", message
    message += f"prompt contains {letters} characters (more than {most} characters, which is the "
    message += f"upper bound for {ctx} input tokens). Please reduce the length of the input prompt."
    return "input_text", f"{message} (parameter=input_text, value={letters})"


def _wrong_limit(told: str, limit: int) -> RefusedError:
    told += f" (parameter=max_tokens, value={limit})"
    return RefusedError("value", told, field="max_tokens", value=limit)


def _validation(why: RefusedError) -> dict[str, Any]:
    """What pydantic finds wrong with a body."""
    field, value = why.told.get("field"), why.told.get("value")
    where = f"body.{field}" if field else "body"
    if why.reason == "json":
        where, cause = f"body.{why.told['at']}", why.told["said"]
        said = "'msg': 'JSON decode error', 'input': '<dict of 0 items>'"
        found = (
            f"{{'type': 'json_invalid', 'loc': '{where}', {said}, 'ctx': {{'error': '{cause}'}}}}"
        )
    elif why.reason == "missing":
        size = len(value) if isinstance(value, dict) else 0
        said = f"'msg': 'Field required', 'input': '<dict of {size} items>'"
        found = f"{{'type': 'missing', 'loc': '{where}', {said}}}"
    else:
        kind, wanted = _PYDANTIC.get(str(why.told.get("wanted")), ("string_type", "valid string"))
        said = f"'msg': 'Input should be a {wanted}', 'input': {str(value)[:200]!r}"
        found = f"{{'type': '{kind}', 'loc': '{where}', {said}}}"
    return _error(f"1 validation error:\n  {found}", "Bad Request", where, 400)
