"""Tokens are counted alike everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom_bench.crowd.texts import Vocabulary as Words
from headroom_bench.crowd.texts import Writer, common_words
from mock_server.answers import WORDS, write_answer
from mock_server.prompts import END_TOKENS, HEADER_TOKENS, Segmenter, content_id, render
from mock_server.tokens import Vocabulary, count, split

words = st.sampled_from([*common_words(), "."])


@given(st.text())
@settings(max_examples=200)
def test_tokens_join_to_the_text_and_ids_lead_back(text: str) -> None:
    vocabulary = Vocabulary()
    pieces = split(text)
    assert b"".join(pieces) == text.encode("utf-8", "surrogatepass")
    assert len(pieces) == count(text)
    assert [vocabulary.piece_of(vocabulary.id_of(piece)) for piece in pieces] == pieces


@given(st.lists(words, min_size=1, max_size=60), st.lists(words, min_size=1, max_size=60))
@settings(max_examples=50)
def test_counts_add_up_on_prose(one: list[str], two: list[str]) -> None:
    first, second = " ".join(one), " ".join(two)
    assert count(f"{first} {second}") == count(first) + count(second)


def test_our_own_prompts_have_the_length_asked_for() -> None:
    writer = Writer(Words(common_words(), sizes="exact"), "salt")
    for tokens in (1, 12, 13, 14, 200, 5000):
        assert count(writer.write("prose", tokens)) == tokens


def test_ids_stay_bounded() -> None:
    vocabulary = Vocabulary()
    for number in range(60_000):
        vocabulary.id_of(b" %d" % number)
    assert len(vocabulary._seen) <= 49152


def test_words_are_single_tokens() -> None:
    assert all(split(word) == [word.encode()] for word in WORDS)
    assert len(set(WORDS)) == len(WORDS)


@pytest.mark.parametrize("blanks", range(1, 9))
def test_an_indent_is_one_token(blanks: int) -> None:
    indent = " " * blanks
    pieces = ["x", "\n", *([indent[:-1]] if blanks > 1 else []), " time"]
    assert split(f"x\n{indent}time") == [piece.encode() for piece in pieces]


@given(st.integers(1, 400), st.text(max_size=20))
@settings(max_examples=50)
def test_answers_have_their_length_and_come_back_as_they_were(tokens: int, prompt: str) -> None:
    answer = write_answer(prompt, tokens, limited=True)
    assert answer.tokens == count(answer.text) == tokens
    again = Segmenter().chat([("user", "x"), ("assistant", answer.text)])[-1]
    assert (again.tokens, again.content_id) == (tokens, content_id("assistant", answer.text))


def test_other_prompts_get_other_answers() -> None:
    texts = {write_answer(str(n), 20, limited=True).text for n in range(500)}
    assert len(texts) == 500
    assert write_answer("a", 20, limited=True) == write_answer("a", 20, limited=True)


def test_a_shorter_answer_begins_a_longer_one() -> None:
    long = write_answer("key", 40, limited=True).text
    assert all(long.startswith(write_answer("key", n, limited=True).text) for n in range(1, 40))


def test_stop_strings_cut_at_their_first_letter() -> None:
    free = write_answer("p", 100, limited=True)
    stopped = write_answer("p", 100, limited=True, stop=(".", "never said"))
    assert stopped.text == free.text.partition(".")[0]
    assert (stopped.ended, stopped.stopping_word, stopped.tokens) == ("word", ".", 12)
    across = free.text[10:17]  # begins and ends inside of words
    assert write_answer("p", 100, limited=True, stop=(across,)).text == free.text[:10]


def test_segments_are_known_by_their_text() -> None:
    segmenter = Segmenter()
    text = " ".join(["word"] * 40)
    asked, said = segmenter.chat([("user", text), ("assistant", text)])
    assert (asked.tokens, said.tokens) == (40 + 2 * HEADER_TOKENS + END_TOKENS, 40)
    assert asked.content_id != said.content_id
    assert len(asked.blocks) == 2
    (longer,) = segmenter.chat([("user", text + " and more of it so that there are more blocks")])
    assert longer.blocks[:2] == asked.blocks
    (other,) = segmenter.chat([("user", "other " + text)])
    assert other.blocks[0] != asked.blocks[0]
    assert segmenter.raw(text)[0].tokens == 40


_roles = st.sampled_from(["system", "user", "assistant", "tool"])
_texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join)


@given(st.lists(st.tuples(_roles, _texts), min_size=1, max_size=8))
def test_a_chat_costs_what_its_rendered_template_costs(chat: list[tuple[str, str]]) -> None:
    # An assistant's header is counted with what it answers, so it must answer something.
    merged = [pair for at, pair in enumerate(chat) if pair[0] != "assistant" or _answers(chat, at)]
    if not merged or merged[-1][0] == "assistant":
        merged.append(("user", "more"))
    segments = Segmenter().chat(merged)
    assert sum(segment.tokens for segment in segments) == count(render(merged))


def _answers(chat: list[tuple[str, str]], at: int) -> bool:
    return at > 0 and chat[at - 1][0] != "assistant"
