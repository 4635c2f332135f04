"""The Ollama dialect (0.33, as read in its source and its issues)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from aiohttp import web

from headroom_bench.box import BoxDesign
from mock_server import asks
from mock_server.asks import DEFAULT_ANSWER_TOKENS, ENDLESS_TOKENS, Ask
from mock_server.dialects.ollama_cut import Cut, fit
from mock_server.dialects.ollama_events import NativeVoice, OllamaChat, OllamaCompletion, now
from mock_server.dialects.ollama_log import OllamaLog
from mock_server.dialects.openai import OpenAi
from mock_server.front import Front
from mock_server.logs import Lines
from mock_server.options import MockOptions
from mock_server.prompts import render
from mock_server.refusals import RefusedError

VERSION = "0.33.2"


class Ollama(OpenAi):
    """The routes of one Ollama server, native and OpenAI-like."""

    name = "ollama"
    owner = "library"
    open_paths: tuple[str, ...] = ("/", "/api/version")
    done_after_error = False
    loads_on_demand = True
    ignores_n = True
    least_tokens = None
    chat_voice = OllamaChat
    completion_voice = OllamaCompletion

    def __init__(self, front: Front) -> None:
        super().__init__(front)
        self._loaded_ctx: int | None = None

    def add_to(self, app: web.Application) -> None:
        super().add_to(app)
        get, post = app.router.add_get, app.router.add_post
        get("/", self._hello)
        get("/api/version", self._version)
        get("/api/tags", self._tags)
        get("/api/ps", self._running)
        post("/api/show", self._show)
        post("/api/chat", self._native_chat)
        post("/api/generate", self._generate)

    # --- how it answers -----------------------------------------------------------------------

    def headers(self, _: web.Request) -> dict[str, str]:
        return {}

    def stream_headers(self, request: web.Request) -> dict[str, str]:
        native = request.path.startswith("/api/")
        return {"Content-Type": "application/x-ndjson" if native else "text/event-stream"}

    def json_headers(self, _: web.Request) -> dict[str, str]:
        return {"Content-Type": "application/json; charset=utf-8"}

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        if why.reason == "route":
            status = why.told.get("status", 404)
            return status, b"405 method not allowed" if status == 405 else b"404 page not found"
        status, told = super().refusal(request, why)
        message = _in_go(why)
        if not request.path.startswith("/v1/"):
            return status, {"error": message}
        kinds = {400: "invalid_request_error", 404: "not_found_error"}
        kind = kinds.get(status, "api_error")
        return status, {"error": told["error"] | {"message": message, "type": kind} | _UNSAID}

    def stream_error(self, message: str, /, route: str = "") -> Any:  # noqa: ARG002
        return {"error": message}

    def log(
        self, lines: Lines, clock: Callable[[], float], options: MockOptions, design: BoxDesign, /
    ) -> OllamaLog:
        return OllamaLog(lines, clock, options.model_name, design)

    # --- generation ---------------------------------------------------------------------------

    async def _native_chat(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        self._check_model(body)
        options = asks.table(body, "options")
        if not body.get("messages"):
            return await self._load_only(request, body, options, chat=True)
        name = front.name("ollama-")
        ask = self._native_ask(body, options, name)
        functions, wanted = asks.offered_functions(body)
        ask = replace(ask, functions=functions, wanted_function=wanted)
        ctx = self._ctx(options)
        cut = fit(front.segmenter.chat(asks.parse_messages(body)), ctx)
        return await self._native(request, body, ask, cut, ctx, chat=True, name=name)

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        self._check_model(body)
        options = asks.table(body, "options")
        before = front.text_of(asks.token_ids(body.get("context") or [], "context"))
        prompt = asks.text(body, "prompt")
        if not prompt:
            return await self._load_only(request, body, options, chat=False)
        name = front.name("ollama-")
        ask = self._native_ask(body, options, name)
        ctx = self._ctx(options)
        system = asks.text(body, "system")
        messages = [("system", system), ("user", prompt)] if system else [("user", prompt)]
        rendered = None if asks.flag(body, "raw") else before + render(messages)
        if rendered is None:
            segments = front.segmenter.raw(prompt)
        else:
            segments = front.segmenter.raw(before) if before else []
            segments += front.segmenter.chat(messages)
        cut = fit(segments, ctx)
        return await self._native(request, body, ask, cut, ctx, rendered=rendered, name=name)

    async def _native(
        self,
        request: web.Request,
        body: dict[str, Any],
        ask: Ask,
        cut: Cut,
        ctx: int,
        *,
        name: str,
        chat: bool = False,
        rendered: str | None = None,
    ) -> web.StreamResponse:
        """`rendered`: the prompt that the answer's `context` begins with."""
        self._tell_cut(body, cut, ctx)
        load_s = await self._load(ctx)
        voice = NativeVoice(self._front, chat=chat, load_s=load_s, rendered=rendered)
        try:
            return await self._front.answer(
                request, ask, cut.segments, voice, name=name, cut_tokens=cut.lost_tokens, ctx=ctx
            )
        finally:
            if _unloads(body):
                self._loaded_ctx = None

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        self._check_model(body)
        name = front.name("chatcmpl-", 3)
        name += front.name("-", 20)  # the real ids are short, and ours must be unique
        ctx = front.service.ctx_per_slot
        cut = fit(front.segmenter.chat(asks.parse_messages(body)), ctx)
        ask = self.asked(body, name, tools=True)
        self._tell_cut(body, cut, ctx)
        await self._load(ctx)
        voice = self.chat_voice(front, ask, name)
        lost = cut.lost_tokens
        return await front.answer(request, ask, cut.segments, voice, name=name, cut_tokens=lost)

    def logprobs_of(self, _: dict[str, Any], *, chat: bool) -> int | None:  # noqa: ARG002
        return None  # not built for this server

    def _native_ask(self, body: dict[str, Any], options: dict[str, Any], name: str) -> Ask:
        """`num_predict`: -1 until the model stops by itself, -2 until the context is full."""
        limit = asks.whole(options, "num_predict")
        full = limit == -2
        limited = limit is not None and limit >= 0
        tokens = limit if limited and limit is not None else DEFAULT_ANSWER_TOKENS
        think = body.get("think")
        if think is not None and not isinstance(think, bool | str):
            raise asks.wrong_type("think", "boolean", think)
        return Ask(
            tokens=ENDLESS_TOKENS if full else tokens,
            limited=limited or full,
            stop=asks.stop_words(options),
            stream=asks.flag(body, "stream", True),
            thinking=None if think is None else bool(think),
            draw=asks.draw_of(options, name),
            greedy=asks.is_greedy(options),
        )

    def _ctx(self, options: dict[str, Any]) -> int:
        """The context that a request gets, at most what the server has for each."""
        most = self._front.service.ctx_per_slot
        asked = asks.whole(options, "num_ctx")
        return most if asked is None or asked < 1 else min(asked, most)

    def _tell_cut(self, body: dict[str, Any], cut: Cut, ctx: int) -> None:
        """Journals what was thrown away, or refuses where the request forbids it."""
        if not cut.lost_tokens:
            return
        prompt_tokens, left = cut.prompt_tokens, cut.prompt_tokens - cut.lost_tokens
        if not asks.flag(body, "truncate", True):
            told = f"the input length exceeds the context length ({prompt_tokens} > {ctx})"
            raise RefusedError("value", told, field="truncate", value=False)
        log = self._front.service.log
        assert isinstance(log, OllamaLog)
        if cut.runner_cut:
            log.cut(ctx, prompt_tokens, 0, left)
        else:
            log.dropped(cut.lost_tokens)

    async def _load(self, ctx: int) -> float:
        """Waits while the model is loaded, at first and for another context length. Returns life
        seconds."""
        options = self._front.options
        known, self._loaded_ctx = self._loaded_ctx, ctx
        if known == ctx or not options.loading_s:
            return 0.0
        await asyncio.sleep(options.loading_s / options.time_scale)
        return options.loading_s

    async def _load_only(
        self, request: web.Request, body: dict[str, Any], options: dict[str, Any], *, chat: bool
    ) -> web.StreamResponse:
        """A request without a prompt loads or unloads the model."""
        unload = _unloads(body)
        if unload:
            self._loaded_ctx = None
        else:
            await self._load(self._ctx(options))
        said = {"message": {"role": "assistant", "content": ""}} if chat else {"response": ""}
        told: dict[str, Any] = {"model": self._front.model, "created_at": now()} | said
        told |= {"done": True, "done_reason": "unload" if unload else "load"}
        return self._front.json(request, told)

    def _check_model(self, body: dict[str, Any]) -> None:
        name = asks.text(body, "model")
        if not name:
            raise RefusedError("missing", "model is required", field="model", value=body)
        if name not in (self._front.model, self._full_name()):
            raise RefusedError("model", f"model '{name}' not found", field="model")

    # --- what the server tells of itself ------------------------------------------------------

    async def _hello(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="Ollama is running")

    async def _version(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"version": VERSION})

    async def _tags(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"models": [self._listed()]})

    async def _running(self, request: web.Request) -> web.StreamResponse:
        if self._loaded_ctx is None:
            return self._front.json(request, {"models": []})
        listed = self._listed()
        del listed["modified_at"]
        size = self._front.facts.weight_bytes
        told: dict[str, Any] = {"expires_at": "2318-11-30T00:00:00Z", "size_vram": size}
        told["context_length"] = self._loaded_ctx
        return self._front.json(request, {"models": [listed | told]})

    async def _show(self, request: web.Request) -> web.StreamResponse:
        body = await self._front.body(request)
        if "model" not in body and "name" in body:
            body["model"] = body["name"]
        self._check_model(body)
        facts = self._front.facts
        info = {
            "general.architecture": "mock",
            "general.parameter_count": facts.parameters,
            "mock.context_length": facts.trained_ctx,
            "mock.embedding_length": facts.width,
        }
        told = {
            "modelfile": f"FROM {self._front.model}",
            "parameters": f"num_ctx {self._front.service.ctx_per_slot}",
            "template": "{{ .Prompt }}",
            "details": self._details(),
            "model_info": info,
            "capabilities": ["completion", "tools", "thinking"],
            "modified_at": now(),
        }
        return self._front.json(request, told)

    def _listed(self) -> dict[str, Any]:
        name = self._full_name()
        told: dict[str, Any] = {"name": name, "model": name, "modified_at": now()}
        told |= {"size": self._front.facts.weight_bytes, "digest": "0" * 64}
        return told | {"details": self._details()}

    def listed(self) -> dict[str, Any]:
        return super().listed() | {"id": self._full_name()}

    def _full_name(self) -> str:
        name = self._front.model
        return name if ":" in name else f"{name}:latest"

    def _details(self) -> dict[str, Any]:
        facts = self._front.facts
        return {
            "parent_model": "",
            "format": "gguf",
            "family": "mock",
            "families": ["mock"],
            "parameter_size": f"{facts.parameters / 1e9:.1f}B",
            "quantization_level": facts.quant,
        }


_UNSAID = {"param": None, "code": None}
_GO_TYPES = {"boolean": "bool", "number": "int", "array": "[]interface {}", "object": "map"}


def _in_go(why: RefusedError) -> str:
    """A refusal in the words of Go's JSON reader, where that is what refuses."""
    if why.reason == "type":
        given, field = asks.kind_of(why.told.get("value")), why.told.get("field")
        wanted = _GO_TYPES.get(str(why.told.get("wanted")), "string")
        return f"json: cannot unmarshal {given} into Go struct field .{field} of type {wanted}"
    if why.reason == "json":
        return f"invalid character: {why}"
    return str(why)


def _unloads(body: dict[str, Any]) -> bool:
    return body.get("keep_alive") in (0, "0", "0s") and body.get("keep_alive") is not False
