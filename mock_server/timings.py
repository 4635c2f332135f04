"""llama.cpp's `timings` of one request, by the rules of b10441 and later."""

from __future__ import annotations

from dataclasses import dataclass

_LEAST_MS = 0.001
"""What the server reports as generation time while there is only one token."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Tokens and milliseconds of one request. Fields in the order in which they are sent."""

    cache_n: int
    prompt_n: int
    """Prompt tokens that were read, the cached ones not among them."""
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    """From the first token to the last."""
    predicted_per_token_ms: float
    """Over one token less than were generated: the first came out of the prompt's pass."""
    predicted_per_second: float


def timings(cached: int, read: int, prompt_s: float, generated: int, decode_s: float) -> Timings:
    """From tokens and seconds. Milliseconds are rounded to the microsecond, as the server's are."""
    prompt_ms = round(prompt_s * 1e3, 3)
    predicted_ms = round(decode_s * 1e3, 3)
    steps = max(0, generated - 1)
    if generated and not steps:
        predicted_ms = _LEAST_MS
    return Timings(
        cache_n=cached,
        prompt_n=read,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / read if read else 0.0,
        prompt_per_second=1e3 / prompt_ms * read if prompt_ms else 0.0,
        predicted_n=generated,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / steps if steps else 0.0,
        predicted_per_second=1e3 / predicted_ms * steps if steps and predicted_ms else 0.0,
    )
