"""The llama.cpp dialect: llama-server's routes as b11549 answers them."""

from __future__ import annotations

import asyncio
import hmac
import random
import string
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from headroom_bench.box import SlotView
from headroom_bench.segments import Segment, total_tokens
from mock_server.answers import Answer, write_answer
from mock_server.facts import ModelFacts
from mock_server.llamacpp_ask import (
    Ask,
    RefusedError,
    default_settings,
    parse_ask,
    parse_json,
    parse_messages,
    parse_prompt,
    short_settings,
    token_ids,
)
from mock_server.llamacpp_events import Chat, Completion, Native, Shape, dumps
from mock_server.llamacpp_metrics import metrics_text
from mock_server.options import MAX_BODY_BYTES, MockOptions
from mock_server.prompts import Segmenter, prompt_id, render, uncached
from mock_server.service import Job, Service, too_long
from mock_server.stream import Stream, open_stream
from mock_server.tokens import VOCAB_TOKENS, Vocabulary, split

BUILD_INFO = "b11549-mock"
PING_S = 30.0
"""A stream that is silent for so long gets a comment, to keep the connection."""
_OPEN_ROUTES = ("/health", "/v1/health")
_ID_LETTERS = string.ascii_letters + string.digits
_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TEMPLATE_CAPS = {
    "supports_object_arguments": False,
    "supports_parallel_tool_calls": False,
    "supports_preserve_reasoning": False,
    "supports_reasoning_effort": False,
    "supports_string_content": True,
    "supports_system_role": True,
    "supports_tool_calls": False,
    "supports_tools": True,
    "supports_typed_content": True,
}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _StreamReply:
    """Writes the events of one answer as they happen."""

    def __init__(self, service: Service, shape: Shape, stream: Stream, progress: bool) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._service = service
        self._shape = shape
        self._stream = stream
        self._progress = progress

    def admitted(self, job: Job) -> None:
        if self._progress:
            self._write(job, self._shape.progress(job, job.cached))

    def token(self, job: Job) -> None:
        text = job.answer.shown[job.generated - 1]
        data = self._shape.token(job, text) if text else b""
        if job.generated == 1:
            if self._progress:
                self._write(job, self._shape.progress(job, job.prompt_tokens))
            data = self._shape.opening() + data
        if data:
            self._write(job, data)

    def finished(self, job: Job) -> None:
        for data in self._shape.ending(job):
            self._write(job, data)
        self._end()

    def rejected(self, _: Job) -> None:
        raise AssertionError("a prompt that is too long gets no stream")

    def _write(self, job: Job, data: bytes) -> None:
        self._stream.write(data)
        if not self._stream.open:  # hung up, or too slow a reader
            self._service.hang_up(job)
            self._end()

    def _end(self) -> None:
        if not self.over.done():
            self.over.set_result(None)


class _WholeReply:
    """Waits for the end of the answer; the future tells whether there is one."""

    def __init__(self) -> None:
        self.answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def admitted(self, _: Job) -> None:
        pass

    def token(self, _: Job) -> None:
        pass

    def finished(self, _: Job) -> None:
        self._end(True)

    def rejected(self, _: Job) -> None:
        self._end(False)

    def _end(self, answered: bool) -> None:
        if not self.answered.done():
            self.answered.set_result(answered)


