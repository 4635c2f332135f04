"""summary.json: what a run came to, measured and predicted in one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headroom_bench.judge.causes import first_to_break, what_broke
from headroom_bench.judge.turns import TargetLike, turns_of
from headroom_bench.judge.verdict import Load, judge, turn_figures
from headroom_bench.records import RequestRecord
from headroom_bench.results.prompt_checks import prompt_figures
from headroom_bench.results.statistics import (
    error_kinds,
    is_extra,
    persona_statistics,
    spread,
    steady,
    totals,
    usable,
)

RATIOS = {
    "ttft_p50": ("ttft_s", "p50"),
    "ttft_p95": ("ttft_s", "p95"),
    "decode_p50": ("decode_tok_s", "p50"),
    "e2e_p50": ("e2e_s", "p50"),
    "e2e_p95": ("e2e_s", "p95"),
}
"""Name of a ratio: the metric and the percentile that it compares."""


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """The records of one world, and what is known of its box."""

    records: Sequence[RequestRecord]
    load: Load = field(default_factory=Load)
    limits: Sequence[Mapping[str, Any]] = field(default_factory=list)
    phases: Mapping[str, str] = field(default_factory=dict)
    """What bound prefill and decoding, where it is known."""
    on_radio: Collection[str] = ()
    """Personas whose clients share a radio."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the run that counts, on the run's clock."""

    warmup_s: float
    ended_s: float

    @property
    def length_s(self) -> float:
        return max(0.0, self.ended_s - self.warmup_s)


def kept(records: Sequence[RequestRecord], window: Window) -> list[RequestRecord]:
    """The records that count: begun within the window, and not cut off by us."""
    within = steady(records, window.warmup_s, window.ended_s)
    return [record for record in within if record.error_kind != "interrupted"]


def summarise_world(
    outcome: WorldOutcome,
    records: Sequence[RequestRecord],
    targets: Mapping[str, TargetLike | None],
    people: Mapping[str, int],
    window: Window,
) -> dict[str, Any]:
    """Figures, verdicts and limits of one world, over its `records` that count.

    `people`: how many the crowd has of each persona, whether or not they came to ask.
    """
    turns = turns_of(records, targets)
    load, phases, on_radio = outcome.load, outcome.phases, outcome.on_radio
    word, groups = judge(turns, targets, load)
    by_persona = {}
    for name in targets:
        own = [record for record in records if record.persona == name]
        by_persona[name] = {
            "users": people[name],
            **persona_statistics(own),
            **prompt_figures([record for record in own if record.ok and not is_extra(record)]),
            **turn_figures(turns, name),
            **groups[name].as_row(),
            "unmet": what_broke(
                [turn for turn in turns if turn.persona == name and turn.met is False],
                load,
                phases,
                on_radio,
            ),
        }
    return {
        "requests": len(records),
        "errors": sum(1 for record in records if not record.ok),
        "error_kinds": error_kinds(records),
        "by_persona": by_persona,
        "totals": {
            **totals(records, window.length_s),
            "busy_share": load.busy_share,
            "all_slots_share": load.all_slots_share,
            "radio_busy_shares": dict(load.radio_busy_shares),
            "preempted": load.preempted,
            "killed": load.killed,
        },
        "bound_by_phase": dict(phases),
        "verdict": word,
        "broke": first_to_break(groups, turns, targets, load, phases, on_radio),
        "limits": list(outcome.limits),
    }


def same_requests(
    predicted: Sequence[RequestRecord], measured: Sequence[RequestRecord]
) -> list[RequestRecord]:
    """The predicted records of the requests that were measured."""
    names = {record.request_id for record in measured}
    return [record for record in predicted if record.request_id in names]


def ratios(measured: Sequence[RequestRecord], predicted: Sequence[RequestRecord]) -> dict[str, Any]:
    """Measured / predicted of the main figures, over all requests that both worlds have."""
    ours = {record.request_id: record for record in usable(measured)}
    theirs = {record.request_id: record for record in usable(predicted)}
    both = [name for name in ours if name in theirs]
    found: dict[str, Any] = {"n": len(both)}
    for name, (metric, percentile) in RATIOS.items():
        ours_at, theirs_at = (
            spread(getattr(world[request_id], metric) for request_id in both)[percentile]
            for world in (ours, theirs)
        )
        found[name] = ours_at / theirs_at if ours_at is not None and theirs_at else None
    return found


def build_summary(
    head: Mapping[str, Any],
    measured: WorldOutcome,
    predicted: WorldOutcome | None,
    targets: Mapping[str, TargetLike | None],
    people: Mapping[str, int],
    window: Window,
    harness: Mapping[str, Any],
    warnings: Sequence[str],
) -> dict[str, Any]:
    """The whole document. `head` holds run_id, target and the like; `people` is the crowd's count
    of each persona."""
    records = kept(measured.records, window)
    ours = summarise_world(measured, records, targets, people, window)
    summary = {**head, "duration_s": window.ended_s, "warmup_s": window.warmup_s, **ours}
    summary["predicted"] = summary["ratio"] = None
    if predicted is not None:
        # The same requests: one that the model has begin later than the run ended counts too.
        same = same_requests(predicted.records, records)
        summary["predicted"] = summarise_world(predicted, same, targets, people, window)
        summary["ratio"] = ratios(records, same)
    summary["harness"] = dict(harness)
    summary["warnings"] = list(warnings)
    return summary
