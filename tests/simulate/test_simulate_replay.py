"""From what a server counted of whole prompts to the sizes of their texts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.segments import Segment, total_tokens
from headroom_bench.simulate.replay import Lengths, Replay

SYSTEM = Segment("system", "system", "prose", "s", 1000)


def ask(number: int, tokens: int = 50) -> Segment:
    return Segment("ask", "user", "prose", f"ask-{number}", tokens)


def answer(number: int, tokens: int) -> Segment:
    return Segment("answer", "assistant", "prose", f"answer-{number}", tokens)


def counted(prompt_tokens: int | None) -> Lengths:
    return Lengths(True, prompt_tokens, 30, 0, 1.0)


def sizes(segments: tuple[Segment, ...]) -> list[int]:
    return [segment.tokens for segment in segments]


def test_new_texts_miss_their_size_by_the_same_share() -> None:
    """Where nothing tells a text's tokens, all of them are some share off, not the last one by
    all of it: what the next prompt has in common with this one is the system prompt."""
    replay = Replay({})
    assert sizes(replay.segments((SYSTEM, ask(1)), counted(1260))) == [1200, 60]
    later = (SYSTEM, ask(1, 260), answer(1, 30), ask(2))
    assert sizes(replay.segments(later, counted(1345))) == [1200, 60, 30, 55]
    assert sizes(replay.segments((SYSTEM, ask(3)), counted(1258))) == [1200, 58]


def test_a_prompt_that_was_cut_or_not_counted() -> None:
    replay = Replay({})
    assert sizes(replay.segments((SYSTEM, ask(1)), counted(None))) == [1000, 50]
    replay.segments((SYSTEM, ask(1)), counted(1050))
    assert sizes(replay.segments((SYSTEM, ask(2)), counted(600))) == [1000, 1]


def test_the_same_prompt_again() -> None:
    replay = Replay({})
    replay.segments((SYSTEM, ask(1)), counted(1050))
    assert sizes(replay.segments((SYSTEM, ask(1)), counted(1052))) == [1000, 52]


@given(st.lists(st.integers(1, 9000), min_size=1, max_size=5), st.integers(1, 50_000))
def test_the_whole_is_what_was_counted(parts: list[int], prompt_tokens: int) -> None:
    asked = tuple(ask(number, tokens) for number, tokens in enumerate(parts))
    got = Replay({}).segments(asked, counted(prompt_tokens))
    assert min(sizes(got)) >= 1
    assert total_tokens(got) == max(prompt_tokens, len(parts))
