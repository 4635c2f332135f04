"""llama.cpp's `timings` of one request."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from mock_server.jobs import Job

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
    predicted_per_second: float
    draft_n: int
    draft_n_accepted: int

    def as_sent(self) -> dict[str, float | int]:
        """Drafts are told only where there were any."""
        told = asdict(self)
        if not self.draft_n:
            del told["draft_n"], told["draft_n_accepted"]
        return told


def timings(job: Job, *, over_all: bool = False) -> Timings:
    """As far as the job got. Milliseconds are rounded to the microsecond, as the server's are.

    `over_all`: rates divide by n (builds up to b10229), else by n - 1, for the first token came out
    of the prompt's pass.
    """
    read, generated = job.read_tokens, job.generated
    prompt_ms = round(job.prompt_s * 1e3, 3)
    predicted_ms = round(job.decode_s * 1e3, 3)
    steps = generated if over_all else max(0, generated - 1)
    if generated == 1:
        predicted_ms = _LEAST_MS
    return Timings(
        cache_n=job.cached,
        prompt_n=read,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=prompt_ms / read if read else 0.0,
        prompt_per_second=1e3 / prompt_ms * read if prompt_ms else 0.0,
        predicted_n=generated,
        predicted_ms=predicted_ms,
        predicted_per_token_ms=predicted_ms / steps if steps else 0.0,
        predicted_per_second=1e3 / predicted_ms * steps if steps and predicted_ms else 0.0,
        draft_n=job.drafted,
        draft_n_accepted=job.accepted,
    )
