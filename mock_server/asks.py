"""What a client asks for, taken out of a JSON body. Every dialect reads its bodies with these.

Everything here raises `RefusedError` for what it cannot take.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mock_server.answers import call_text
from mock_server.logprobs import MOST
from mock_server.refusals import RefusedError

DEFAULT_ANSWER_TOKENS = 256
"""Where no limit is given the mock's model stops by itself after so many."""
ENDLESS_TOKENS = 1 << 20
"""Where nothing but the context ends an answer."""
_LARGEST = 2**53

Message = tuple[str, str]
"""Role and text."""


@dataclass(frozen=True, slots=True)
class Ask:
    """How an answer is wanted. Sampling parameters are taken and change only which text comes."""

    tokens: int = DEFAULT_ANSWER_TOKENS
    limited: bool = False
    """Whether `tokens` is the asker's limit, or what the model chose."""
    stop: tuple[str, ...] = ()
    stream: bool = False
    choices: int = 1
    include_usage: bool = False
    thinking: bool | None = None
    """Whether to reason first; None: as the server does by itself."""
    functions: tuple[dict[str, Any], ...] = ()
    """The tools that it should call one of."""
    wanted_function: str | None = None
    draw: str = ""
    """Equal prompts with equal draws get equal text."""
    greedy: bool = False
    """Temperature 0."""
    alone: bool = False
    """The server answers it with no other beside it."""
    cache_prompt: bool = True
    salt: str = ""
    """Prompts with different salts share nothing in the cache."""
    progress: bool = False
    top_logprobs: int | None = None
    """Alternatives to tell for each token; None: no log-probabilities at all."""
    ping_s: float | None = None
    """Silence after which its stream gets a comment, where the asker says."""
    settings: dict[str, Any] = field(default_factory=dict)


def parse_json(raw: bytes) -> dict[str, Any]:
    """The body as an object."""
    try:
        parsed = json.loads(raw, parse_constant=_no_constant)
    except RecursionError:
        raise RefusedError("json", "too deeply nested", at=0, said="too deeply nested") from None
    except ValueError as why:
        said = getattr(why, "msg", str(why))
        raise RefusedError("json", str(why), at=getattr(why, "pos", 0), said=said) from None
    if not isinstance(parsed, dict):
        told = f"the body must be a JSON object, but is {kind_of(parsed)}"
        raise RefusedError("type", told, field="", wanted="object", value=parsed)
    return parsed


def _no_constant(name: str) -> float:
    raise ValueError(f"invalid literal; last read: '{name}'")


