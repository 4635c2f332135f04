"""Lengths of prompts: exact with any tokenizer that cuts as today's do, else learnt."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from tokenizer_families import FAMILIES, Family

from headroom_bench.crowd.phrases import PHRASES
from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import Vocabulary, Writer, common_words, guessed_vocabulary
from headroom_bench.live.tokenizer import Chat
from headroom_bench.live.vocabulary import counted_by, template_of, vocabulary_of
from mock_server import tokens as mock_tokens


@dataclasses.dataclass
class MockTokens(Family):
    def cut(self, text: str) -> list[int]:
        return [hash(piece) for piece in mock_tokens.split(text)]


TOKENIZERS = {name: Family(pattern) for name, pattern in FAMILIES.items()} | {
    "salted": Family(FAMILIES["llama3"], "other chances"),
    "mock": MockTokens(""),
}


@pytest.fixture(scope="module", params=TOKENIZERS)
def known(request: pytest.FixtureRequest) -> tuple[Family, Vocabulary]:
    family = TOKENIZERS[request.param]
    return family, asyncio.run(vocabulary_of(family, PHRASES))


def test_every_kind_has_phrases_and_adds_up(known: tuple[Family, Vocabulary]) -> None:
    family, vocabulary = known
    assert vocabulary.exact
    assert vocabulary.phrases.keys() == PHRASES.keys()
    for kind, phrases in vocabulary.phrases.items():
        assert len(phrases) >= 0.8 * len(PHRASES[kind]), kind
        writer = Writer(vocabulary, "salt")
        for tokens in (1, 2, 3, 7, 20, 33, 100, 101, 102, 990, 4001):
            text = writer.write(kind, tokens)
            assert len(family.cut(text)) == tokens, text[:200]


def test_texts_add_up_one_after_the_other(known: tuple[Family, Vocabulary]) -> None:
    """As `to_messages` joins what one person sends."""
    family, vocabulary = known
    writer = Writer(vocabulary, "salt")
    texts = [writer.write(kind, 150) for kind in PHRASES for _ in range(2)]
    assert len(family.cut(" ".join(texts))) == 150 * len(texts)


def test_the_tokenizer_is_asked_little(known: tuple[Family, Vocabulary]) -> None:
    family, _ = known
    assert len(family.asked) <= 120


class Cutting(Family):
    """No word is one token: as with characters."""

    def size(self, piece: str) -> int:
        return len(piece)


class Merging(Family):
    """Counts do not add up: long texts cost less."""

    def cut(self, text: str) -> list[int]:
        ids = super().cut(text)
        return ids[: len(ids) - len(ids) // 60]


class Unsettled(Family):
    """Words and full stops are fine, other signs depend on what stands around them."""

    def cut(self, text: str) -> list[int]:
        ids = super().cut(text)
        return ids + [0] * (crc(text) % 3) if "{" in text or "=" in text else ids


def crc(text: str) -> int:
    return sum(text.encode())


@pytest.mark.parametrize("kind", [Cutting, Merging])
def test_what_does_not_add_up_is_an_estimate(kind: type[Family]) -> None:
    vocabulary = asyncio.run(vocabulary_of(kind(FAMILIES["gpt2"]), PHRASES))
    assert not vocabulary.exact
    assert vocabulary.words == common_words()


def test_only_the_kind_that_does_not_add_up_is_left_out() -> None:
    family = Unsettled(FAMILIES["gpt2"])
    vocabulary = asyncio.run(vocabulary_of(family, PHRASES))
    assert vocabulary.exact
    assert set(vocabulary.phrases) == {"prose"}
    text = Writer(vocabulary, "s").write("schema", 333)
    assert len(family.cut(text)) == 333


def test_no_tokenizer_means_estimates() -> None:
    vocabulary = asyncio.run(vocabulary_of(None, PHRASES))
    assert not vocabulary.exact
    assert vocabulary.phrases.keys() == PHRASES.keys()
    assert asyncio.run(template_of(None)) == TemplateTokens()


def test_the_template_is_told_by_differences() -> None:
    family = Family(FAMILIES["gpt2"])
    told = asyncio.run(template_of(family))
    assert told.known
    assert told.system + told.turn == 13
    assert told.lone_turn == 8


class Silent(Family):
    async def chat_tokens(self, chat: Chat) -> int | None:
        return None


def test_a_template_that_cannot_be_asked_is_to_be_learnt() -> None:
    assert not asyncio.run(template_of(Silent(FAMILIES["gpt2"]))).known


# --- without a tokenizer, by what the server counts ----------------------------------------------


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_are_nearly_as_long_as_asked_once_samples_were_counted(name: str) -> None:
    family = TOKENIZERS[name]
    vocabulary, template = asyncio.run(counted_by(family, PHRASES.keys(), "salt"))
    assert vocabulary.sizes == "counted"
    told = asyncio.run(template_of(family))
    assert template.known
    assert abs(template.lone_turn - told.lone_turn) <= 1, "a word of two tokens may be one of them"
    assert abs(template.system + template.turn - told.system - told.turn) <= 2
    writer = Writer(vocabulary, "salt")
    for kind in PHRASES:
        off = [len(family.cut(writer.write(kind, 3000))) / 3000 - 1 for _ in range(5)]
        assert abs(sum(off) / len(off)) < 0.05, kind


def test_guesses_are_further_off() -> None:
    """What the counting of samples is for."""
    family, writer = TOKENIZERS["qwen2"], Writer(guessed_vocabulary(), "salt")
    off = {kind: len(family.cut(writer.write(kind, 3000))) / 3000 - 1 for kind in PHRASES}
    assert max(map(abs, off.values())) > 0.2


@dataclasses.dataclass
class Silenced(Family):
    """Tells nothing after so many answers."""

    answers: int = 0

    async def chat_tokens(self, chat: Chat) -> int | None:
        self.answers -= 1
        return await super().chat_tokens(chat) if self.answers >= 0 else None


@pytest.mark.parametrize("answers", range(6))
def test_what_is_not_counted_stays_a_guess(answers: int) -> None:
    silenced = Silenced(FAMILIES["gpt2"], answers=answers)
    vocabulary, template = asyncio.run(counted_by(silenced, PHRASES.keys(), "salt"))
    assert vocabulary == guessed_vocabulary()
    assert template.known == (answers >= 3)


def test_a_count_of_something_else_is_not_believed() -> None:
    """A server that counts only what it had to read, or adds a system message of its own."""

    class Odd(Family):
        async def chat_tokens(self, chat: Chat) -> int | None:
            return 40

    vocabulary, _ = asyncio.run(counted_by(Odd(FAMILIES["gpt2"]), {"code"}, "salt"))
    assert vocabulary == guessed_vocabulary()
