"""Ollama's silent cut: what is thrown away of a prompt that does not fit, HTTP 200 all the same."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.box import BoxRequest
from headroom_bench.box.overflow import cut_to_fit
from headroom_bench.segments import Segment, total_tokens


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt that fits."""

    segments: list[Segment]
    prompt_tokens: int
    """Before the cut."""
    runner_cut: bool = False
    """What was left was still too long, so the runner cut inside a message."""

    @property
    def lost_tokens(self) -> int:
        return self.prompt_tokens - total_tokens(self.segments)


def fit(segments: list[Segment], ctx: int) -> Cut:
    """The prompt, cut by the box's rule for a context of `ctx` tokens."""
    before = total_tokens(segments)
    if before < ctx:
        return Cut(segments, before)
    kept = list(cut_to_fit(BoxRequest("", tuple(segments), 0, ""), ctx))
    whole = {id(segment) for segment in segments}
    return Cut(kept, before, any(id(segment) not in whole for segment in kept))
