"""Percentiles, shares and intervals over records."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_makers import failed, record

from headroom_bench.results.pooling import Repeat, mean_over_windows, mean_totals, pooled
from headroom_bench.results.statistics import (
    busy_seconds,
    error_kinds,
    is_extra,
    persona_statistics,
    prefill_by_size,
    seconds_at_level,
    spread,
    steady,
    usable,
)


@given(st.lists(st.none() | st.floats(0, 1e6), max_size=150))
def test_spread_is_numpys_where_there_is_enough(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    figures = spread(values)
    assert figures["n"] == len(known)
    for name, q, least in (("p50", 0.5, 1), ("p95", 0.95, 20), ("p99", 0.99, 100)):
        if len(known) < least:
            assert figures[name] is None
        else:
            assert figures[name] == pytest.approx(np.quantile(known, q))
    assert figures["mean"] == (pytest.approx(np.mean(known)) if known else None)


@pytest.mark.parametrize(("n", "p95", "p99"), [(19, False, False), (20, True, False), (99, True, False), (100, True, True)])  # fmt: skip  # noqa: E501
def test_far_percentiles_need_enough_values(n: int, p95: bool, p99: bool) -> None:
    figures = spread(range(n))
    assert (figures["p95"] is not None, figures["p99"] is not None) == (p95, p99)


def test_extras_are_told_by_their_id() -> None:
    assert is_extra(record(extra="title"))
    assert not is_extra(record())
    assert not is_extra(record(persona="v1.5"))


def test_the_steady_window_is_cut_by_when_requests_started() -> None:
    records = [record(user=n, started_at_s=float(n)) for n in range(6)]
    records[3] = failed("interrupted", user=3, started_at_s=3.0)  # by us
    assert [r.user for r in steady(records, 2.0, 4.0)] == [2, 4]


def test_repeats_pool_what_their_own_summaries_count() -> None:
    """Begun in each one's window, and not cut off by us: so many requests in every figure."""
    ended = [record(user=n, started_at_s=float(n)) for n in range(1, 4)]
    cut = failed("interrupted", user=9, started_at_s=3.0)
    repeats = [
        Repeat(number, {"warmup_s": 2.0, "duration_s": 5.0}, [*ended, cut], [*ended, cut])
        for number in (1, 2)
    ]
    for world in ("measured", "predicted"):
        records, ended_s = pooled(repeats, world)
        assert [r.request_id for r in records] == [
            f"{number}/{kept.request_id}" for number in (1, 2) for kept in ended[1:]
        ]
        assert ended_s == 6.0


def test_throughput_of_repeats_is_weighted_by_their_windows() -> None:
    rates = {"prompt_tok_s": 8.0, "completion_tok_s": None, "requests_per_s": 2.0}
    first = {**rates, "concurrency_mean": 4.0, "window_s": 30.0}
    second = {**rates, "concurrency_mean": 1.0, "window_s": 10.0}
    nothing = {**dict.fromkeys(first), "window_s": 0.0}  # stopped within the warm-up
    assert mean_totals([first, second, nothing]) == {
        **rates, "concurrency_mean": 3.25, "window_s": 40.0
    }  # fmt: skip
    assert mean_totals([])["requests_per_s"] is None


def test_a_repeat_is_as_much_of_a_mean_as_it_is_of_the_time() -> None:
    """An idle second of a repeat that was stopped early is no half of all."""
    rows: list[dict[str, float | None]] = [
        {"busy_share": 0.9, "window_s": 59.0}, {"busy_share": 0.0, "window_s": 1.0},
    ]  # fmt: skip
    assert mean_over_windows(rows, "busy_share") == pytest.approx(0.885)
    stopped: dict[str, float | None] = {"busy_share": None, "window_s": 0.0}
    assert mean_over_windows([*rows, stopped], "busy_share") == pytest.approx(0.885)
    assert mean_over_windows([*rows, {"window_s": 5.0}], "busy_share") is None
    assert mean_over_windows([stopped], "busy_share") is None


def test_usable_leaves_out_failures_and_what_we_spoilt() -> None:
    records = [record(0), failed(user=1), record(2, valid=False)]
    assert [r.user for r in usable(records)] == [0]


def test_a_personas_figures() -> None:
    records = [
        record(0, ttft_s=0.25), record(1, ttft_s=0.75), record(0, extra="title", ttft_s=9.0),
        failed("abandoned", user=2), failed("abandoned", user=3, valid=False),
        record(4, valid=False), record(5, ttft_s=0.5),
    ]  # fmt: skip
    figures = persona_statistics(records)
    assert (figures["requests"], figures["errors"]) == (7, 2)
    assert figures["ttft_s"]["n"] == 3
    assert figures["ttft_s"]["mean"] == 0.5
    assert figures["abandoned_share"] == 1 / 4, "of those that the harness did not spoil"
    assert figures["prefill_tok_s"] == []
    queued = persona_statistics([record(0, server_queue_s=0.5), record(1)])
    assert (queued["queue_s"]["mean"], queued["queue_s"]["n"]) == (0.5, 1)


def test_a_persona_without_records() -> None:
    figures = persona_statistics([])
    assert (figures["requests"], figures["abandoned_share"]) == (0, None)
    assert figures["e2e_s"] == {"p50": None, "p95": None, "p99": None, "mean": None, "n": 0}


def test_prefill_is_told_by_how_much_was_read_and_at_what_depth() -> None:
    def read(prompt: int, cached: int | None, rate: float | None) -> dict[str, object]:
        return {
            "prompt_tokens": prompt, "cached_tokens": cached, "server_prefill_tok_s": rate
        }  # fmt: skip

    rows = prefill_by_size(
        record(**read(*given))
        for given in [
            (63, 0, 100.0), (4000, 3990, 300.0), (64, 0, 200.0), (255, 0, 400.0),
            (70_000, None, 900.0), (10, 0, None),
        ]
    )  # fmt: skip
    assert [(row["prompt_tokens_bin"], row["n"], row["p50"]) for row in rows] == [
        ("0-63", 2, 200.0),
        ("64-255", 2, 300.0),
        ("65536+", 1, 900.0),
    ]
    assert [row["context_tokens_p50"] for row in rows] == [1995.0, 0.0, None]


def test_kinds_of_failures_by_how_often() -> None:
    records = [failed("reset"), failed("abandoned"), failed("abandoned"), failed("interrupted")]
    assert list(error_kinds([*records, record()]).items()) == [("abandoned", 2), ("reset", 1)]


# Quarters of a second, so that a grid of that step measures them exactly.
ends = st.integers(0, 40)
spans = st.lists(
    st.tuples(ends, ends).map(lambda pair: (min(pair) / 4, max(pair) / 4)), max_size=12
)


def on_grid(intervals: list[tuple[float, float]], level: int) -> float:
    middles = [(cell + 0.5) / 4 for cell in range(40)]
    counts = (sum(low < at < high for low, high in intervals) for at in middles)
    return sum(count >= level for count in counts) / 4


@given(spans)
def test_busy_is_the_length_of_the_union(intervals: list[tuple[float, float]]) -> None:
    assert busy_seconds(intervals) == on_grid(intervals, 1)


@given(spans, st.integers(1, 5))
def test_time_at_a_level(intervals: list[tuple[float, float]], level: int) -> None:
    assert seconds_at_level(intervals, level) == on_grid(intervals, level)
