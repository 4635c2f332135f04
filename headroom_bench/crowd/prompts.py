"""Segments turned into text of their length, and into chat messages.

Text is words that a tokenizer holds as one token each, so that a text's length is the number of
its words: exact without asking the server about every prompt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib import resources

from headroom_bench.segments import Segment

SENTENCE_TOKENS = 13
"""Every so many tokens one is a full stop."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words to write with."""

    words: tuple[str, ...]
    tokens_per_word: float = 1.0
    """1 where every word is known to be one token; else an estimate, corrected by `usage`."""
    exact: bool = False


@dataclass(frozen=True, slots=True)
class TemplateTokens:
    """Tokens that a chat template adds around the texts of messages."""

    system: int = 0
    """Around the system message at the start."""
    lone_turn: int = 0
    """Around a first message with no system message before it."""
    turn: int = 0
    """For every other turn: around what the user says, and to open the answer."""


@cache
def common_words() -> tuple[str, ...]:
    """Common English words, nearly all of them one token in today's vocabularies."""
    text = resources.files("headroom_bench.crowd").joinpath("words.txt").read_text("utf-8")
    return tuple(text.split())


def write_text(content_id: str, salt: str, tokens: int, vocabulary: Vocabulary) -> str:
    """Text of `tokens` tokens, a pure function of its arguments; another salt, another text."""
    seed = blake2b(f"{salt}\x1f{content_id}".encode(), digest_size=8).digest()
    chosen = random.Random(seed)
    pieces = max(1, round(tokens / vocabulary.tokens_per_word))
    text: list[str] = []
    for number, word in enumerate(chosen.choices(vocabulary.words, k=pieces)):
        if number % SENTENCE_TOKENS == SENTENCE_TOKENS - 1:
            text.append(".")
        else:
            text.append(f" {word}" if text else word)
    return "".join(text)


def to_messages(
    segments: Sequence[Segment], text_of: Callable[[Segment], str]
) -> list[dict[str, str]]:
    """Chat messages: neighbours with the same role become one message.

    A tool's result goes out as a user message: the script decides the rounds, and a `tool` message
    needs a call that the model may not have made.
    """
    messages: list[dict[str, str]] = []
    for segment in segments:
        role = "user" if segment.role == "tool" else segment.role
        text = text_of(segment)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f" {text}"
        else:
            messages.append({"role": role, "content": text})
    return messages
