"""Filler text of a given number of tokens, that looks like its kind and shares no beginning.

A text is put together from phrases whose tokens are known, and made up to its length with words of
one token each: exact without asking the server about every prompt.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Literal

from headroom_bench.crowd.phrases import NUMBER, PHRASES, WORD
from headroom_bench.seeds import seed_of

SENTENCE_TOKENS = 13
"""Where words stand alone every so many tokens one is a full stop."""
OPENING_WORDS = 3
Sizes = Literal["exact", "counted", "guessed"]
"""How the sizes of words and phrases are known: each from the server's own tokenizer; by kind, from
what the server counted for a whole text; or not."""
LINE_MARK = ":\n"
"""Ends the opening words of kinds whose phrases are lines."""

_PIECE = re.compile(r" ?[A-Za-z]+| ?[0-9]{1,3}| ?[!-/:-@\[-`{-~]{1,3}|\s+|[^\x00-\x7f]", re.ASCII)
_PART = 1000
"""Phrases, or sentences of bare words, that are written at a stretch."""
_LONG_WORD = 8
"""Letters that one token of a longer word holds, about."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """One phrase with its size."""

    pattern: str
    """With `%s` for each slot."""
    slots: str
    """One WORD or NUMBER for each, in order."""
    tokens: int

    def filled(self, words: Iterable[str], numbers: Iterable[str]) -> str:
        return _filled(self.pattern, self.slots, words, numbers)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What to write with."""

    words: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    phrases: Mapping[str, tuple[Phrase, ...]] = field(default_factory=dict)
    """By kind. A kind that has none is written as prose, prose that has none as bare words."""
    mark_tokens: int = 2
    """Tokens of LINE_MARK after a word."""
    sizes: Sizes = "guessed"

    @property
    def exact(self) -> bool:
        return self.sizes == "exact"

    def resized(self, ratios: Mapping[str, float]) -> Vocabulary:
        """With phrases of each kind so many times as long as they were thought to be."""
        phrases = {
            kind: _resized(known, ratios.get(kind, 1.0)) for kind, known in self.phrases.items()
        }
        return replace(self, phrases=phrases, sizes="counted")


@cache
def common_words() -> tuple[str, ...]:
    """Common English words, nearly all of them one token in today's vocabularies."""
    text = resources.files("headroom_bench.crowd").joinpath("words.txt").read_text("utf-8")
    return tuple(text.split())


@cache
def common_numbers() -> tuple[str, ...]:
    """Numbers of three digits."""
    return tuple(str(number) for number in range(101, 1000, 7))


@cache
def guessed_vocabulary() -> Vocabulary:
    """What to write with where the server has no tokenizer for us: sizes are estimates."""
    phrases = {
        kind: tuple(phrase_of(text, _estimated(text)) for text in texts)
        for kind, texts in PHRASES.items()
    }
    return Vocabulary(common_words(), common_numbers(), phrases)


def _resized(phrases: Sequence[Phrase], ratio: float) -> tuple[Phrase, ...]:
    """In whole tokens, rounded so that they are right together: they are drawn alike often."""
    found = []
    thought = given = 0
    for phrase in phrases:
        thought += phrase.tokens
        tokens = max(1, round(thought * ratio) - given)
        given += tokens
        found.append(replace(phrase, tokens=tokens))
    return tuple(found)


def _estimated(phrase: str) -> int:
    return estimate_tokens(phrase.replace(WORD, "word").replace(NUMBER, "100"))


