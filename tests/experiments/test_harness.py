"""What the harness says of itself."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from headroom_bench.experiments import measuring
from headroom_bench.experiments.bounds import faster_than_memory
from headroom_bench.experiments.harness import (
    Harness,
    harness_complaints,
    harness_figures,
    slip_complaint,
)
from headroom_bench.live.lag import HarnessHealth
from headroom_bench.live.measured import suspicion
from headroom_bench.records import RequestRecord
from headroom_bench.roofline.deployment import Deployment


def record(**fields: Any) -> RequestRecord:
    made = RequestRecord("r", "measured", "p-0/c0/t0/r0", "c", "p", 0, 0, 0, "t", None, 1.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def figures(cpu: float, records: list[RequestRecord]) -> dict[str, Any]:
    harness = Harness(HarnessHealth(0.1, 0.5, 3.0, cpu), 0.002, 4, 3)
    return harness_figures(harness, records, 1.0)


def test_a_mock_that_is_late_says_so_where_it_is_seen_in_the_figures() -> None:
    """0.07 s of ten busy seconds are less than a ratio's noise; 0.07 s of two are not, however long
    nobody asked anything afterwards."""
    busy = [record(sent_s=float(n), end_s=n + 1.0) for n in range(10)]
    assert slip_complaint(0.07, busy) is None
    told = slip_complaint(0.07, [*busy[:2], record(sent_s=None, end_s=900.0)])
    assert told is not None
    assert told.startswith("the mock server was late by 0.07 s of the 2.0 s in which it was asked")
    assert slip_complaint(0.0, []) is None


def test_an_idle_client_is_valid_and_says_how_far_it_is_from_full() -> None:
    got = figures(0.04, [record(ok=True, sent_s=1.003, connect_s=0.001) for _ in range(3)])
    assert got["valid"] is True
    assert got["headroom_times"] == pytest.approx(25)
    assert got["dispatch_late_p99_ms"] == pytest.approx(2.0)
    assert got["writer_lag_max_ms"] == pytest.approx(2.0)
    assert (got["connections_opened"], got["in_flight_peak"]) == (4, 3)


@pytest.mark.parametrize(("cpu", "spoilt"), [(0.95, 0), (0.2, 10)])
def test_a_client_at_its_limit_says_so(cpu: float, spoilt: int) -> None:
    records = [record(ok=True, valid=number >= spoilt) for number in range(100)]
    got = figures(cpu, records)
    assert got["valid"] is False
    told = harness_complaints(got, records)
    assert len(told) == 1
    assert ("it was the bottleneck" in told[0]) == (cpu > 0.9)
    assert ("left out of the figures: 10 of 100 requests" in told[0]) == (spoilt == 10)


def test_interrupted_requests_are_nobodys_fault() -> None:
    records = [record(valid=False, error_kind="interrupted")]
    assert figures(0.1, records)["valid"] is True
    assert harness_complaints(figures(0.1, records), records) == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"ttft_s": 0.004}, "TTFT below a round trip"),
        ({"ttft_s": 0.02}, None),
        ({"completion_tokens": 3, "stream_events": 9}, "fewer tokens than events"),
        ({"completion_tokens": 9, "stream_events": 3}, None),
        ({"prompt_tokens": 10, "cached_tokens": 11}, "more cached than prompt tokens"),
    ],
)
def test_what_cannot_be_is_marked(fields: dict[str, Any], told: str | None) -> None:
    assert suspicion(record(**fields), 0.01) == told


def test_suspects_are_counted_by_their_reason() -> None:
    records = [record(suspect="TTFT below a round trip") for _ in range(3)]
    told = harness_complaints(figures(0.1, records), records)
    assert told == ["3 answers cannot be right: TTFT below a round trip"]


def test_answers_faster_than_memory_are_found() -> None:
    roofline = Deployment.named(
        model="Llama 3.1 8B", hardware="dgx-spark", quant="Q4_K_M"
    ).pricer()  # 273 GB/s over some 4.7 GB: 58 tokens a second at most

    def answered(rate: float, **more: Any) -> RequestRecord:
        return record(ok=True, decode_tok_s=rate, context_depth_tokens=100, **more)

    slow, fast, drafted = answered(40.0), answered(70.0), answered(70.0, draft_tokens=20)
    assert faster_than_memory([slow, fast, drafted], roofline) == [fast]


class _Ring:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_waits_for_a_gap_unless_it_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MOST_UNCOLLECTED", 1000)
    with measuring._quiet_collector() as collect:
        assert not gc.isenabled()
        ring = weakref.ref(_Ring())
        collect(False)
        assert ring() is not None, "requests are in flight"
        collect(True)
        assert ring() is None
        ring = weakref.ref(_Ring())
        more = [_Ring() for _ in range(1001)]
        collect(False)
        assert ring() is None
        assert len(more) == 1001
    assert gc.isenabled()
