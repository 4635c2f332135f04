"""What a llama.cpp client asks for, and the generation settings as the server repeats them."""

from __future__ import annotations

from typing import Any

from mock_server import asks
from mock_server.asks import DEFAULT_ANSWER_TOKENS, ENDLESS_TOKENS, Ask


def parse_ask(body: dict[str, Any], name: str, *, tools: bool = False) -> Ask:
    """`name`: the request's own. `tools`: the route knows tools and thoughts.

    Raises `RefusedError`.
    """
    limit = asks.whole(body, "max_tokens", "max_completion_tokens", "n_predict")
    limit = -1 if limit is None else limit
    asks.one_choice(body)
    stop = asks.stop_words(body)
    stream = asks.flag(body, "stream")
    each_timed = asks.flag(body, "timings_per_token")
    settings = _settings(body, limit, stop, stream, each_timed)
    functions, wanted = asks.offered_functions(body) if tools else ((), None)
    endless = settings["ignore_eos"]
    free = ENDLESS_TOKENS if endless else DEFAULT_ANSWER_TOKENS
    return Ask(
        tokens=limit if limit >= 0 else free,
        limited=limit >= 0 or endless,
        stop=stop,
        stream=stream,
        include_usage=asks.flag(asks.table(body, "stream_options"), "include_usage"),
        thinking=_thinking(body) if tools else False,
        functions=() if endless else functions,
        wanted_function=wanted,
        draw=asks.draw_of(body, name),
        greedy=asks.is_greedy(body),
        cache_prompt=asks.flag(body, "cache_prompt", True),
        progress=asks.flag(body, "return_progress") and stream,
        settings=settings,
    )


def _thinking(body: dict[str, Any]) -> bool | None:
    given = asks.table(body, "chat_template_kwargs").get("enable_thinking")
    return given if isinstance(given, bool) else None


def _settings(
    body: dict[str, Any], limit: int, stop: tuple[str, ...], stream: bool, each_timed: bool
) -> dict[str, Any]:
    told = default_settings()
    for key in ("seed", "temperature", "top_k", "top_p", "min_p"):
        value = asks.number(body, key)
        if value is not None:
            told[key] = type(told[key])(value)
    return told | {
        "stop": list(stop),
        "max_tokens": limit,
        "n_predict": limit,
        "ignore_eos": asks.flag(body, "ignore_eos"),
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
