"""summary.json: what a run came to, measured and predicted in one shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headroom_bench.judge.causes import first_to_break, what_broke
from headroom_bench.judge.turns import TargetLike, Turn, turns_of
from headroom_bench.judge.verdict import Load, judge, turn_figures
from headroom_bench.records import RequestRecord
from headroom_bench.report.ratios import persona_ratios, ratios
from headroom_bench.results.prompt_checks import prompt_figures
from headroom_bench.results.statistics import (
    error_kinds,
    is_extra,
    mostly_left_out,
    persona_statistics,
    steady,
    usable,
)
from headroom_bench.results.throughput import totals
from headroom_bench.results.twins import twins


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
    ended_s: float | None = None
    """When its life ended, on its own clock; None: as the run did."""
    totals: Mapping[str, float | None] | None = None
    """Its throughput, where its records are not of one life."""


@dataclass(frozen=True, slots=True)
class Window:
    """The part of the run that counts, on the run's clock."""

    warmup_s: float
    ended_s: float


def summarise_world(
    outcome: WorldOutcome,
    records: Sequence[RequestRecord],
    targets: Mapping[str, TargetLike | None],
    people: Mapping[str, int],
    window: Window,
) -> dict[str, Any]:
    """Figures, verdicts and limits of one world, over its `records` that count; its throughput is
    of all that was in flight from the end of the warm-up to the end of its life.

    `people`: how many the crowd has of each persona, whether or not they came to ask.
    """
    own_records = {name: [r for r in records if r.persona == name] for name in targets}
    spoilt = {name for name, own in own_records.items() if _spoilt(own)}
    turns = [turn for turn in turns_of(records, targets) if turn.persona not in spoilt]
    load, phases, on_radio = outcome.load, outcome.phases, outcome.on_radio
    word, groups = judge(turns, targets, load)
    ended_s = window.ended_s if outcome.ended_s is None else outcome.ended_s
    by_persona = {}
    for name, own in own_records.items():
        by_persona[name] = {
            "users": people[name],
            "left_out": sum(not record.valid for record in own),
            **persona_statistics(own),
            **prompt_figures([record for record in usable(own) if not is_extra(record)]),
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
        "left_out": sum(not record.valid for record in records),
        "errors": sum(1 for record in records if not record.ok),
        "error_kinds": error_kinds(records),
        "by_persona": by_persona,
        "totals": {
            **(outcome.totals or totals(outcome.records, window.warmup_s, ended_s)),
            "slots": load.slots,
            "busy_share": load.busy_share,
            "all_slots_share": load.all_slots_share,
            "radio_busy_shares": dict(load.radio_busy_shares),
            "preempted": load.preempted,
            "killed": load.killed,
            "one_pool": load.one_pool,
        },
        "bound_by_phase": dict(phases),
        "verdict": word,
        "broke": first_to_break(groups, turns, targets, load, phases, on_radio),
        "limits": list(outcome.limits),
    }


def _spoilt(records: Sequence[RequestRecord]) -> bool:
    return mostly_left_out(sum(not record.valid for record in records), len(records))


def _both_worlds(
    measured: Sequence[RequestRecord],
    predicted: Sequence[RequestRecord],
    targets: Mapping[str, TargetLike | None],
) -> dict[str, Any] | None:
    """The `ratio` of a summary; None, in whole or for a persona, where most were left out."""
    if _spoilt(measured):
        return None
    turns: list[list[Turn]] = [turns_of(world, targets) for world in (measured, predicted)]
    by_persona = {}
    for name in targets:
        ours, theirs = ([r for r in world if r.persona == name] for world in (measured, predicted))
        own_turns = ([turn for turn in world if turn.persona == name] for world in turns)
        by_persona[name] = None if _spoilt(ours) else persona_ratios(ours, theirs, *own_turns)
    return {**ratios(measured, predicted), "by_persona": by_persona}


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
    records = steady(measured.records, window.warmup_s, window.ended_s)
    ours = summarise_world(measured, records, targets, people, window)
    summary = {**head, "duration_s": window.ended_s, "warmup_s": window.warmup_s, **ours}
    summary["predicted"] = summary["ratio"] = None
    if predicted is not None:
        # The same requests: one that the model has begin later than the run ended counts too.
        same = twins(predicted.records, records)
        summary["predicted"] = summarise_world(predicted, same, targets, people, window)
        summary["ratio"] = _both_worlds(records, same, targets)
    summary["harness"] = dict(harness)
    summary["warnings"] = list(warnings)
    return summary
