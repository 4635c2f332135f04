"""What really happened to a request, for a prediction beside a measurement."""

from __future__ import annotations

from collections.abc import Mapping
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


class Replay:
    """A measured run's lengths, and the sizes of its texts that follow from them.

    A server counts a prompt as a whole. Texts that were sent before keep their size, an answer has
    the tokens that were counted when it was written, and the rest is shared by what is new, in
    proportion to what was asked for: where a server has no tokenizer to ask, a new system prompt
    misses its size by the same share as the question that comes with it.
    """

    def __init__(self, lengths: Mapping[str, Lengths]) -> None:
        self._lengths = lengths
        self._sizes: dict[str, int] = {}

    def of(self, request_id: str) -> Lengths | None:
        return self._lengths.get(request_id)

    def segments(self, asked: tuple[Segment, ...], measured: Lengths) -> tuple[Segment, ...]:
        """The prompt resized so that the whole has the measured length."""
        if measured.prompt_tokens is None:
            return asked
        sizes = self._sizes
        new = [s for s in asked if s.content_id not in sizes and s.role != "assistant"]
        kept = [sizes.get(s.content_id, s.tokens) for s in asked if s not in new]
        rest = measured.prompt_tokens - sum(kept)
        for segment, tokens in zip(new, _shares(rest, [s.tokens for s in new]), strict=True):
            sizes[segment.content_id] = tokens
        resized = tuple(s.resized(sizes.get(s.content_id, s.tokens)) for s in asked)
        off = measured.prompt_tokens - total_tokens(resized)  # nothing new, or no room for it
        newest = resized[-1]
        return (*resized[:-1], newest.resized(max(1, newest.tokens + off)))


def _shares(total: int, parts: list[int]) -> list[int]:
    """`total` in whole numbers above zero, near enough in proportion to `parts`; ones where it is
    too small."""
    shares, asked, given = [], 0, 0
    for part in parts:
        asked += part
        upto = round(max(0, total) * asked / sum(parts))
        shares.append(max(1, upto - given))
        given = upto
    for _ in range(min(sum(shares) - total, sum(shares) - len(parts))):
        shares[shares.index(max(shares))] -= 1
    return shares
