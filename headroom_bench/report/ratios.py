"""Measured / predicted, over the requests and turns of which both worlds have the figure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from headroom_bench.judge.turns import Turn
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import is_extra, spread, usable

RATIOS = {
    "ttft_p50": ("ttft_s", "p50"),
    "ttft_p95": ("ttft_s", "p95"),
    "decode_p50": ("decode_tok_s", "p50"),
    "e2e_p50": ("e2e_s", "p50"),
    "e2e_p95": ("e2e_s", "p95"),
}
"""Name of a ratio: the metric and the percentile that it compares."""

_OF_A_PERSONA = ("ttft_s", "ttfv_s", "decode_tok_s", "e2e_s")


def ratios(measured: Sequence[RequestRecord], predicted: Sequence[RequestRecord]) -> dict[str, Any]:
    """The ratios of the main figures, over all requests that both worlds have; `n` of them."""
    ours, theirs = _by_id(usable(measured)), _by_id(usable(predicted))
    found: dict[str, Any] = {"n": len(ours.keys() & theirs.keys())}
    for name, (metric, percentile) in RATIOS.items():
        found[name] = _ratio(_known(ours, metric), _known(theirs, metric), percentile)["ratio"]
    return found


def persona_ratios(
    measured: Iterable[RequestRecord],
    predicted: Iterable[RequestRecord],
    turns: Iterable[Turn],
    predicted_turns: Iterable[Turn],
) -> dict[str, Any]:
    """`{ratio, n}` of the medians of one persona's metrics, `turn_s` among them: of what both
    worlds have. `n` is how many those are."""
    ours, theirs = (
        _by_id(record for record in usable(records) if not is_extra(record))
        for records in (measured, predicted)
    )
    found = {
        metric: _ratio(_known(ours, metric), _known(theirs, metric), "p50")
        for metric in _OF_A_PERSONA
    }
    found["turn_s"] = _ratio(_waits(turns), _waits(predicted_turns), "p50")
    return found


def _by_id(records: Iterable[RequestRecord]) -> dict[str, RequestRecord]:
    return {record.request_id: record for record in records}


def _known(records: Mapping[str, RequestRecord], metric: str) -> dict[Hashable, float]:
    values = {name: getattr(record, metric) for name, record in records.items()}
    return {name: value for name, value in values.items() if value is not None}


def _waits(turns: Iterable[Turn]) -> dict[Hashable, float]:
    return {
        (turn.persona, turn.user, turn.conversation_id, turn.turn): turn.wait_s
        for turn in turns
        if turn.wait_s is not None
    }


def _ratio(
    ours: Mapping[Hashable, float], theirs: Mapping[Hashable, float], percentile: str
) -> dict[str, Any]:
    both = ours.keys() & theirs.keys()
    at = [spread(world[name] for name in both)[percentile] for world in (ours, theirs)]
    return {"ratio": at[0] / at[1] if at[0] is not None and at[1] else None, "n": len(both)}
