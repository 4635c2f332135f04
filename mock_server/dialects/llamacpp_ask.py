"""What a llama.cpp client asks for, and the generation settings as the server repeats them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mock_server import asks
from mock_server.asks import DEFAULT_ANSWER_TOKENS, ENDLESS_TOKENS, Ask
from mock_server.dialects.llamacpp_builds import Build
from mock_server.logprobs import MOST
from mock_server.refusals import RefusedError


def parse_ask(
    body: dict[str, Any], name: str, *, slots: int, build: Build, chat: bool = False
) -> Ask:
    """`name`: the request's own. `slots`: the server's, of which each choice takes one. `chat`: the
    route knows tools and thoughts.

    Raises `RefusedError`.
    """
    limit = asks.whole(body, "max_tokens", "max_completion_tokens", "n_predict")
    limit = -1 if limit is None else limit
    stop = asks.stop_words(body)
    stream = asks.flag(body, "stream")
    top_logprobs = _logprobs(body, chat)
    endless = asks.flag(body, "ignore_eos")
    settings = _sampling(body, build) | {
        "stop": list(stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": endless,
        "stream": stream,
        "n_probs": top_logprobs or 0,
        "timings_per_token": asks.flag(body, "timings_per_token"),
    }
    functions, wanted = asks.offered_functions(body) if chat else ((), None)
    free = ENDLESS_TOKENS if endless else DEFAULT_ANSWER_TOKENS
    return Ask(
        tokens=limit if limit >= 0 else free,
        limited=limit >= 0 or endless,
        stop=stop,
        stream=stream,
        choices=_choices(body, slots),
        include_usage=asks.flag(asks.table(body, "stream_options"), "include_usage"),
        thinking=_thinking(body) if chat else False,
        functions=() if endless else functions,
        wanted_function=wanted,
        draw=asks.draw_of(body, name),
        greedy=asks.is_greedy(body),
        cache_prompt=asks.flag(body, "cache_prompt", True),
        progress=asks.flag(body, "return_progress") and stream,
        top_logprobs=top_logprobs,
        ping_s=asks.whole(body, "sse_ping_interval"),
        settings=settings,
    )


def _thinking(body: dict[str, Any]) -> bool | None:
    given = asks.table(body, "chat_template_kwargs").get("enable_thinking")
    return given if isinstance(given, bool) else None


def _logprobs(body: dict[str, Any], chat: bool) -> int | None:
    """A chat says `logprobs: true` and `top_logprobs`, else 20; other routes a number."""
    if chat:
        return asks.chat_logprobs(body, default=MOST)
    key = "n_probs" if "n_probs" in body else "logprobs"
    return asks.completion_logprobs(body, key) or None


def _choices(body: dict[str, Any], slots: int) -> int:
    key = "n_cmpl" if "n_cmpl" in body else "n"
    wanted = asks.whole(body, key) or 1
    if wanted > slots:
        told = "n_cmpl cannot be greater than the number of slots, please increase -np"
        raise RefusedError("value", told, field=key, value=wanted)
    return max(1, wanted)


def _sampling(body: dict[str, Any], build: Build) -> dict[str, Any]:
    told = build.settings(default_settings())
    for key in ("seed", "temperature", "top_k", "top_p", "min_p"):
        value = asks.number(body, key)
        if value is not None:
            told[key] = type(told[key])(value)
    return told


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


def short_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as `/props` and `/slots` list them."""
    return {key: value for key, value in settings.items() if key not in _ONLY_NATIVE}
