"""What two prompts share at their start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment, shared_prefix_tokens, total_tokens


def part(content_id: str, tokens: int, *blocks: int) -> Segment:
    return Segment("ask", "user", "prose", content_id, tokens, blocks)


def test_whole_segments_while_they_are_equal() -> None:
    cached = [part("a", 10), part("b", 20), part("c", 30)]
    assert shared_prefix_tokens(cached, cached) == 60
    assert shared_prefix_tokens(cached, [part("a", 10), part("x", 20), part("c", 30)]) == 10
    assert shared_prefix_tokens(cached, [part("x", 10), part("b", 20)]) == 0
    assert shared_prefix_tokens(cached, [part("a", 10)]) == 10
    assert shared_prefix_tokens([], cached) == 0


def test_another_length_is_another_text() -> None:
    assert shared_prefix_tokens([part("a", 10)], [part("a", 11)]) == 0


def test_blocks_match_inside_the_first_segment_that_differs() -> None:
    cached = [part("a", 10), part("b", 50, 1, 2, 3)]
    assert shared_prefix_tokens(cached, [part("a", 10), part("x", 70, 1, 2, 9, 4)]) == 10 + 32
    assert shared_prefix_tokens(cached, [part("a", 10), part("x", 70, 9, 2, 3)]) == 10


def test_blocks_do_not_match_past_the_first_difference() -> None:
    cached = [part("a", 40, 1, 2), part("b", 40, 3, 4)]
    assert shared_prefix_tokens(cached, [part("x", 40, 1, 9), part("b", 40, 3, 4)]) == 16


prompts = st.lists(st.builds(part, st.sampled_from("ab"), st.integers(1, 3)), max_size=4)


@given(prompts, prompts)
def test_shared_is_symmetric_and_within_both(one: list[Segment], other: list[Segment]) -> None:
    shared = shared_prefix_tokens(one, other)
    assert shared == shared_prefix_tokens(other, one)
    assert 0 <= shared <= min(total_tokens(one), total_tokens(other))
    assert shared_prefix_tokens(one, one + other) == total_tokens(one)


def test_resizing_keeps_everything_else() -> None:
    assert part("a", 40, 1, 2).resized(33) == part("a", 33, 1, 2)
    assert HASH_BLOCK_TOKENS == 16
