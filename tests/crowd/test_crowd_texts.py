"""Filler: text of an exact length, new where it should be new, and looking like its kind."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom_bench.crowd.phrases import NUMBER, PHRASES, WORD
from headroom_bench.crowd.texts import (
    Phrase,
    Vocabulary,
    Writer,
    common_words,
    estimate_tokens,
    guessed_vocabulary,
)

BARE = Vocabulary(common_words(), sizes="exact")
KINDS = sorted(PHRASES)


def pieces(text: str) -> int:
    """Words and full stops."""
    return len(text.replace(".", " . ").split())


@given(st.integers(1, 400), st.integers(0, 30))
@settings(deadline=None)
def test_bare_words_have_as_many_pieces_as_tokens_were_asked(tokens: int, before: int) -> None:
    writer = Writer(BARE, "salt")
    for _ in range(before):
        writer.write("prose", 5)
    text = writer.write("prose", tokens)
    assert pieces(text) == tokens
    assert not text.endswith(".")


@given(st.sampled_from(KINDS), st.integers(1, 900))
@settings(deadline=None)
def test_phrases_and_words_have_the_length_together(kind: str, tokens: int) -> None:
    """The guessed vocabulary's sizes are those of `estimate_tokens`, which adds up over phrases."""
    text = Writer(guessed_vocabulary(), "salt").write(kind, tokens)
    assert estimate_tokens(text) == pytest.approx(tokens, abs=2 + tokens // 20)


def test_even_nothing_is_one_piece() -> None:
    assert pieces(Writer(BARE, "s").write("prose", 0)) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_texts_of_a_run_begin_alike(kind: str) -> None:
    """Not even with the same word, as long as there are words; never with the same two."""
    writer = Writer(guessed_vocabulary(), "salt")
    many = len(common_words())
    begun = [tuple(writer.write(kind, 12).split()[:2]) for _ in range(2 * many)]
    assert len({first for first, _ in begun[:many]}) == many
    assert len(set(begun)) == len(begun)


def test_another_salt_is_another_text_of_the_same_length() -> None:
    one, other = (Writer(BARE, salt).write("prose", 40) for salt in ("a", "b"))
    assert one.split()[:3] != other.split()[:3]
    assert pieces(one) == pieces(other)
    assert one == Writer(BARE, "a").write("prose", 40)


def test_schemas_are_tools_in_json() -> None:
    text = Writer(guessed_vocabulary(), "s").write("schema", 900)
    lines = text.split("\n")[1:-1]
    tools = [json.loads(line) for line in lines]
    assert len(tools) >= 5
    for tool in tools:
        function = tool["function"]
        assert function["name"].isidentifier()
        assert function["description"].endswith(".")
        assert function["parameters"]["type"] == "object"


@pytest.mark.parametrize("phrase", guessed_vocabulary().phrases["code"])
def test_code_is_python(phrase: Phrase) -> None:
    names = [f"name{number}" for number in range(len(phrase.slots))]
    compile(phrase.filled(iter(names), iter(["100"] * 9)), "phrase", "exec")


def test_logs_have_times_levels_and_numbers() -> None:
    text = Writer(guessed_vocabulary(), "s").write("log", 600)
    assert text.count("level=") >= 2
    assert text.count("\n") >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_slots_stand_where_tokenizers_cut(kind: str) -> None:
    """A word after a blank or at the start of a line and before no letter; a number after a sign
    and before no digit: that is where pre-tokenizers cut, whatever stands there."""
    for phrase in PHRASES[kind]:
        for before, here in pairwise(f"\n{phrase}\n"):
            if here == WORD:
                assert before in " \n", phrase
            elif here == NUMBER:
                assert not before.isalnum(), phrase
                assert before not in " \n", phrase
            if before == WORD:
                assert not here.isalnum(), phrase
            elif before == NUMBER:
                assert not here.isdigit(), phrase


def test_common_words_are_plain() -> None:
    assert len(common_words()) > 500
    assert len(set(common_words())) == len(common_words())
    assert all(word.isascii() and word.isalpha() for word in common_words())


@pytest.mark.parametrize("vocabulary", [BARE, guessed_vocabulary()], ids=["bare", "guessed"])
@pytest.mark.parametrize("kind", ["prose", "code", "log", "schema"])
def test_long_texts_are_written_in_parts(vocabulary: Vocabulary, kind: str) -> None:
    """Somebody else's tokens arrive meanwhile."""
    parts = list(Writer(vocabulary, "s").writing(kind, 200_000))
    assert max(map(len, parts)) < 400_000
    assert len(parts) > 3
    assert "".join(parts) == Writer(vocabulary, "s").write(kind, 200_000)
