"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.errors import UserError
from headroom_bench.units import counted, in_words, parse_duration_s, parse_size, people


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("5min", 300),
        ("5 min", 300),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1m30s", 90),
        ("1m 30s", 90),
        ("1h2m3s", 3723),
        ("45", 45),
        (" 0.5 ", 0.5),
        ("5M", 300),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "s", "abc", "-5s", "0", "0s", "30 40", "10s20", "5mm", "1.5.2", "5d", "1e3", "٣s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UserError, match="--think"):
        parse_duration_s(text, "--think")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2000", 2000),
        ("32k", 32_000),
        ("32K", 32_000),
        ("128Ki", 131_072),
        ("1.5M", 1_500_000),
        ("2 Mi", 2**21),
        ("1G", 10**9),
        ("0.5k", 500),
    ],
)
def test_sizes(text: str, count: int) -> None:
    assert parse_size(text) == count


@given(st.integers(1, 10**7))
def test_thousandths_are_whole_sizes(count: int) -> None:
    """4.003k is 4,003 although 4.003 * 1000 is not as a float."""
    assert parse_size(f"{count // 1000}.{count % 1000:03}k") == count


@pytest.mark.parametrize("text", ["", "k", "0", "-3", "1.5", "0.0001k", "3 apples", "1e3", "inf"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match="--prompt-tokens"):
        parse_size(text, "--prompt-tokens")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.25, "0.25 s"),
        (45, "45 s"),
        (59.7, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3780, "1 h 3 min"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_one_is_no_plural() -> None:
    assert [people(number) for number in (0, 1, 1200)] == ["0 people", "1 person", "1,200 people"]
    assert [counted(number, "turn") for number in (1, 2)] == ["1 turn", "2 turns"]