def phrase_of(text: str, tokens: int) -> Phrase:
    """A phrase of `phrases.py` with its size."""
    slots = "".join(letter for letter in text if letter in WORD + NUMBER)
    pattern = text.replace("%", "%%").replace(WORD, "%s").replace(NUMBER, "%s")
    return Phrase(pattern, slots, tokens)


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is: a word, three digits, up to three signs, or one blank
    stretch make one each, longer words and other scripts more. Estimated: on English and code
    within about a quarter of today's tokenizers."""
    return sum(1 + (len(piece) - 1) // (_LONG_WORD + 1) for piece in _PIECE.findall(text))


class Writer:
    """Writes the texts of one run. Another salt, other texts of the same lengths.

    No two texts of a run begin with the same two words (with the same word, up to as many texts as
    there are words), so that no prompt cache holds the beginning of a new one.
    """

    def __init__(self, vocabulary: Vocabulary, salt: str) -> None:
        self._vocabulary = vocabulary
        self._salt = salt
        self._written = 0
        self._first = list(vocabulary.words)
        self._chance("first words").shuffle(self._first)

    def write(self, kind: str, tokens: int) -> str:
        """A new text of `tokens` tokens (at least one), by the vocabulary's count."""
        return "".join(self.writing(kind, tokens))

    def writing(self, kind: str, tokens: int) -> Iterator[str]:
        """`write` in parts, none of which takes longer than a millisecond or so: a long text is
        written while answers to others are being measured."""
        number, self._written = self._written, self._written + 1
        chance = self._chance(str(number))
        vocabulary = self._vocabulary
        phrases = vocabulary.phrases.get(kind, ())
        lines = bool(phrases) and kind != "prose"
        frame = OPENING_WORDS + 1 + (vocabulary.mark_tokens if lines else 0)
        chosen = _pick(chance, phrases, tokens - frame)
        if lines and not chosen:
            lines = False
        if not lines and not chosen:
            chosen = _pick(chance, vocabulary.phrases.get("prose", ()), tokens - OPENING_WORDS - 1)
        left = max(1, tokens - sum(phrase.tokens for phrase in chosen))
        if lines:
            yield from self._bare(chance, number, OPENING_WORDS)
            yield LINE_MARK
            yield from self._fill(chance, chosen)
            yield from self._bare(chance, None, left - OPENING_WORDS - vocabulary.mark_tokens)
        elif not chosen:
            yield from self._bare(chance, number, left)
        else:
            yield from self._bare(chance, number, left - 1)
            yield "."
            yield from self._fill(chance, chosen)

    def _chance(self, what: str) -> random.Random:
        return random.Random(seed_of(f"{self._salt}\x1f{what}"))

    def _fill(self, chance: random.Random, chosen: Sequence[Phrase]) -> Iterator[str]:
        for at in range(0, len(chosen), _PART):
            some = chosen[at : at + _PART]
            slots = "".join([phrase.slots for phrase in some])
            words = chance.choices(self._vocabulary.words, k=slots.count(WORD))
            numbers = chance.choices(self._vocabulary.numbers or ("",), k=slots.count(NUMBER))
            yield _filled("".join([phrase.pattern for phrase in some]), slots, words, numbers)

    def _bare(self, chance: random.Random, number: int | None, tokens: int) -> Iterator[str]:
        """Words, and now and then a full stop; the first two by the text's number, if it has one.
        The last is a word, since templates may cut off what follows it."""
        sentences = _PART * SENTENCE_TOKENS
        for at in range(0, tokens, sentences):
            words = chance.choices(self._vocabulary.words, k=min(sentences, tokens - at))
            if at == 0 and number is not None:
                many = len(self._first)
                words[0] = self._first[number % many]
                words[1:2] = [self._first[(number // many + number + 1) % many]][: tokens - 1]
            text = [f" {word}" for word in words]
            stops = len(text[SENTENCE_TOKENS - 1 : tokens - 1 - at : SENTENCE_TOKENS])
            text[SENTENCE_TOKENS - 1 : tokens - 1 - at : SENTENCE_TOKENS] = ["."] * stops
            if at == 0:
                text[0] = words[0]
            yield "".join(text)


def _filled(pattern: str, slots: str, words: Iterable[str], numbers: Iterable[str]) -> str:
    sources = {WORD: iter(words), NUMBER: iter(numbers)}
    return pattern % tuple([next(sources[slot]) for slot in slots])


def _pick(chance: random.Random, phrases: Sequence[Phrase], tokens: int) -> list[Phrase]:
    """Phrases that have at most `tokens` tokens together, and leave no room for another."""
    chosen: list[Phrase] = []
    if not phrases:
        return chosen
    largest = max(phrase.tokens for phrase in phrases)
    while tokens >= largest:
        some = chance.choices(phrases, k=tokens // largest)
        chosen += some
        tokens -= sum(phrase.tokens for phrase in some)
    while fitting := [phrase for phrase in phrases if phrase.tokens <= tokens]:
        chosen.append(chance.choice(fitting))
        tokens -= chosen[-1].tokens
    return chosen
