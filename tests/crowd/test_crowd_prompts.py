"""Prompts: text of an exact length, new where it should be new, equal where it should be equal."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.crowd.prompts import (
    SENTENCE_TOKENS,
    Vocabulary,
    common_words,
    to_messages,
    write_text,
)
from headroom_bench.segments import Segment

WORDS = Vocabulary(common_words(), exact=True)


def pieces(text: str) -> int:
    """Words and full stops."""
    return len(text.replace(".", " . ").split())


@given(st.text(max_size=20), st.integers(1, 400))
def test_text_has_as_many_pieces_as_tokens_were_asked(content_id: str, tokens: int) -> None:
    text = write_text(content_id, "salt", tokens, WORDS)
    assert pieces(text) == tokens
    assert text == write_text(content_id, "salt", tokens, WORDS)
    assert text.count(".") == tokens // SENTENCE_TOKENS


def test_even_nothing_is_one_piece() -> None:
    assert pieces(write_text("a", "s", 0, WORDS)) == 1


def test_an_inexact_vocabulary_writes_fewer_words() -> None:
    assert pieces(write_text("a", "s", 300, Vocabulary(common_words(), 1.5))) == 200


def test_distinct_ids_give_unrelated_texts() -> None:
    """No prompt cache may match one person's text with another's, not even for its first word."""
    texts = [write_text(f"chat-{number}/ask", "salt", 40, WORDS) for number in range(100)]
    assert len(set(texts)) == 100
    assert len({text.split()[0] for text in texts}) >= 85


def test_another_salt_is_another_text_of_the_same_length() -> None:
    one, other = (write_text("chat-0/ask", salt, 40, WORDS) for salt in ("a", "b"))
    assert one.split()[:3] != other.split()[:3]
    assert pieces(one) == pieces(other)


def test_salt_and_id_do_not_run_together() -> None:
    assert write_text("bc", "a", 9, WORDS) != write_text("c", "ab", 9, WORDS)


def test_common_words_are_plain() -> None:
    assert len(common_words()) > 500
    assert len(set(common_words())) == len(common_words())
    assert all(word.isascii() and word.isalpha() for word in common_words())


def part(role: str, content_id: str) -> Segment:
    return Segment(content_id, role, "prose", content_id, 1)


def test_neighbours_of_one_role_are_one_message() -> None:
    prompt = [part("system", "a"), part("system", "b"), part("user", "c"), part("user", "d"),
              part("assistant", "e"), part("tool", "f"), part("user", "g")]  # fmt: skip
    assert to_messages(prompt, lambda segment: segment.content_id) == [
        {"role": "system", "content": "a b"},
        {"role": "user", "content": "c d"},
        {"role": "assistant", "content": "e"},
        {"role": "user", "content": "f g"},
    ]
