"""What to write prompts with, so that the server's own tokenizer counts what was asked for."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Protocol

from headroom_bench.crowd.phrases import PHRASES
from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import (
    LINE_MARK,
    Phrase,
    Vocabulary,
    Writer,
    common_numbers,
    common_words,
    guessed_vocabulary,
    phrase_of,
)
from headroom_bench.live.tokenizer import Chat, Tokenizer

_LEAST_WORDS = 100
_CHECKED_TOKENS = (40, 150, 700)
"""Lengths of the texts on which a vocabulary is tried."""
_SAMPLE_TOKENS = 300
"""Least guessed length of the texts that a server counts: a slow one reads them in seconds."""
_LEAST_RATIO = 1 / 3
"""Counted over guessed tokens; beyond it the count is of something else than our text."""


async def vocabulary_of(tokenizer: Tokenizer | None, kinds: Iterable[str]) -> Vocabulary:
    """Words that the tokenizer holds as one token each, and phrases of the kinds with their sizes.

    What does not add up on whole texts is left out: a kind is then written as prose, prose as bare
    words. Where not even those add up, or nothing can be asked, all sizes are estimates.
    """
    if tokenizer is None:
        return guessed_vocabulary()
    words = await _single_words(tokenizer)
    if len(words) < _LEAST_WORDS:
        return guessed_vocabulary()
    mark = len(await tokenizer.ids(words[0] + LINE_MARK + words[0])) - 2
    numbers = await _equal_numbers(tokenizer)
    vocabulary = Vocabulary(words, numbers, {}, mark, "exact")
    if not await _adds_up(tokenizer, vocabulary, "prose"):
        return guessed_vocabulary()
    for kind in ("prose", *sorted(set(kinds) - {"prose"})):
        sized = await _sized(tokenizer, vocabulary, kind)
        more = replace(vocabulary, phrases={**vocabulary.phrases, kind: sized})
        if sized and await _adds_up(tokenizer, more, kind):
            vocabulary = more
    return vocabulary


async def _single_words(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Words that are one token after a blank as well as at the start of a line."""
    words = common_words()
    inside, starting = await asyncio.gather(
        _token_counts(tokenizer, ", ", words), _token_counts(tokenizer, "\n", words)
    )
    pairs = zip(words, inside, starting, strict=False)
    return tuple(word for word, after, first in pairs if after == first == 1)


