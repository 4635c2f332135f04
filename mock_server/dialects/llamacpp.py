"""The llama.cpp dialect: llama-server's routes as b11549 answers them, with what was different in
two older builds (`--journal-format`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server import asks
from mock_server.dialects import llamacpp_state as state
from mock_server.dialects.llamacpp_ask import parse_ask
from mock_server.dialects.llamacpp_builds import build_of
from mock_server.dialects.llamacpp_events import Chat, Completion, Native
from mock_server.dialects.llamacpp_log import LlamaCppLog
from mock_server.dialects.llamacpp_metrics import LlamaCppMetrics
from mock_server.front import Front
from mock_server.logs import Lines
from mock_server.options import MockOptions
from mock_server.prompts import render
from mock_server.refusals import RefusedError
from mock_server.tokens import split

_STATUS = {
    "unauthorized": (401, "authentication_error"),
    "loading": (503, "unavailable_error"),
    "route": (404, "not_found_error"),
    "too_large": (413, "invalid_request_error"),
    "too_long": (400, "exceed_context_size_error"),
    "unsupported": (501, "not_supported_error"),
    "tools": (500, "server_error"),
    "failed": (500, "server_error"),
}
"""Status and type of an error by its reason; 400 `invalid_request_error` for the others."""


class LlamaCpp:
    """The routes of one llama-server."""

    name = "llamacpp"
    old_http = False
    headers_with_first_token: bool
    ping_s: float | None
    open_paths: tuple[str, ...] = ("/health", "/v1/health")
    done_after_error = False
    loads_on_demand = False
    usage_each_choice = True

    def __init__(self, front: Front) -> None:
        """Raises `UserError` for an unknown `journal_format`."""
        self._front = front
        self._build = build_of(front.options.journal_format)
        self._counted: LlamaCppMetrics | None = None
        self.headers_with_first_token = not self._build.headers_early
        self.ping_s = front.options.ping_s if self._build.pings else None

    def add_to(self, app: web.Application) -> None:
        app.on_response_prepare.append(_only_their_headers)
        app.on_startup.append(self._count)
        get, post = app.router.add_get, app.router.add_post
        for prefix in ("", "/v1"):
            get(f"{prefix}/health", self._health)
            get(f"{prefix}/models", self._models)
            post(f"{prefix}/chat/completions", self._chat)
        get("/props", self._props)
        get("/slots", self._slots)
        get("/metrics", self._metrics)
        post("/tokenize", self._tokenize)
        post("/detokenize", self._detokenize)
        post("/apply-template", self._apply_template)
        post("/v1/completions", self._completion)
        for path in ("/completion", "/completions"):
            post(path, self._native)

    async def _count(self, _: web.Application) -> None:
        """Metrics count from the start on."""
        self._counted = LlamaCppMetrics(self._front.service, self._build)

    # --- how it answers -----------------------------------------------------------------------

    def headers(self, request: web.Request) -> dict[str, str]:
        origin = request.headers.get("Origin", "")
        return {"Server": "llama.cpp", "Access-Control-Allow-Origin": origin}

    def stream_headers(self, request: web.Request) -> dict[str, str]:
        newest = {"X-Accel-Buffering": "no"} if self._build.journal == "J8" else {}
        return self.headers(request) | newest | {"Content-Type": "text/event-stream"}

    def json_headers(self, request: web.Request) -> dict[str, str]:
        return self.headers(request) | {"Content-Type": "application/json; charset=utf-8"}

    def refusal(self, _: web.Request, why: RefusedError) -> tuple[int, Any]:
        status, kind = _STATUS.get(why.reason, (400, "invalid_request_error"))
        message, told = str(why), why.told
        if why.reason == "json":
            status = self._build.bad_json_status
            kind = "server_error" if status == 500 else kind
            message = f"[json.exception.parse_error.101] parse error: {message}"
        elif why.reason == "type":
            field, wanted = told.get("field"), told.get("wanted")
            given = asks.kind_of(told.get("value"))
            how = f"[json.exception.type_error.302] type must be {wanted}, but is {given}"
            message = f"Field '{field}': {how}" if field else message
        elif why.reason == "failed":
            status = told.get("status", status)
        if why.reason in ("unauthorized", "loading", "route"):  # these say it in another order
            return status, {"error": {"message": message, "type": kind, "code": status}}
        error: dict[str, Any] = {"code": status, "message": message, "type": kind}
        if why.reason == "too_long":
            error |= {"n_prompt_tokens": told["prompt_tokens"], "n_ctx": told["ctx"]}
        return status, {"error": error}

    def stream_error(self, message: str, /, route: str = "") -> Any:  # noqa: ARG002
        return {"error": {"code": 500, "message": message, "type": "server_error"}}

    def log(
        self, lines: Lines, clock: Callable[[], float], options: MockOptions, design: BoxDesign, /
    ) -> LlamaCppLog:
        return LlamaCppLog(lines, clock, self._build, options.model_name, design)

    # --- generation ---------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        name = front.name("chatcmpl-")
        segments = front.segmenter.chat(asks.parse_messages(body))
        ask = parse_ask(body, name, slots=front.service.slots, build=self._build, chat=True)
        verbose = asks.flag(body, "verbose")
        voice = Chat(
            front,
            self._build,
            name,
            ask,
            thoughts_apart=asks.text(body, "reasoning_format") != "none",
            prompt=render(asks.parse_messages(body)) if verbose else None,
        )
        return await front.answer(request, ask, segments, voice, name=name)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        name = front.name("chatcmpl-")
        ask = parse_ask(body, name, slots=front.service.slots, build=self._build)
        segments = front.segmenter.raw(self._prompt(body))
        voice = Completion(front, self._build, name, ask)
        return await front.answer(request, ask, segments, voice, name=name)

    async def _native(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        name = front.name("chatcmpl-")
        ask = parse_ask(body, name, slots=front.service.slots, build=self._build)
        prompt = self._prompt(body)
        ids = asks.flag(body, "return_tokens")
        voice = Native(front, self._build, ask, prompt, ids)
        segments = front.segmenter.raw(prompt)
        return await front.answer(request, ask, segments, voice, name=name)

    def _prompt(self, body: dict[str, Any]) -> str:
        prompt = asks.parse_prompt(body)
        return prompt if isinstance(prompt, str) else self._front.text_of(prompt)

    # --- tokens -------------------------------------------------------------------------------

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = await self._front.body(request)
        pieces = split(asks.text(body, "content") or "")
        tokens: list[Any] = [self._front.vocabulary.id_of(piece) for piece in pieces]
        if body.get("with_pieces") is True:
            pairs = zip(tokens, pieces, strict=True)
            tokens = [{"id": number, "piece": _shown(piece)} for number, piece in pairs]
        return self._front.json(request, {"tokens": tokens})

    async def _detokenize(self, request: web.Request) -> web.StreamResponse:
        body = await self._front.body(request)
        ids = asks.token_ids(body.get("tokens", []), "tokens")
        return self._front.json(request, {"content": self._front.text_of(ids)})

    async def _apply_template(self, request: web.Request) -> web.StreamResponse:
        messages = asks.parse_messages(await self._front.body(request))
        return self._front.json(request, {"prompt": render(messages)})

    # --- what the server tells of itself ------------------------------------------------------

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"status": "ok"})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, state.models(self._front, self._build))

    async def _props(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, state.props(self._front, self._build))

    async def _slots(self, request: web.Request) -> web.StreamResponse:
        service = self._front.service
        service.wall.catch_up()
        views = service.box.snapshot().slots
        if request.query.get("fail_on_no_slot") == "1" and all(v.task is not None for v in views):
            raise RefusedError("loading", "no slot available")
        return self._front.json(
            request, [state.slot(self._front, self._build, view) for view in views]
        )

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        if not front.options.metrics or self._counted is None:
            message = "This server does not support metrics endpoint. Start it with `--metrics`"
            raise RefusedError("unsupported", message)
        front.service.wall.catch_up()
        headers = self.headers(request) | {"Process-Start-Time-Unix": str(front.started_unix_s)}
        headers["Content-Type"] = "text/plain; version=0.0.4"
        return web.Response(body=self._counted.text().encode(), headers=headers)


async def _only_their_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Date", None)


def _shown(piece: bytes) -> str | list[int]:
    """A piece that is not text by itself is told as its bytes."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
