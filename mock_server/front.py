"""The HTTP front that all dialects share: from a request to the box, and back as it happens."""

from __future__ import annotations

import hmac
import random
import string
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from aiohttp import web
from aiohttp.http import HttpVersion10

from headroom_bench.segments import Segment, total_tokens
from mock_server.answers import NOTHING, Answer, write_answer, write_call
from mock_server.asks import Ask, parse_json
from mock_server.choices import Choir
from mock_server.dialect import Dialect, Voice, dumps
from mock_server.facts import ModelFacts
from mock_server.faults import HEADER, Fault
from mock_server.faulty_stream import FaultyStream
from mock_server.gate import Gate
from mock_server.jobs import Job
from mock_server.logs import Peer
from mock_server.options import MAX_BODY_BYTES, MockOptions
from mock_server.prompts import Segmenter, content_id, prompt_id, salted, salted_id, uncached
from mock_server.refusals import RefusedError
from mock_server.replies import StreamReply, WholeReply
from mock_server.request_faults import KvExhausted, RequestFault, TruncatedBody
from mock_server.service import Service, too_long
from mock_server.stream import Stream
from mock_server.tokens import Vocabulary
from mock_server.tool_calls import choose_call

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_FAULTS = web.RequestKey("faults", list)
_LETTERS = string.ascii_letters + string.digits