class LlamaCpp:
    """The routes of one server. `service` starts with the application."""

    def __init__(self, options: MockOptions, facts: ModelFacts) -> None:
        self.service: Service
        self.loaded_at_s = options.loading_s
        self._options = options
        self._facts = facts
        self._model = options.model_name
        self._started_unix_s = int(time.time())
        self._vocabulary = Vocabulary()
        self._segmenter = Segmenter()
        self._names = random.Random(options.seed)

    def add_to(self, app: web.Application) -> None:
        """The routes and what stands before them."""
        app.middlewares.append(self._guard)
        app.on_response_prepare.append(_only_their_headers)
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

    # --- before every route -------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            if not self._may_ask(request):
                error = _error("Invalid API Key", "authentication_error", 401)
                return _json(request, error, 401)
            if self.service.wall.life_s() < self.loaded_at_s:
                error = _error("Loading model", "unavailable_error", 503)
                return _json(request, error, 503)
            return await handler(request)
        except RefusedError as refusal:
            return _json(request, refusal.body(), refusal.status)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body exceeds {MAX_BODY_BYTES} bytes"
            return _json(request, _error(message, "invalid_request_error", 413), 413)
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed):
            return _json(request, _error("File Not Found", "not_found_error", 404), 404)

    def _may_ask(self, request: web.Request) -> bool:
        key = self._options.api_key
        if key is None or request.path in _OPEN_ROUTES:
            return True
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or request.headers.get("X-Api-Key", "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())

    # --- generation ---------------------------------------------------------------------------

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read())
        ask = parse_ask(body)
        segments = self._segmenter.chat(parse_messages(body))
        name = self._name()
        shape = Chat(self.service, name, self._model, ask.include_usage, ask.each_timed)
        return await self._answer(request, ask, name, segments, shape)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read())
        ask = parse_ask(body)
        segments = self._segmenter.raw(self._prompt(body))
        name = self._name()
        shape = Completion(self.service, name, self._model, ask.each_timed)
        return await self._answer(request, ask, name, segments, shape)

    async def _native(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read())
        ask = parse_ask(body)
        prompt = self._prompt(body)
        segments = self._segmenter.raw(prompt)
        shape = Native(self._model, prompt, self._vocabulary, ask.return_tokens)
        return await self._answer(request, ask, self._name(), segments, shape)

    async def _answer(
        self, request: web.Request, ask: Ask, name: str, segments: list[Segment], shape: Shape
    ) -> web.StreamResponse:
        prompt_tokens = total_tokens(segments)
        room = self.service.ctx_per_slot - prompt_tokens
        if not ask.stream or room < 1 or not prompt_tokens:
            reply = _WholeReply()
            job = self._job(ask, name, segments, reply, room)
            return await self._whole(request, ask, job, reply.answered, shape)
        stream = await open_stream(request, _stream_headers(request))
        if stream is None:
            raise ConnectionResetError("the client left before the headers")
        progress = ask.progress and isinstance(shape, Chat)
        streamed = _StreamReply(self.service, shape, stream, progress)
        job = self._job(ask, name, segments, streamed, room)
        self.service.submit(job)
        try:
            await self._until(streamed.over, stream)
        finally:  # reached by cancellation when the client disconnects
            self.service.hang_up(job)
        await stream.finish()
        return stream.response

    def _job(
        self,
        ask: Ask,
        name: str,
        segments: list[Segment],
        reply: _StreamReply | _WholeReply,
        room: int,
    ) -> Job:
        prompt_tokens = total_tokens(segments)
        tokens = max(1, min(ask.tokens, room))
        limited = ask.limited or room < ask.tokens
        answer = write_answer(
            self._options.seed, prompt_id(segments), tokens, limited=limited, stop=ask.stop
        )
        wanted = answer.tokens if answer.ended == "word" else ask.tokens
        kept = tuple(segments) if ask.cache_prompt else uncached(segments, name)
        return Job(name, kept, prompt_tokens, answer, wanted, reply, settings=ask.settings)

    async def _whole(
        self,
        request: web.Request,
        ask: Ask,
        job: Job,
        answered: asyncio.Future[bool],
        shape: Shape,
    ) -> web.StreamResponse:
        """What is not streamed: answers in one piece, refusals, and nothing for nothing."""
        if not job.prompt_tokens:
            return await self._nothing(request, ask, job, shape)
        self.service.submit(job)
        try:
            ok = await answered
        finally:
            self.service.hang_up(job)
        if not ok:
            n_ctx = self.service.ctx_per_slot
            raise RefusedError(
                400,
                too_long(job.prompt_tokens, n_ctx),
                "exceed_context_size_error",
                n_prompt_tokens=job.prompt_tokens,
                n_ctx=n_ctx,
            )
        return _json_bytes(request, shape.whole(job))

    async def _nothing(
        self, request: web.Request, ask: Ask, job: Job, shape: Shape
    ) -> web.StreamResponse:
        job.answer = Answer((), "eos")
        job.slot = 0
        if not ask.stream:
            return _json_bytes(request, shape.whole(job))
        stream = await open_stream(request, _stream_headers(request))
        if stream is None:
            raise ConnectionResetError("the client left before the headers")
        for data in shape.ending(job):
            stream.write(data)
        await stream.finish()
        return stream.response

    async def _until(self, over: asyncio.Future[None], stream: Stream) -> None:
        wait = PING_S / self._options.time_scale
        while not over.done():
            written = stream.writes
            await asyncio.wait((over,), timeout=wait)
            if written == stream.writes:
                stream.write(b":\n\n")

    def _prompt(self, body: dict[str, Any]) -> str:
        prompt = parse_prompt(body)
        return prompt if isinstance(prompt, str) else self._text(prompt)

    def _text(self, ids: list[int]) -> str:
        return b"".join(map(self._vocabulary.piece_of, ids)).decode("utf-8", "replace")

    def _name(self) -> str:
        return "chatcmpl-" + "".join(self._names.choices(_ID_LETTERS, k=32))

    # --- tokens -------------------------------------------------------------------------------

    async def _tokenize(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read())
        content = body.get("content", "")
        if not isinstance(content, str):
            raise RefusedError(400, "'content' must be a string")
        pieces = split(content)
        tokens: list[Any] = [self._vocabulary.id_of(piece) for piece in pieces]
        if body.get("with_pieces") is True:
            pairs = zip(tokens, pieces, strict=True)
            tokens = [{"id": number, "piece": _shown(piece)} for number, piece in pairs]
        return _json(request, {"tokens": tokens})

    async def _detokenize(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read())
        ids = token_ids(body.get("tokens", []), "tokens")
        return _json(request, {"content": self._text(ids)})

    async def _apply_template(self, request: web.Request) -> web.StreamResponse:
        messages = parse_messages(parse_json(await request.read()))
        return _json(request, {"prompt": render(messages)})

    # --- what the server tells of itself ------------------------------------------------------

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return _json(request, {"status": "ok"})

    async def _models(self, request: web.Request) -> web.StreamResponse:
        name, facts = self._model, self._facts
        meta = {
            "vocab_type": 2,
            "n_vocab": VOCAB_TOKENS,
            "n_ctx": self.service.ctx_per_slot,
            "n_ctx_train": facts.trained_ctx,
            "n_embd": facts.width,
            "n_params": facts.parameters,
            "size": facts.weight_bytes,
            "ftype": facts.quant,
        }
        listed = {
            "id": name,
            "aliases": [name],
            "tags": [],
            "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": self._started_unix_s,
            "owned_by": "llamacpp",
            "meta": meta,
        }
        return _json(request, {"models": [_ollama_like(name)], "object": "list", "data": [listed]})

    async def _props(self, request: web.Request) -> web.StreamResponse:
        name, wall = self._model, self.service.wall
        settings = {
            "params": short_settings(default_settings()),
            "n_ctx": self.service.ctx_per_slot,
        }
        props = {
            "default_generation_settings": settings,
            "total_slots": self._options.slots,
            "model_alias": name,
            "model_ftype": self._facts.quant,
            "model_path": name,
            "modalities": {"vision": False, "video": False, "audio": False},
            "media_marker": "<__media__>",
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": self._options.metrics,
            "ui": False,
            "ui_settings": {},
            "chat_template": _TEMPLATE,
            "chat_template_caps": _TEMPLATE_CAPS,
            "bos_token": "<|im_start|>",
            "eos_token": "<|im_end|>",
            "build_info": BUILD_INFO,
            "is_sleeping": False,
            "cors_proxy_enabled": False,
            "mock": {
                "time_scale": self._options.time_scale,
                "slip_s": wall.slip_s,
                "worst_slip_s": wall.worst_slip_s,
                "slips": wall.slips,
            },
        }
        return _json(request, props)

    async def _slots(self, request: web.Request) -> web.StreamResponse:
        self.service.wall.catch_up()
        views = self.service.box.snapshot().slots
        if request.query.get("fail_on_no_slot") == "1" and all(v.task is not None for v in views):
            raise RefusedError(503, "no slot available", "unavailable_error")
        return _json(request, [self._slot(view) for view in views])

    def _slot(self, view: SlotView) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": view.index,
            "n_ctx": self.service.ctx_per_slot,
            "speculative": False,
            "is_processing": view.request_id is not None,
        }
        job = self.service.jobs.get(view.request_id or "")
        if job is None:
            return told
        upcoming = {
            "has_next_token": True,
            "has_new_line": False,
            "n_remain": job.answer.tokens - view.generated,
            "n_decoded": view.generated,
        }
        return told | {
            "id_task": job.task,
            "n_prompt_tokens": view.prompt_tokens + view.generated,
            "n_prompt_tokens_processed": view.processed_tokens,
            "n_prompt_tokens_cache": view.cached_tokens,
            "params": short_settings(job.settings),
            "next_token": [upcoming],
        }

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        if not self._options.metrics:
            message = "This server does not support metrics endpoint. Start it with `--metrics`"
            raise RefusedError(501, message, "not_supported_error")
        self.service.wall.catch_up()
        headers = {**_headers(request), "Process-Start-Time-Unix": str(self._started_unix_s)}
        headers["Content-Type"] = "text/plain; version=0.0.4"
        return web.Response(body=metrics_text(self.service).encode(), headers=headers)


async def _only_their_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.popall("Date", None)


def _headers(request: web.Request) -> dict[str, str]:
    origin = request.headers.get("Origin", "")
    return {"Server": "llama.cpp", "Access-Control-Allow-Origin": origin}


def _stream_headers(request: web.Request) -> list[tuple[str, str]]:
    more = {"X-Accel-Buffering": "no", "Content-Type": "text/event-stream"}
    return list((_headers(request) | more).items())


def _json(request: web.Request, value: Any, status: int = 200) -> web.Response:
    return _json_bytes(request, dumps(value), status)


def _json_bytes(request: web.Request, body: bytes, status: int = 200) -> web.Response:
    headers = _headers(request) | {"Content-Type": "application/json; charset=utf-8"}
    return web.Response(body=body, status=status, headers=headers)


def _error(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "code": code}}


def _shown(piece: bytes) -> str | list[int]:
    """A piece that is not text by itself is told as its bytes."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)


def _ollama_like(name: str) -> dict[str, Any]:
    details = {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": details,
    }
