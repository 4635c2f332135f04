"""The server's own tokenizer, where it can be asked over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headroom_bench.errors import TargetError
from headroom_bench.live.probe import Control, json_object

Chat = Sequence[tuple[str, str]]
"""Role and text of each message."""


class Tokenizer(Protocol):
    """Both give nothing where the server does not answer as it should."""

    async def ids(self, text: str) -> list[int]:
        """The tokens of a text, without any that mark its beginning."""
        ...

    async def chat_tokens(self, chat: Chat) -> int | None:
        """Tokens of a whole prompt, its template and the opening of the answer included."""
        ...


class LlamaCppTokenizer:
    """`/tokenize` takes `content`; the template is rendered by `/apply-template`."""

    def __init__(self, control: Control) -> None:
        self._control = control

    async def ids(self, text: str) -> list[int]:
        return await self._ids({"content": text, "add_special": False, "parse_special": False})

    async def chat_tokens(self, chat: Chat) -> int | None:
        response = await self._control.post("/apply-template", {"messages": messages_of(chat)})
        prompt = json_object(response).get("prompt")
        if response.status_code != 200 or not isinstance(prompt, str):
            return None
        marked = {"content": prompt, "add_special": True, "parse_special": True}
        return len(await self._ids(marked)) or None

    async def _ids(self, body: Mapping[str, Any]) -> list[int]:
        response = await self._control.post("/tokenize", body)
        return _whole_numbers(json_object(response)) if response.status_code == 200 else []


class VllmTokenizer:
    """`/tokenize` takes `prompt`, or `messages` to put through the template."""

    def __init__(self, control: Control, model: str) -> None:
        self._control = control
        self._model = model

    async def ids(self, text: str) -> list[int]:
        return _whole_numbers(await self._ask({"prompt": text, "add_special_tokens": False}))

    async def chat_tokens(self, chat: Chat) -> int | None:
        told = await self._ask({"messages": messages_of(chat), "add_generation_prompt": True})
        return len(_whole_numbers(told)) or None

    async def _ask(self, body: Mapping[str, Any]) -> dict[str, Any]:
        response = await self._control.post("/tokenize", {"model": self._model, **body})
        return json_object(response) if response.status_code == 200 else {}


async def tokenizer_of(control: Control, dialect: str, model: str | None) -> Tokenizer | None:
    """The tokenizer of a server; None where it has none for us.

    llama.cpp and vLLM have one, which a plain OpenAI dialect may hide. Ollama, mlx_lm and SGLang
    document none.
    """
    if dialect == "llamacpp":
        found: Tokenizer = LlamaCppTokenizer(control)
    elif dialect in ("vllm", "openai"):
        found = VllmTokenizer(control, model or "default")
    else:
        return None
    try:
        return found if await found.ids("time") else None
    except TargetError:  # a plain server need not answer at all what nobody promised
        if dialect != "openai":
            raise
        return None


def messages_of(chat: Chat) -> list[dict[str, str]]:
    return [{"role": role, "content": text} for role, text in chat]


def _whole_numbers(told: Mapping[str, Any]) -> list[int]:
    tokens = told.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(one, int) for one in tokens):
        return []
    return tokens
