"""Ollama's silent cut: what is thrown away of a prompt that does not fit, HTTP 200 all the same.

A chat loses its oldest messages (system messages stay) until the rest fits. Where a single message
is still too long, the runner keeps the first tokens and the end, `num_ctx / 2 + 2` in all.
"""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.segments import Segment, total_tokens
from mock_server.asks import Message
from mock_server.prompts import Segmenter, render
from mock_server.tokens import split

KEPT_AT_START = 4
"""`num_keep` where the request does not say."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A prompt that fits."""

    segments: list[Segment]
    lost_tokens: int
    dropped: int = 0
    """Whole messages that are gone."""
    runner_cut: bool = False
    """The runner cut inside a message."""


def left_after_cut(ctx: int) -> int:
    """Tokens that a prompt has once the runner has cut it for a context of `ctx`."""
    return ctx // 2 + 2


def fit_chat(segmenter: Segmenter, messages: list[Message], ctx: int, keep: int) -> Cut:
    """The chat, cut for a context of `ctx` tokens."""
    whole = segmenter.chat(messages)
    if total_tokens(whole) <= ctx:
        return Cut(whole, 0)
    system = [message for message in messages if message[0] == "system"]
    others = [message for message in messages if message[0] != "system"]
    for dropped in range(1, len(others)):
        kept = segmenter.chat([*system, *others[dropped:]])
        if total_tokens(kept) <= ctx:
            return Cut(kept, total_tokens(whole) - total_tokens(kept), dropped)
    last = [*system, *others[-1:]]
    cut = _cut_text(segmenter, render(last), ctx, keep)
    lost = total_tokens(whole) - total_tokens(cut)
    return Cut(cut, lost, max(0, len(others) - 1), runner_cut=True)


def fit_text(segmenter: Segmenter, text: str, ctx: int, keep: int) -> Cut:
    """The raw prompt, cut for a context of `ctx` tokens."""
    whole = segmenter.raw(text)
    if total_tokens(whole) <= ctx:
        return Cut(whole, 0)
    cut = _cut_text(segmenter, text, ctx, keep)
    return Cut(cut, total_tokens(whole) - total_tokens(cut), runner_cut=True)


def _cut_text(segmenter: Segmenter, text: str, ctx: int, keep: int) -> list[Segment]:
    pieces = split(text)
    left = left_after_cut(ctx)
    keep = min(max(0, keep), left - 1)
    return [segmenter.of_pieces([*pieces[:keep], *pieces[keep - left :]])]