async def _equal_numbers(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Numbers that have as many tokens as most."""
    numbers = common_numbers()
    counts = await _token_counts(tokenizer, "\n", numbers)
    if not counts:
        return ()
    usual = Counter(counts).most_common(1)[0][0]
    return tuple(n for n, count in zip(numbers, counts, strict=True) if count == usual)


async def _token_counts(tokenizer: Tokenizer, mark: str, texts: Sequence[str]) -> list[int]:
    """Tokens of each text after `mark`, from one answer; empty where the marks cannot be told
    from the rest: a mark is one token, and is there as often as there are texts."""
    ids = await tokenizer.ids("".join(["time", *(mark + text for text in texts)]))
    if not ids:
        return []
    common, times = Counter(ids).most_common(1)[0]
    if times != len(texts):
        return []
    counts = [0]
    for one in ids:
        if one == common:
            counts.append(0)
        else:
            counts[-1] += 1
    return counts[1:]


async def _sized(tokenizer: Tokenizer, vocabulary: Vocabulary, kind: str) -> tuple[Phrase, ...]:
    """The phrases whose number of tokens does not depend on what fills them."""
    before, after = ("time.", " time") if kind == "prose" else (f"time{LINE_MARK}", "time")
    frame = len(await tokenizer.ids(before + after))
    chance = random.Random(kind)

    async def tokens(phrase: Phrase) -> int:
        words = chance.choices(vocabulary.words, k=len(phrase.slots))
        numbers = chance.choices(vocabulary.numbers or ("100",), k=len(phrase.slots))
        text = phrase.filled(iter(words), iter(numbers))
        return len(await tokenizer.ids(before + text + after)) - frame

    async def sized(text: str) -> Phrase:
        phrase = phrase_of(text, 0)
        first, second = await asyncio.gather(tokens(phrase), tokens(phrase))
        return phrase_of(text, first if first == second else 0)

    found = await asyncio.gather(*(sized(text) for text in PHRASES.get(kind, ())))
    return tuple(phrase for phrase in found if phrase.tokens > 0)


async def _adds_up(tokenizer: Tokenizer, vocabulary: Vocabulary, kind: str) -> bool:
    """Whether written texts really have the lengths that were asked for."""
    writer = Writer(vocabulary, "check")
    texts = [writer.write(kind, tokens) for tokens in _CHECKED_TOKENS]
    counted = await asyncio.gather(*(tokenizer.ids(text) for text in texts))
    return [len(ids) for ids in counted] == list(_CHECKED_TOKENS)


async def template_of(tokenizer: Tokenizer | None) -> TemplateTokens:
    """What the server's chat template adds, where it can be asked; else to be learnt."""
    if tokenizer is None:
        return TemplateTokens()
    found = await asyncio.gather(*(_template_extra(tokenizer, chat) for chat in _TEMPLATE_CHATS))
    return _template(*found)


_SYSTEM, _USER, _ANSWER = ("system", "time"), ("user", "time"), ("assistant", "time")
_TEMPLATE_CHATS: tuple[Chat, ...] = ((_USER,), (_SYSTEM, _USER), (_SYSTEM, _USER, _ANSWER, _USER))


def _template(alone: int | None, first: int | None, again: int | None) -> TemplateTokens:
    """From what it adds to each of `_TEMPLATE_CHATS`."""
    if first is None or alone is None or again is None:
        return TemplateTokens()
    turn = max(0, again - first)
    return TemplateTokens(max(0, first - turn), alone, turn, known=True)


async def _template_extra(tokenizer: Tokenizer, chat: Chat) -> int | None:
    """Tokens of a rendered prompt beyond those of its messages' texts."""
    whole = await tokenizer.chat_tokens(chat)
    texts = await asyncio.gather(*(tokenizer.ids(text) for _, text in chat))
    return whole - sum(len(ids) for ids in texts) if whole and all(texts) else None


class PromptCounter(Protocol):
    async def chat_tokens(self, chat: Chat) -> int | None:
        """Tokens of a whole prompt; None where the server does not say."""
        ...


async def counted_by(
    counter: PromptCounter, kinds: Set[str], salt: str
) -> tuple[Vocabulary, TemplateTokens]:
    """What to write with where the server has no tokenizer for us, but says how long prompts were:
    phrases as long as those of a whole text of their kind were counted.

    Asks once for each kind and for each of a few short chats, one after the other, since small
    servers serve one at a time. What is not answered stays a guess.
    """
    extras: list[int | None] = []
    for chat in _TEMPLATE_CHATS:
        counted = await counter.chat_tokens(chat)
        if counted is None:
            return guessed_vocabulary(), TemplateTokens()
        extras.append(counted - len(chat))  # each text is one token
    template = _template(*extras)
    vocabulary, chance = guessed_vocabulary(), random.Random(salt)
    ratios = {}
    for kind in sorted({"prose", *kinds} & vocabulary.phrases.keys()):
        text, guessed = _sample(vocabulary, kind, chance)
        counted = await counter.chat_tokens([("user", text)])
        ratio = ((counted or 0) - template.lone_turn) / guessed
        if not _LEAST_RATIO < ratio < 1 / _LEAST_RATIO:
            return vocabulary, template
        ratios[kind] = ratio
    return vocabulary.resized(ratios), template


def _sample(vocabulary: Vocabulary, kind: str, chance: random.Random) -> tuple[str, int]:
    """Every phrase of a kind as often as the others, and their guessed tokens together."""
    phrases = vocabulary.phrases[kind]
    each = sum(phrase.tokens for phrase in phrases)
    times = -(-_SAMPLE_TOKENS // each)
    text = "".join(
        phrase.filled(
            iter(chance.choices(vocabulary.words, k=len(phrase.slots))),
            iter(chance.choices(vocabulary.numbers, k=len(phrase.slots))),
        )
        for phrase in phrases * times
    )
    return text, times * each
