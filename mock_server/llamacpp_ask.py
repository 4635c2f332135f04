"""What a llama.cpp client asks for, checked as the server checks it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

DEFAULT_ANSWER_TOKENS = 256
"""Where no limit is given the mock's model stops by itself after so many."""


class RefusedError(Exception):
    """Answered as an error object with this status."""

    def __init__(
        self, status: int, message: str, kind: str = "invalid_request_error", **more: int
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.more = more

    def body(self) -> dict[str, Any]:
        error = {"code": self.status, "message": str(self), "type": self.kind}
        return {"error": error | self.more}


@dataclass(frozen=True, slots=True)
class Ask:
    """How an answer is wanted. Sampling parameters are taken and change nothing."""

    tokens: int
    limited: bool
    """Whether `tokens` is the asker's limit, or what the model chose."""
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    each_timed: bool
    progress: bool
    cache_prompt: bool
    return_tokens: bool
    settings: dict[str, Any]
    """The generation settings as the server repeats them."""


def parse_json(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `RefusedError`."""
    try:
        parsed = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        said = "too deeply nested" if isinstance(why, RecursionError) else str(why)
        raise RefusedError(400, f"[json.exception.parse_error.101] parse error: {said}") from None
    if not isinstance(parsed, dict):
        raise RefusedError(400, f"the body must be a JSON object, but is {_kind(parsed)}")
    return parsed


def _no_constant(name: str) -> float:
    raise ValueError(f"invalid literal; last read: '{name}'")


def parse_ask(body: dict[str, Any]) -> Ask:
    """Raises `RefusedError` for a wrong type."""
    limits = [_number(body, key) for key in ("max_tokens", "max_completion_tokens", "n_predict")]
    limit = next((int(value) for value in limits if value is not None), -1)
    if (_number(body, "n") or 1) > 1:
        raise RefusedError(400, "this mock answers one choice a request: 'n' must be 1")
    options = _typed(body, "stream_options", dict, "object") or {}
    stop = _stop(body)
    stream = _flag(body, "stream", False)
    each_timed = _flag(body, "timings_per_token", False)
    return Ask(
        tokens=limit if limit >= 0 else DEFAULT_ANSWER_TOKENS,
        limited=limit >= 0,
        stop=stop,
        stream=stream,
        include_usage=_flag(options, "include_usage", False),
        each_timed=each_timed,
        progress=_flag(body, "return_progress", False),
        cache_prompt=_flag(body, "cache_prompt", True),
        return_tokens=_flag(body, "return_tokens", False),
        settings=_settings(body, limit, stop, stream, each_timed),
    )


def parse_messages(body: dict[str, Any]) -> list[tuple[str, str]]:
    """(role, text) of each message, the tools' declarations first. Raises `RefusedError`."""
    if body.get("messages") is None:
        raise RefusedError(400, "'messages' is required")
    messages = body["messages"]
    if not isinstance(messages, list):
        raise RefusedError(400, "Expected 'messages' to be an array")
    if not messages:
        raise RefusedError(400, "'messages' must not be empty")
    turned = [_message(message) for message in messages]
    tools = _typed(body, "tools", list, "array")
    return [("tools", json.dumps(tools)), *turned] if tools else turned


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict):
        raise RefusedError(400, f"Expected a message to be an object, but it is {_kind(message)}")
    role = message.get("role")
    if not isinstance(role, str):
        raise RefusedError(400, "Missing 'role' in message")
    text = _content(message.get("content"))
    calls = message.get("tool_calls")
    return role, text + json.dumps(calls) if calls else text


def _content(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RefusedError(400, f"Invalid 'content' type: {_kind(content)}")
    texts: list[str] = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise RefusedError(400, "unsupported content[].type")
        if not isinstance(part.get("text"), str):
            raise RefusedError(400, "a text part must hold 'text'")
        texts.append(part["text"])
    return "\n".join(texts)


def parse_prompt(body: dict[str, Any]) -> str | list[int]:
    """A raw prompt, as text or token ids. Raises `RefusedError`."""
    prompt = body.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if prompt is None:
        raise RefusedError(400, "'prompt' is required")
    return token_ids(prompt, "prompt")


def token_ids(value: Any, name: str) -> list[int]:
    """Raises `RefusedError` where `value` is not a list of token ids."""
    if isinstance(value, list) and all(type(item) is int for item in value):
        return value
    raise RefusedError(400, f"'{name}' must be a string or an array of token ids")


def _number(body: dict[str, Any], key: str) -> float | None:
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(key, "number", value)
    if value != value or abs(value) > 2**53:  # 1e999 is JSON and reads as infinity
        raise RefusedError(400, f"Field '{key}': number out of range")
    return value


def _flag(body: dict[str, Any], key: str, default: bool) -> bool:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(key, "boolean", value)
    return value


def _typed(body: dict[str, Any], key: str, wanted: type, name: str) -> Any:
    value = body.get(key)
    if value is not None and not isinstance(value, wanted):
        raise _wrong(key, name, value)
    return value


def _stop(body: dict[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    if value is None:
        return ()
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise _wrong("stop", "string or array of strings", value)
    return tuple(words)


def _wrong(key: str, wanted: str, value: Any) -> RefusedError:
    told = f"[json.exception.type_error.302] type must be {wanted}, but is {_kind(value)}"
    return RefusedError(400, f"Field '{key}': {told}")


def _kind(value: Any) -> str:
    names = {str: "string", bool: "boolean", dict: "object", list: "array", type(None): "null"}
    return names.get(type(value), "number")


def _settings(
    body: dict[str, Any], limit: int, stop: tuple[str, ...], stream: bool, each_timed: bool
) -> dict[str, Any]:
    told = default_settings()
    for key in ("seed", "temperature", "top_k", "top_p", "min_p"):
        value = _number(body, key)
        if value is not None:
            told[key] = type(told[key])(value)
    return told | {
        "stop": list(stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": _flag(body, "ignore_eos", False),
        "stream": stream,
        "timings_per_token": each_timed,
    }


def default_settings() -> dict[str, Any]:
    """llama-server's generation settings, in the order in which it lists them."""
    return {
        "seed": 4294967295,
        "temperature": 0.800000011920929,
        "dynatemp_range": 0.0,
        "dynatemp_exponent": 1.0,
        "top_k": 40,
        "top_p": 0.949999988079071,
        "min_p": 0.05000000074505806,
        "top_n_sigma": -1.0,
        "xtc_probability": 0.0,
        "xtc_threshold": 0.10000000149011612,
        "typical_p": 1.0,
        "repeat_last_n": 64,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "dry_multiplier": 0.0,
        "dry_base": 1.75,
        "dry_allowed_length": 2,
        "dry_penalty_last_n": 64,
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
        "mirostat": 0,
        "mirostat_tau": 5.0,
        "mirostat_eta": 0.10000000149011612,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.8999999761581421,
        "stop": [],
        "max_tokens": -1,
        "n_predict": -1,
        "n_keep": 0,
        "n_discard": 0,
        "ignore_eos": False,
        "stream": False,
        "logit_bias": [],
        "n_probs": 0,
        "min_keep": 0,
        "grammar": "",
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": "deepseek",
        "reasoning_in_content": False,
        "generation_prompt": "",
        "samplers": [
            "penalties",
            "dry",
            "top_n_sigma",
            "top_k",
            "typ_p",
            "top_p",
            "min_p",
            "xtc",
            "temperature",
        ],
        "speculative.types": "none",
        "timings_per_token": False,
        "post_sampling_probs": False,
        "backend_sampling": False,
        "lora": [],
    }


_ONLY_NATIVE = (
    "dry_sequence_breakers",
    "stop",
    "logit_bias",
    "grammar",
    "grammar_lazy",
    "grammar_triggers",
    "preserved_tokens",
)


def short_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as `/props` and `/slots` list them."""
    return {key: value for key, value in settings.items() if key not in _ONLY_NATIVE}
