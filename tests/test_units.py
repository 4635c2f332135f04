"""Durations and sizes as people write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.errors import UserError
from headroom_bench.units import (
    MOST_S,
    MOST_TOKENS,
    counted,
    in_words,
    parse_duration_s,
    parse_size,
    parse_whole,
    people,
    percent,
    spelled,
)


def taken(parse: Callable[[], float]) -> Any:
    """What comes of it: a number, or the message of the refusal."""
    try:
        return parse()
    except UserError as why:
        return str(why)


def is_told_of(found: Any, what: str) -> bool:
    """Whether it is a refusal: one line, which begins with what was wrong."""
    return isinstance(found, str) and found.startswith(what) and found.isprintable()


nearly = st.text("0123456789.smhkKMGi +-e_٣", max_size=12) | st.text(max_size=6)
"""What people might mistype."""


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


@given(st.integers(0, 8000), st.integers(0, 59), st.integers(0, 59), st.integers(1, 999))
def test_pieces_of_a_duration_add_up(hours: int, minutes: int, seconds: int, millis: int) -> None:
    whole = 3600 * hours + 60 * minutes + seconds + millis / 1000
    assert parse_duration_s(f"{hours}h {minutes}m{seconds}s{millis}ms") == pytest.approx(whole)
    assert parse_duration_s(f"{whole:.3f}") == pytest.approx(whole)


@given(nearly)
def test_a_duration_is_within_its_bounds_or_refused_in_one_line(text: str) -> None:
    found = taken(lambda: parse_duration_s(text, "--drain"))
    assert is_told_of(found, "--drain ") or 0 < found <= MOST_S


def test_the_longest_duration_is_a_year() -> None:
    assert parse_duration_s("8784h") == MOST_S
    for text in ("8784h1s", "9" * 400):
        with pytest.raises(UserError, match=r"is longer than 366 days$"):
            parse_duration_s(text)


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


FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@given(st.integers(1, 2**31), st.sampled_from(sorted(FACTORS)))
def test_a_size_is_its_number_times_its_unit_up_to_the_largest(number: int, unit: str) -> None:
    text, count = f"{number}{unit}", number * FACTORS[unit]
    if count <= MOST_TOKENS:
        assert parse_size(text) == count
        return
    with pytest.raises(UserError, match=r"is larger than 1,073,741,824$"):
        parse_size(text)


@given(nearly)
def test_a_size_is_within_its_bounds_or_refused_in_one_line(text: str) -> None:
    found = taken(lambda: parse_size(text, "--ctx"))
    assert is_told_of(found, "--ctx ") or (type(found) is int and 1 <= found <= MOST_TOKENS)


@pytest.mark.parametrize("text", ["", "k", "0", "-3", "1.5", "0.0001k", "3 apples", "1e3", "inf"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserError, match="--prompt-tokens"):
        parse_size(text, "--prompt-tokens")


@given(st.integers(-5, 2**70), st.integers(0, 3), st.integers(3, 2**64))
def test_whole_numbers_are_those_from_the_least_to_the_most(
    number: int, least: int, most: int
) -> None:
    if least <= number <= most:
        assert parse_whole(str(number), "slots", most, least) == number
        return
    with pytest.raises(
        UserError, match=f"^slots .* is not a whole number from {least} to {most:,}$"
    ):
        parse_whole(str(number), "slots", most, least)


@pytest.mark.parametrize("text", ["", " 3", "3 ", "+3", "3.0", "1e3", "1_000", "1,000", "٣", "²"])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(UserError, match=r"^slots .* is not a whole number from 1 to 5,000$"):
        parse_whole(text, "slots", 5000)


@given(nearly)
def test_a_whole_number_is_plain_digits_or_refused_in_one_line(text: str) -> None:
    found = taken(lambda: parse_whole(text, "slots", 10**9, 0))
    assert is_told_of(found, "slots ") or text == f"{found:0{len(text)}}"


@pytest.mark.parametrize(
    ("bound", "words"),
    [(0, "0"), (0.001, "0.001"), (1e12, "1,000,000,000,000"), (MOST_S, "31,622,400"), (0.5, "0.5")],
)
def test_bounds_are_spelled_out(bound: float, words: str) -> None:
    assert spelled(bound) == words


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


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "100%"), (0.0, "0%"), (0.95, "95%"), (0.945, "94.5%"), (0.9496, "94.9%"),
     (0.94999, "94.9%"), (0.9999, "99.9%"), (2 / 3, "66.6%"), (0.57, "57%"), (0.29, "29%")],
)  # fmt: skip
def test_a_share_is_not_rounded_up_to_what_it_misses(share: float, text: str) -> None:
    assert percent(share) == text


@given(st.integers(0, 1000), st.integers(0, 100_000))
def test_a_share_reads_as_on_its_own_side_of_any_threshold_in_tenths(tenths: int, of: int) -> None:
    share, threshold = of / 100_000, tenths / 1000
    assert (float(percent(share)[:-1]) >= tenths / 10) == (share >= threshold)
