"""The plain OpenAI dialect, and what the servers that copy it share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from aiohttp import web

from headroom_bench.box import BoxDesign
from headroom_bench.segments import Segment
from mock_server import asks
from mock_server.asks import DEFAULT_ANSWER_TOKENS, Ask
from mock_server.dialect import Voice
from mock_server.dialects.openai_events import ChatVoice, CompletionVoice
from mock_server.front import Front
from mock_server.logs import Lines, Log
from mock_server.options import MockOptions
from mock_server.prompts import render
from mock_server.refusals import RefusedError

MOST_CHOICES = 128
"""OpenAI's limit."""
_STATUS = {
    "unauthorized": (401, "invalid_request_error", "invalid_api_key"),
    "loading": (503, "server_error", None),
    "route": (404, "invalid_request_error", None),
    "model": (404, "invalid_request_error", "model_not_found"),
    "too_large": (413, "invalid_request_error", None),
    "too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "failed": (500, "server_error", None),
}
"""Status, type and code of an error by its reason."""


def parse_ask(
    body: dict[str, Any],
    name: str,
    *,
    default_tokens: int = DEFAULT_ANSWER_TOKENS,
    least_tokens: int | None = 1,
) -> Ask:
    """What OpenAI's fields say, and vLLM's and SGLang's `min_tokens` and `ignore_eos`.

    `name`: the request's own. `least_tokens`: the smallest limit that is taken; None: a limit below
    0 is none. Raises `RefusedError`.
    """
    limit = asks.whole(body, "max_completion_tokens", "max_tokens")
    if limit is not None and limit < (least_tokens or 0):
        if least_tokens is not None:
            told = "Invalid 'max_tokens': integer below minimum value. Expected a value >= "
            told += f"{least_tokens}, but got {limit} instead."
            raise RefusedError("value", told, field="max_tokens", value=limit)
        limit = None
    least = asks.whole(body, "min_tokens") or 0
    endless = asks.flag(body, "ignore_eos")
    tokens = max(default_tokens, least) if limit is None else limit
    stream_options = asks.table(body, "stream_options")
    return Ask(
        tokens=asks.ENDLESS_TOKENS if endless and limit is None else tokens,
        limited=limit is not None or endless,
        stop=() if endless or least else asks.stop_words(body),
        stream=asks.flag(body, "stream"),
        include_usage=asks.flag(stream_options, "include_usage"),
        thinking=_thinking(body),
        draw=asks.draw_of(body, name),
        greedy=asks.is_greedy(body),
    )


def _thinking(body: dict[str, Any]) -> bool | None:
    effort = asks.text(body, "reasoning_effort")
    if effort is not None:
        return effort not in ("none", "minimal")
    kwargs = asks.table(body, "chat_template_kwargs")
    given = kwargs.get("enable_thinking", kwargs.get("thinking"))
    return given if isinstance(given, bool) else None


