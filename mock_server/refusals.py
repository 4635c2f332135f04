"""Why a request is refused, before any dialect has put it into its own words."""

from __future__ import annotations

from typing import Any, Literal

Reason = Literal[
    "json",  # the body is no JSON
    "type",  # a field has the wrong type
    "value",  # a field's value cannot be
    "missing",  # a field is not there
    "too_long",  # the prompt does not fit
    "too_large",  # the body does not fit
    "unauthorized",
    "loading",
    "route",  # no such route
    "model",  # no such model
    "tools",  # a tool is no function
    "unsupported",
    "failed",  # the server gave up
]


class RefusedError(Exception):
    """A request that is answered with an error. What a dialect may want to tell:

    `field` and `value` of what is wrong, the `wanted` type, `prompt_tokens` and `ctx` in tokens,
    `at` (the letter where the JSON breaks).
    """

    def __init__(self, reason: Reason, message: str, **told: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.told = told
