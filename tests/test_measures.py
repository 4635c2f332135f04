"""The metrics of one answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.measures import fill_timing, first_visible, quantile
from headroom_bench.records import RequestRecord


def timed(tokens: int | None, times: list[float], first: int = 1) -> RequestRecord:
    """A record that was sent at 10 s."""
    record = RequestRecord(
        "run", "measured", "p-0/c0/t0/r0", "p-0/c0", "p", 0, 0, 0, "mock", None, started_at_s=9.0
    )
    record.completion_tokens = tokens
    fill_timing(record, 10.0, times, first_event_tokens=first)
    return record


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.floats(0, 1))
def test_quantile_is_numpys(values: list[float], q: float) -> None:
    assert quantile(sorted(values), q) == pytest.approx(np.quantile(values, q), rel=1e-9, abs=1e-6)


def test_quantile_at_a_value_is_that_value() -> None:
    assert quantile([1.0, 2.0, float("inf")], 0.5) == 2.0


def test_times_count_from_sending() -> None:
    record = timed(4, [10.5, 10.75, 11.0, 11.5])
    assert record.ttft_s == record.first_token_s == 0.5
    assert record.last_token_s == 1.5
    assert record.stream_events == 4
    assert record.itl_mean_s == pytest.approx(1.0 / 3)
    assert record.itl_p50_s == 0.25
    assert record.itl_max_s == 0.5
    assert record.tpot_s == pytest.approx(1.0 / 3)
    assert record.decode_tok_s == pytest.approx(3.0)


def test_gaps_are_between_events_and_rates_of_tokens() -> None:
    """Five events that carry 13 tokens, three of them in the first event."""
    record = timed(13, [10.5, 10.75, 11.0, 11.25, 11.5], first=3)
    assert record.itl_mean_s == 0.25
    assert record.decode_tok_s == pytest.approx(10.0)
    assert record.tpot_s == pytest.approx(0.1)


def test_no_tokens_no_times() -> None:
    record = timed(0, [])
    assert (record.ttft_s, record.stream_events, record.decode_tok_s) == (None, None, None)


def test_below_two_tokens_there_is_no_rate() -> None:
    record = timed(1, [10.5])
    assert record.ttft_s == 0.5
    assert (record.tpot_s, record.decode_tok_s, record.itl_mean_s) == (None, None, None)


def test_a_buffered_stream_has_no_rate() -> None:
    record = timed(50, [12.0] * 5)
    assert (record.tpot_s, record.decode_tok_s) == (None, None)
    assert record.itl_max_s == 0.0


def test_unknown_counts_give_no_rate_but_gaps() -> None:
    record = timed(None, [10.5, 11.0, 11.5])
    assert record.decode_tok_s is None
    assert record.itl_mean_s == 0.5


@pytest.mark.parametrize(("events", "known"), [(100, False), (101, True)])
def test_p99_needs_a_hundred_gaps(events: int, known: bool) -> None:
    times = [10.5 + 0.01 * number for number in range(events)]
    assert (timed(events, times).itl_p99_s is not None) == known


@given(st.lists(st.floats(0.001, 5), min_size=2, max_size=150))
def test_time_per_token_and_gaps_agree_where_each_event_is_a_token(gaps: list[float]) -> None:
    times = [10.5, *(10.5 + np.cumsum(gaps)).tolist()]
    record = timed(len(times), times)
    assert record.itl_mean_s is not None
    assert record.tpot_s == pytest.approx(record.itl_mean_s)
    assert record.decode_tok_s == pytest.approx(1 / record.itl_mean_s)


@pytest.mark.parametrize(
    ("tokens", "buffer", "whole", "seen"),
    [
        ([1.0, 2.0, 3.0], 1, False, 1.0),
        ([1.0, 2.0, 3.0], 3, False, 3.0),
        ([1.0, 2.0, 3.0], 4, False, 9.0),
        ([1.0, 2.0, 3.0], 1, True, 9.0),
        ([], 1, True, None),
    ],
)
def test_when_a_device_shows(
    tokens: list[float], buffer: int, whole: bool, seen: float | None
) -> None:
    assert first_visible(tokens, 9.0, buffer_tokens=buffer, whole=whole) == seen
