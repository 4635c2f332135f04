"""What differs between servers in what we send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CHAT_PATH = "/v1/chat/completions"

_CAN_FORCE = {
    "llamacpp": ("ignore_eos",),
    "vllm": ("ignore_eos", "min_tokens"),
    "sglang": ("ignore_eos", "min_tokens"),
}
"""Request fields with which a server can be made to write exactly `max_tokens`."""


_RUNNING_COUNTS: dict[str, dict[str, Any]] = {
    "llamacpp": {"timings_per_token": True},
    "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
}
"""Request fields that make every event say how many tokens have come: events are not tokens (a
token may show no text yet, one event may hold several)."""


def can_force_length(dialect: str) -> bool:
    return dialect in _CAN_FORCE


def chat_body(
    messages: Sequence[Mapping[str, str]],
    max_tokens: int,
    model: str,
    dialect: str,
    *,
    force: bool = False,
    more: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The JSON body of a streaming chat request that asks for its usage.

    `force`: exactly `max_tokens` are wanted. `more`: a target's own fields; None leaves out one
    that would be sent. No `seed`: some servers then run requests one by one.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": messages,
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_RUNNING_COUNTS.get(dialect, {}),
    }
    if force:
        for field in _CAN_FORCE.get(dialect, ()):
            body[field] = True if field == "ignore_eos" else max_tokens
    body |= more or {}
    return {name: value for name, value in body.items() if value is not None}