def number(body: dict[str, Any], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(key, "number", value)
    if value != value or abs(value) > _LARGEST:  # 1e999 is JSON and reads as infinity
        raise RefusedError("value", f"Field '{key}': number out of range", field=key, value=None)
    return value


def whole(body: dict[str, Any], *keys: str) -> int | None:
    """The first of the keys that holds a number, as an integer."""
    found = [number(body, key) for key in keys]
    return next((int(value) for value in found if value is not None), None)


def flag(body: dict[str, Any], key: str, default: bool = False) -> bool:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise wrong_type(key, "boolean", value)
    return value


def table(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type(key, "object", value)
    return value


def text(body: dict[str, Any], key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise wrong_type(key, "string", value)
    return value


def stop_words(body: dict[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise wrong_type("stop", "string or array of strings", value)
    return tuple(words)


def choices(body: dict[str, Any], most: int) -> int:
    """`n`: how many answers are wanted."""
    wanted = whole(body, "n")
    if wanted is not None and not 1 <= wanted <= most:
        told = f"Invalid 'n': must be from 1 to {most}, not {wanted}"
        raise RefusedError("value", told, field="n", value=wanted)
    return wanted or 1


def chat_logprobs(body: dict[str, Any], default: int = 0, most: int = MOST) -> int | None:
    """`logprobs: true` and how many `top_logprobs` (`default`, where it is not said)."""
    top = whole(body, "top_logprobs")
    if top is not None and not 0 <= top <= most:
        told = f"'top_logprobs' must be 0 to {most}"
        raise RefusedError("value", told, field="top_logprobs", value=top)
    if flag(body, "logprobs"):
        return default if top is None else top
    if top:
        told = "'top_logprobs' needs 'logprobs' to be true"
        raise RefusedError("value", told, field="top_logprobs", value=top)
    return None


def completion_logprobs(body: dict[str, Any], key: str = "logprobs") -> int | None:
    """How many alternatives for each token of a completion."""
    top = whole(body, key)
    if top is not None and not 0 <= top <= MOST:
        raise RefusedError("value", f"'{key}' must be 0 to {MOST}", field=key, value=top)
    return top


def is_greedy(body: dict[str, Any]) -> bool:
    return number(body, "temperature") == 0


def draw_of(body: dict[str, Any], request_name: str) -> str:
    """At temperature 0, or where none is given, equal prompts get equal answers; above it each
    request draws anew, or by its `seed`."""
    temperature, seed = number(body, "temperature"), number(body, "seed")
    if not temperature:
        return ""
    return request_name if seed is None or seed < 0 else f"seed {seed:g}"


def parse_messages(body: dict[str, Any]) -> list[Message]:
    """(role, text) of each message, the tools' declarations first."""
    messages = body.get("messages")
    if messages is None:
        raise RefusedError("missing", "'messages' is required", field="messages", value=body)
    if not isinstance(messages, list):
        raise wrong_type("messages", "array", messages)
    if not messages:
        raise RefusedError("value", "'messages' must not be empty", field="messages", value=[])
    turned = [_message(message) for message in messages]
    tools = _list(body, "tools")
    return [("tools", json.dumps(tools)), *turned] if tools else turned


def offered_functions(body: dict[str, Any]) -> tuple[tuple[dict[str, Any], ...], str | None]:
    """The functions of which one is to be called, and the one that is wanted by name.

    With `tool_choice` `auto` a user's message is answered by a call and a tool's result by text,
    so that an agent's loop comes to an end.
    """
    functions: list[dict[str, Any]] = []
    for tool in _list(body, "tools"):
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            told = f"Missing tool function: {json.dumps(tool, separators=(',', ':'))}"
            told += f"; tools = {json.dumps(body['tools'], indent=2)}"
            raise RefusedError("tools", f"Failed to parse tools: {told}", field="tools")
        functions.append(function)
    choice = body.get("tool_choice") or "auto"
    named = choice.get("function") if isinstance(choice, dict) else None
    wanted = named.get("name") if isinstance(named, dict) else None
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    asked_by_user = isinstance(last, dict) and last.get("role") == "user"
    if not functions or choice == "none" or (choice == "auto" and not asked_by_user):
        return (), None
    return tuple(functions), wanted if isinstance(wanted, str) else None


def parse_prompt(body: dict[str, Any]) -> str | list[int]:
    """A raw prompt, as text or token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if prompt is None:
        raise RefusedError("missing", "'prompt' is required", field="prompt", value=body)
    return token_ids(prompt, "prompt")


def token_ids(value: Any, name: str) -> list[int]:
    if isinstance(value, list) and all(type(item) is int for item in value):
        return value
    told = f"'{name}' must be a string or an array of token ids"
    raise RefusedError("type", told, field=name, wanted="string or array of integers", value=value)


def wrong_type(key: str, wanted: str, value: Any) -> RefusedError:
    told = f"Field '{key}': type must be {wanted}, but is {kind_of(value)}"
    return RefusedError("type", told, field=key, wanted=wanted, value=value)


def kind_of(value: Any) -> str:
    """JSON's name for the type of `value`."""
    names = {str: "string", bool: "boolean", dict: "object", list: "array", type(None): "null"}
    return names.get(type(value), "number")


def _list(body: dict[str, Any], key: str) -> list[Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, list):
        raise wrong_type(key, "array", value)
    return value or []


def _message(message: Any) -> Message:
    if not isinstance(message, dict):
        told = f"Expected a message to be an object, but it is {kind_of(message)}"
        raise RefusedError("type", told, field="messages", wanted="object", value=message)
    role = message.get("role")
    if not isinstance(role, str):
        raise RefusedError("missing", "Missing 'role' in message", field="messages.role", value={})
    calls = message.get("tool_calls")
    said = _content(message.get("content"))
    return role, said + "".join(_call(call) for call in calls) if isinstance(calls, list) else said


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return json.dumps(call)
    given = function.get("arguments")
    arguments = given if isinstance(given, str) else json.dumps(given)
    return call_text(str(function.get("name")), arguments)


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_type("content", "string or array", content)
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            told = "unsupported content[].type"
            raise RefusedError("value", told, field="content.type", value=None)
        if not isinstance(part.get("text"), str):
            told = "a text part must hold 'text'"
            raise RefusedError("missing", told, field="content.text", value=part)
        texts.append(part["text"])
    return "\n".join(texts)
