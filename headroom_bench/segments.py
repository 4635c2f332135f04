"""A prompt as a list of segments: the same idea in every world.

The simulated box matches segments to find what its prompt cache holds, the live world turns them
into text of that many tokens, the mock server turns received messages back into them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

HASH_BLOCK_TOKENS = 16
"""Tokens covered by one entry of `Segment.blocks`."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a prompt. Equal `content_id` and `tokens` means equal text."""

    name: str
    """What it is to a person: system, tools, ask, answer, tool_result."""
    role: str
    """The chat role that carries it: system, user, assistant or tool."""
    kind: str
    """The kind of text the live world writes for it: prose, schema, code, log."""
    content_id: str
    tokens: int
    blocks: tuple[int, ...] = ()
    """Chained hashes of the text's 16-token blocks, where text is known (mock server)."""

    def resized(self, tokens: int) -> Segment:
        return Segment(self.name, self.role, self.kind, self.content_id, tokens, self.blocks)


_tokens_of = attrgetter("tokens")


def total_tokens(segments: Sequence[Segment]) -> int:
    return sum(map(_tokens_of, segments))


def shared_prefix_tokens(cached: Sequence[Segment], asked: Sequence[Segment]) -> int:
    """Tokens at the start of `asked` that `cached` holds too.

    Whole segments while they are equal, then whole 16-token blocks inside the first pair that
    differs (where both carry block hashes).
    """
    tokens = 0
    for have, want in zip(cached, asked, strict=False):
        if have.content_id == want.content_id and have.tokens == want.tokens:
            tokens += want.tokens
            continue
        if have.blocks:  # simulated prompts have none, and are compared ten times each
            for ours, theirs in zip(have.blocks, want.blocks, strict=False):
                if ours != theirs:
                    break
                tokens += HASH_BLOCK_TOKENS
        break
    return tokens