class Front:
    """One server's front. `service` starts with the application."""

    def __init__(self, options: MockOptions, facts: ModelFacts) -> None:
        self.service: Service
        self.dialect: Dialect
        self.options = options
        self.facts = facts
        self.model = options.model_name
        self.started_unix_s = int(time.time())
        self.vocabulary = Vocabulary()
        self.segmenter = Segmenter()
        self.names = random.Random(options.seed)
        self.gate = Gate(options.faults, options.time_scale, options.seed)

    def add_to(self, app: web.Application) -> None:
        """What stands before every route, and the routes that only a mock has."""
        app.middlewares.append(self._guard)
        app.router.add_get("/truth", self._truth)

    def name(self, start: str, letters: int = 32) -> str:
        return start + "".join(self.names.choices(_LETTERS, k=letters))

    def hex_name(self, digits: int = 32) -> str:
        return "".join(self.names.choices("0123456789abcdef", k=digits))

    def text_of(self, ids: list[int]) -> str:
        return b"".join(map(self.vocabulary.piece_of, ids)).decode("utf-8", "replace")

    # --- before every route -------------------------------------------------------------------

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        began = time.perf_counter()
        if self.dialect.old_http:
            request._version = HttpVersion10  # aiohttp answers in the version that was asked in
        try:
            answer = await self._admitted(request, handler)
        except RefusedError as refusal:
            answer = self._refused(request, refusal)
        took_s = (time.perf_counter() - began) * self.options.time_scale
        peer = _peer(request)
        self.service.log.answered(peer, request.method, request.path, answer.status, took_s)
        return answer

    async def _admitted(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path == "/truth":
            return await handler(request)
        faults = request[_FAULTS] = self.gate.faults_of(request.headers.getall(HEADER, ()))
        instead = self.gate.instead(request, faults)
        if instead is not None:
            return await self._instead(request, *instead)
        if not self._may_ask(request):
            raise RefusedError("unauthorized", "Invalid API Key")
        loading = self.service.wall.life_s() < self.options.loading_s
        if loading and not self.dialect.loads_on_demand:
            raise RefusedError("loading", "Loading model")
        try:
            async with self.gate.entered(request):
                return await handler(request)
        except web.HTTPRequestEntityTooLarge:
            message = f"the body exceeds {MAX_BODY_BYTES} bytes"
            raise RefusedError("too_large", message) from None
        except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as why:
            raise RefusedError("route", "File Not Found", status=why.status) from None

    async def _instead(
        self, request: web.Request, what: str, retry_after_s: float
    ) -> web.StreamResponse:
        """What a fault answers instead."""
        if what == "html":
            page = "<html><head><title>Welcome</title></head><body>It works!</body></html>"
            return web.Response(text=page, content_type="text/html")
        if what == "not_http":
            transport = request.transport
            if transport is not None:
                transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")
                transport.close()
            raise ConnectionResetError("the fault not-http")
        if what == "loading":
            raise RefusedError("loading", "Loading model")
        if what == "missing":
            raise RefusedError("route", "File Not Found", status=404)
        await request.read()
        status, message = {"limited": (429, "too many requests"), "busy": (503, "overloaded")}[what]
        answer = self._refused(request, RefusedError("failed", message, status=status))
        answer.headers["Retry-After"] = f"{retry_after_s:g}"
        return answer

    def _refused(self, request: web.Request, why: RefusedError) -> web.Response:
        status, body = self.dialect.refusal(request, why)
        if isinstance(body, bytes):
            headers = self.dialect.headers(request) | {"Content-Type": "text/plain"}
            return web.Response(body=body, status=status, headers=headers)
        return self.json(request, body, status)

    def _may_ask(self, request: web.Request) -> bool:
        key = self.options.api_key
        if key is None or request.path in self.dialect.open_paths:
            return True
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or request.headers.get("X-Api-Key", "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), key.encode())

    # --- generation ---------------------------------------------------------------------------

    async def body(self, request: web.Request) -> dict[str, Any]:
        """The request's JSON object. Raises `RefusedError`."""
        try:
            return parse_json(await request.read())
        except web.RequestPayloadError as why:  # such as gzip that is none
            told = f"the body cannot be read: {' '.join(str(why).split())}"
            raise RefusedError("json", told, at=0, said=told) from None

    async def answer(
        self,
        request: web.Request,
        ask: Ask,
        segments: Sequence[Segment],
        voice: Voice,
        *,
        name: str,
        cut_tokens: int = 0,
        ctx: int | None = None,
    ) -> web.StreamResponse:
        """Generates and tells, as a stream or in one piece. `ctx`: tokens of context, if fewer than
        the server's. Raises `RefusedError` where the prompt does not fit."""
        faults: list[Fault] = request[_FAULTS]
        prompt_tokens = total_tokens(segments)
        room = min(ctx or self.service.ctx_per_slot, self.service.ctx_per_slot) - prompt_tokens
        plain = any(isinstance(fault, RequestFault) and fault.plain for fault in faults)
        jobs = [
            self._job(ask, name, number, segments, room, request, faults)
            for number in range(ask.choices if prompt_tokens else 1)
        ]
        for job in jobs:
            job.cut_tokens = cut_tokens
        if len(jobs) > 1:
            voice = Choir(voice, jobs, usage_each=self.dialect.usage_each_choice)
        most = self.service.box.design.max_queue
        if most is not None and self.service.waiting >= most:
            busy = "server busy, please try again.  maximum pending requests exceeded"
            raise RefusedError("failed", busy, status=503)
        if not prompt_tokens:
            jobs[0].answer, jobs[0].slot = NOTHING, 0
        if ask.stream and not plain and (room > 0 or not prompt_tokens):
            return await self._streamed(request, jobs, voice, faults, ask.ping_s)
        return await self._whole(request, jobs, voice, room, faults)

    def _job(
        self,
        ask: Ask,
        name: str,
        number: int,
        segments: Sequence[Segment],
        room: int,
        request: web.Request,
        faults: Sequence[Fault],
    ) -> Job:
        """The choice of that number, each with a draw of its own unless it is greedy."""
        if number:
            name = f"{name}/{number}"
            ask = ask if ask.greedy else replace(ask, draw=f"{ask.draw}/{number}")
        answer = self._written(ask, prompt_id(segments), room)
        kept = tuple(segments) if ask.cache_prompt else uncached(segments, name)
        said_back = content_id("assistant", answer.said_back())
        if ask.salt:
            kept, said_back = salted(kept, ask.salt), salted_id(said_back, ask.salt)
        wanted = answer.tokens if answer.ended in ("word", "tool") else ask.tokens
        if self.service.box.design.counts_answer:  # what was not asked for is no reason to refuse
            wanted = max(1, min(wanted, room))
        return Job(
            id=name,
            segments=kept,
            prompt_tokens=total_tokens(segments),
            answer=answer,
            answer_id=said_back,
            wanted_tokens=wanted,
            reply=WholeReply(),
            wants_progress=ask.progress,
            greedy=ask.greedy,
            alone=ask.alone,
            settings=ask.settings,
            route=request.path,
            told_id=request.headers.get("X-Request-Id", "")[:200],
            faults=tuple(fault.name for fault in faults),
        )

    def _written(self, ask: Ask, prompt: str, room: int) -> Answer:
        tokens = max(1, min(ask.tokens, room))
        key = f"{self.options.seed}/{prompt}/{ask.draw}"
        thinks = self.options.reasoning if ask.thinking is not False else 0
        if ask.thinking and not thinks:
            thinks = self.options.reasoning_on_request
        if ask.functions:
            call = choose_call(key, list(ask.functions), ask.wanted_function)
            most = tokens if ask.limited else max(1, room)
            return write_call(key, call, most, thought_tokens=thinks)
        if not ask.limited:
            tokens = max(1, min(tokens + thinks, room))
        limited = ask.limited or room < ask.tokens
        return write_answer(key, tokens, limited=limited, thought_tokens=thinks, stop=ask.stop)

    async def _streamed(
        self,
        request: web.Request,
        jobs: Sequence[Job],
        voice: Voice,
        faults: Sequence[Fault],
        ping_s: float | None,
    ) -> web.StreamResponse:
        dialect, job = self.dialect, jobs[0]
        stream = self._stream(request, job, faults)
        if not dialect.headers_with_first_token:
            await stream.start()
        kills = next((f.tokens for f in faults if isinstance(f, KvExhausted)), None)
        reply = StreamReply(self.service, voice, stream, jobs, kills)
        for each in jobs:
            each.reply = reply
        if len(jobs) == 1:
            job.sent_ns = stream.sent_ns
        opening = voice.opening(job)
        if opening:
            stream.write(opening)
        try:
            if job.answer is NOTHING:
                await stream.start()
                reply.finished(job)
            else:
                self._submit(jobs)
            if ping_s is None or dialect.ping_s is None:
                ping_s = dialect.ping_s
            await reply.played(ping_s / self.options.time_scale if ping_s and ping_s > 0 else None)
            await stream.finish()
        finally:  # reached by cancellation when the client disconnects
            stream.over()
            self._over(jobs)
        if stream.response is None:
            raise RefusedError("failed", reply.failure)
        return stream.response

    def _submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.service.submit(job)

    def _over(self, jobs: Sequence[Job]) -> None:
        """The asker is gone or has all."""
        for job in jobs:
            self.service.hang_up(job)
            if job.answer is not NOTHING:
                self.service.delivered(job)

    def _stream(self, request: web.Request, job: Job, faults: Sequence[Fault]) -> Stream:
        headers = self.dialect.stream_headers(request)
        if not faults:
            return Stream(request, headers)
        return FaultyStream(
            request,
            headers,
            self.gate.set_up(faults, self.dialect, job),
            lines="ndjson" in headers.get("Content-Type", ""),
        )

    async def _whole(
        self,
        request: web.Request,
        jobs: Sequence[Job],
        voice: Voice,
        room: int,
        faults: Sequence[Fault],
    ) -> web.StreamResponse:
        """What is not streamed: answers in one piece, refusals, and nothing for nothing."""
        job = jobs[0]
        if job.answer is not NOTHING:
            reply = WholeReply(len(jobs))
            for each in jobs:
                each.reply = reply
            try:
                self._submit(jobs)
                failure = await reply.answered
            finally:
                self._over(jobs)
            if failure and room < 1:
                ctx = self.service.ctx_per_slot
                told = too_long(job.prompt_tokens, ctx)
                raise RefusedError("too_long", told, prompt_tokens=job.prompt_tokens, ctx=ctx)
            if failure:
                raise RefusedError("failed", failure)
        body = voice.whole(job)
        if any(isinstance(fault, TruncatedBody) for fault in faults):
            return await self._truncated(request, body)
        return self.json_bytes(request, body)

    async def _truncated(self, request: web.Request, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse(headers=self.dialect.json_headers(request))
        answer.content_length = len(body)
        await answer.prepare(request)
        await answer.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.close()
        return answer

    # --- plain answers ------------------------------------------------------------------------

    def json(self, request: web.Request, value: Any, status: int = 200) -> web.Response:
        return self.json_bytes(request, dumps(value), status)

    def json_bytes(self, request: web.Request, body: bytes, status: int = 200) -> web.Response:
        headers = self.dialect.json_headers(request)
        return web.Response(body=body, status=status, headers=headers)

    async def _truth(self, request: web.Request) -> web.StreamResponse:
        truth = self.service.truth
        requests = truth.latest(request.query.getall("id", ()))
        told = {"lost": truth.lost, "mock": self.lateness(), "requests": requests}
        return web.json_response(body=dumps(told))

    def lateness(self) -> dict[str, float]:
        """How much later than its own times the mock was, in seconds of life."""
        wall = self.service.wall
        return {
            "time_scale": self.options.time_scale,
            "slip_s": wall.slip_s,
            "worst_slip_s": wall.worst_slip_s,
            "slips": wall.slips,
        }


def _peer(request: web.Request) -> Peer:
    """Who asked; nobody once the connection is gone."""
    name = request.transport.get_extra_info("peername") if request.transport else None
    return (str(name[0]), int(name[1])) if name else ("", 0)
