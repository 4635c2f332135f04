"""What really happened to a request, for a prediction beside a measurement."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.segments import Segment, total_tokens


@dataclass(frozen=True, slots=True)
class Lengths:
    """What one measured request was. Token counts are None where nobody told."""

    ok: bool
    prompt_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    lasted_s: float | None
    """From wanting to ask until its end."""
    served: bool = True
    """Where it failed: the server worked on it until then, and did not turn it away."""


def as_measured(segments: tuple[Segment, ...], measured: Lengths) -> tuple[Segment, ...]:
    """The prompt with its newest segment resized so that the whole has the measured length."""
    if measured.prompt_tokens is None:
        return segments
    newest = segments[-1]
    tokens = newest.tokens + measured.prompt_tokens - total_tokens(segments)
    return (*segments[:-1], newest.resized(max(1, tokens)))
