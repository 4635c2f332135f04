"""What falls into a window counts, whichever side of its ends it began or ended on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_makers import failed, record

from headroom_bench.records import RequestRecord
from headroom_bench.results.throughput import totals


def sent(at_s: float, lasts_s: float = 4.0, **fields: Any) -> RequestRecord:
    """A quarter of it reads 100 tokens, the rest writes 30."""
    return record(
        **{"started_at_s": at_s, "sent_s": at_s, "ttft_s": lasts_s / 4, "last_token_s": lasts_s,
           "e2e_s": lasts_s, "end_s": at_s + lasts_s, "completion_tokens": 30, **fields}
    )  # fmt: skip


CLOSED = [sent(user + 4.0 * n) for user in (0.0, 1.0, 2.0, 3.0) for n in range(5)]
"""Four people who ask at once again, from 3 to 20 s all of them."""


@pytest.mark.parametrize(("from_s", "to_s"), [(3.0, 20.0), (5.0, 20.0), (9.5, 11.0), (6.1, 6.2)])
def test_four_people_without_a_pause_are_four_in_flight_in_any_window(
    from_s: float, to_s: float
) -> None:
    figures = totals(CLOSED, from_s, to_s)
    assert figures["concurrency_mean"] == pytest.approx(4.0)
    assert figures["prompt_tok_s"] == pytest.approx(100.0)
    assert figures["completion_tok_s"] == pytest.approx(30.0)
    assert figures["window_s"] == to_s - from_s


def test_answers_a_second_are_those_that_ended_in_it() -> None:
    assert totals(CLOSED, 4.0, 8.0)["requests_per_s"] == 1.0
    assert totals(CLOSED, 4.5, 5.5)["requests_per_s"] == 1.0
    assert totals(CLOSED, 4.5, 4.75)["requests_per_s"] == 0.0


def test_what_kept_the_server_busy_counts_whatever_came_of_it() -> None:
    """Somebody's who gave up after 3 of 30 tokens, one's that broke off before its first, one that
    never got through, and one that our own machine was too late for."""
    abandoned = failed(
        "abandoned", started_at_s=0.0, sent_s=0.0, ttft_s=1.0, last_token_s=2.0, e2e_s=2.0,
        end_s=2.0, completion_tokens=3, prompt_tokens=None, sent_tokens=90,
    )  # fmt: skip
    broken = failed("reset", sent_s=0.0, end_s=10.0, e2e_s=10.0, prompt_tokens=None)
    refused = failed("connect_failed", sent_s=None, end_s=5.0)
    figures = totals([abandoned, broken, refused, sent(0.0, valid=False)], 0.0, 10.0)
    assert figures == {
        "prompt_tok_s": pytest.approx(19.0),
        "completion_tok_s": pytest.approx(3.3),
        "requests_per_s": 0.1,
        "concurrency_mean": pytest.approx(1.6),
        "window_s": 10.0,
    }


def test_an_answer_at_one_moment_is_in_or_out() -> None:
    at_once = sent(0.0, ttft_s=4.0)
    assert [totals([at_once], *w)["completion_tok_s"] for w in ((0, 4), (2, 4), (4, 8))] == [
        7.5, 15.0, 0.0
    ]  # fmt: skip


def test_what_nobody_counted_is_unknown() -> None:
    silent = sent(0.0, prompt_tokens=None)
    figures = totals([silent, sent(0.0)], 0.0, 4.0)
    assert (figures["prompt_tok_s"], figures["completion_tok_s"]) == (None, 15.0)
    assert totals([silent], 1.0, 4.0)["prompt_tok_s"] == 0.0, "it had been read before"


def test_totals_of_no_time_are_unknown_under_the_same_names() -> None:
    figures = totals(CLOSED, 3.0, 3.0)
    assert figures.keys() == totals([], 0.0, 1.0).keys()
    assert {value for name, value in figures.items() if name != "window_s"} == {None}


moments = st.integers(0, 80).map(lambda quarters: quarters / 4)


@given(
    st.lists(st.tuples(moments, moments.filter(bool)), max_size=8),
    st.tuples(moments, moments, moments).map(sorted).filter(lambda m: m[0] < m[1] < m[2]),
)
def test_two_windows_side_by_side_are_one(
    asks: list[tuple[float, float]], ends: list[float]
) -> None:
    low, middle, high = ends
    records = [sent(at_s, lasts_s) for at_s, lasts_s in asks]
    whole, first, second = (
        totals(records, *window) for window in ((low, high), (low, middle), (middle, high))
    )
    for name in ("prompt_tok_s", "completion_tok_s", "requests_per_s", "concurrency_mean"):
        halves = (first[name] or 0.0) * (middle - low) + (second[name] or 0.0) * (high - middle)
        assert (whole[name] or 0.0) * (high - low) == pytest.approx(halves)