class OpenAi:
    """The routes of one server."""

    name: str = "openai"
    old_http = False
    headers_with_first_token = False
    ping_s: float | None = None
    open_paths: tuple[str, ...] = ()
    done_after_error = True
    loads_on_demand = False
    usage_each_choice = False
    owner: ClassVar[str] = "openai"
    ignores_n: ClassVar[bool] = False
    """Answers one choice however many are asked for."""
    least_tokens: ClassVar[int | None] = 1
    """The smallest `max_tokens` that is taken; None: what is below 0 is no limit."""
    default_tokens: ClassVar[int] = DEFAULT_ANSWER_TOKENS
    empty_prompt: ClassVar[str] = "the prompt must not be empty"
    chat_voice: ClassVar[type[ChatVoice]] = ChatVoice
    completion_voice: ClassVar[type[CompletionVoice]] = CompletionVoice

    def __init__(self, front: Front) -> None:
        self._front = front

    def add_to(self, app: web.Application) -> None:
        app.on_response_prepare.append(_without_a_server)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completion)

    # --- how it answers -----------------------------------------------------------------------

    def headers(self, _: web.Request) -> dict[str, str]:
        return {"openai-version": "2020-10-01"}

    def stream_headers(self, request: web.Request) -> dict[str, str]:
        more = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        return self.headers(request) | more

    def json_headers(self, request: web.Request) -> dict[str, str]:
        return self.headers(request) | {"Content-Type": "application/json"}

    def refusal(self, request: web.Request, why: RefusedError, /) -> tuple[int, Any]:
        status, kind, code = _STATUS.get(why.reason, (400, "invalid_request_error", None))
        message = str(why)
        if why.reason == "route":
            message = f"Invalid URL ({request.method} {request.path})"
        elif why.reason == "too_long":
            ctx, prompt = why.told["ctx"], why.told["prompt_tokens"]
            message = f"This model's maximum context length is {ctx} tokens. However, your "
            message += f"messages resulted in {prompt} tokens. Please reduce their length."
        status = why.told.get("status", status)
        kind = "requests" if status == 429 else kind
        error = {"message": message, "type": kind, "param": why.told.get("field"), "code": code}
        return status, {"error": error}

    def stream_error(self, message: str, /, route: str = "") -> Any:  # noqa: ARG002
        return {"error": {"message": message, "type": "server_error", "param": None, "code": None}}

    def log(
        self, lines: Lines, clock: Callable[[], float], _: MockOptions, __: BoxDesign, /
    ) -> Log:
        return Log(lines, clock)

    # --- routes -------------------------------------------------------------------------------

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return self._front.json(request, {"object": "list", "data": [self.listed()]})

    def listed(self) -> dict[str, Any]:
        """The model as `/v1/models` lists it."""
        front = self._front
        told = {"id": front.model, "object": "model", "created": front.started_unix_s}
        return told | {"owned_by": self.owner}

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        self.check(body)
        name = self.chat_name(body)
        segments = front.segmenter.chat(asks.parse_messages(body))
        ask = self.asked(body, name, tools=True)
        self.check_fits(ask, segments, lambda: render(asks.parse_messages(body)))
        voice = self.chat_voice_of(body, ask, name)
        return await front.answer(request, ask, segments, voice, name=name)

    async def _completion(self, request: web.Request) -> web.StreamResponse:
        front = self._front
        body = await front.body(request)
        self.check(body)
        name = self.completion_name(body)
        ask = self.asked(body, name, tools=False)
        prompt = asks.parse_prompt(body)
        text = prompt if isinstance(prompt, str) else front.text_of(prompt)
        if not text:
            raise RefusedError("value", self.empty_prompt, field="prompt", value="")
        voice = self.completion_voice_of(body, ask, name)
        segments = front.segmenter.raw(text)
        self.check_fits(ask, segments, lambda: text)
        return await front.answer(request, ask, segments, voice, name=name)

    def asked(self, body: dict[str, Any], name: str, *, tools: bool) -> Ask:
        """How the answer is wanted. A raw prompt gets neither tools nor thoughts."""
        ask = parse_ask(
            body, name, default_tokens=self.default_tokens, least_tokens=self.least_tokens
        )
        choices = 1 if self.ignores_n else asks.choices(body, MOST_CHOICES)
        top = self.logprobs_of(body, chat=tools)
        ask = replace(ask, choices=choices, top_logprobs=top, salt=self.salt_of(body))
        if not tools:
            return replace(ask, thinking=False)
        functions, wanted = asks.offered_functions(body)
        if asks.flag(body, "ignore_eos") or asks.whole(body, "min_tokens"):
            functions = ()
        return replace(ask, functions=functions, wanted_function=wanted)

    def logprobs_of(self, body: dict[str, Any], *, chat: bool) -> int | None:
        """Alternatives wanted for each token; None: no log-probabilities."""
        return asks.chat_logprobs(body) if chat else asks.completion_logprobs(body)

    def check(self, body: dict[str, Any]) -> None:
        """What the server looks at before all else. Raises `RefusedError`."""

    def check_fits(self, ask: Ask, segments: list[Segment], text: Callable[[], str], /) -> None:
        """What the server looks at of a prompt before it queues. Raises `RefusedError`."""

    def salt_of(self, _: dict[str, Any]) -> str:
        """Prompts with different salts share nothing in the cache."""
        return ""

    def chat_name(self, _: dict[str, Any]) -> str:
        return self._front.name("chatcmpl-", 29)

    def completion_name(self, _: dict[str, Any]) -> str:
        return self._front.name("cmpl-", 24)

    def chat_voice_of(self, _: dict[str, Any], ask: Ask, name: str, /) -> Voice:
        return self.chat_voice(self._front, ask, name)

    def completion_voice_of(self, _: dict[str, Any], ask: Ask, name: str, /) -> Voice:
        return self.completion_voice(self._front, ask, name)


async def _without_a_server(_: web.Request, response: web.StreamResponse) -> None:
    """aiohttp's own name is no part of any dialect."""
    if response.headers.get("Server", "").startswith("Python/"):
        del response.headers["Server"]
