"""What a redline's trials say: each judged by itself, those of a size together."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.experiments.bounds import bound_by_phase, time_spent
from headroom_bench.judge.causes import first_to_break
from headroom_bench.judge.losses import losses
from headroom_bench.judge.turns import TargetLike, Turn
from headroom_bench.judge.verdict import GroupVerdict, Load, Word
from headroom_bench.records import RequestRecord

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Trial:
    """One probe, judged. Its records are gone: thousands of people's would not fit."""

    people: int
    seed: int
    window_s: float
    """Of its life that counts: without the warm-up."""
    requests: int
    turns: Sequence[Turn]
    load: Load
    last: Sequence[RequestRecord]
    """Its last records, under its full load: they tell what bound it."""
    limits: list[dict[str, Any]]
    took_s: float


def pooled(trials: Sequence[Trial]) -> Load:
    """The mean load of trials of one size, each by how long it was."""

    def mean(values: list[float | None]) -> float | None:
        known = [(v, t.window_s) for v, t in zip(values, trials, strict=True) if v is not None]
        lived_s = sum(window_s for _, window_s in known)
        return sum(value * window_s for value, window_s in known) / lived_s if lived_s else None

    return Load(
        mean([trial.load.busy_share for trial in trials]),
        mean([trial.load.all_slots_share for trial in trials]),
        sum(trial.load.preempted for trial in trials),
        sum(trial.load.killed for trial in trials),
        any(trial.load.one_pool for trial in trials),
        {
            name: statistics.fmean(
                [trial.load.radio_busy_shares[name] for trial in trials],
                [trial.window_s for trial in trials],
            )
            for name in (trials[0].load.radio_busy_shares if trials else ())
        },
        next((trial.load.slots for trial in trials), None),
    )


def point_of(
    people: int,
    trials: Sequence[Trial],
    word: Word,
    groups: Mapping[str, GroupVerdict],
    crowd: Crowd,
    warmup_s: float,
    doubt: float,
) -> dict[str, Any]:
    """One size of the curve. `doubt` is the chance that further turns say otherwise of it."""
    load, counts = pooled(trials), crowd.counts()
    return {
        "people": people,
        "verdict": word,
        "doubt": doubt,
        "trials": len(trials),
        "seeds": [trial.seed for trial in trials],
        "longest_s": warmup_s + max(trial.window_s for trial in trials),
        "requests": sum(trial.requests for trial in trials),
        "busy_share": load.busy_share,
        "all_slots_share": load.all_slots_share,
        "radio_busy_shares": dict(load.radio_busy_shares),
        "by_persona": {
            name: {"people": counts[name], **group.as_row()} for name, group in groups.items()
        },
    }


def first_broken(
    trials: Sequence[Trial],
    groups: Mapping[str, GroupVerdict],
    targets: Mapping[str, TargetLike | None],
    phases: Mapping[str, str],
    on_radio: Collection[str],
) -> dict[str, Any] | None:
    """What broke in trials of one size, all together; None where none failed."""
    turns = [turn for trial in trials for turn in trial.turns]
    broke = first_to_break(groups, turns, targets, pooled(trials), phases, on_radio)
    return broke and {**broke, "groups": losses(groups, turns, targets)}


def phases_of(trials: Sequence[Trial], deployment: Deployment | None) -> dict[str, str]:
    """What bound prefill and decoding in these trials."""
    if deployment is None:
        return {}
    records = [record for trial in trials for record in trial.last]
    return bound_by_phase(time_spent(records, deployment.pricer()))


def merged_limits(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A limit's mean share over trials, each by how long it was, with the evidence of the trial
    where it weighs most."""
    best: dict[str, dict[str, Any]] = {}
    total: dict[str, float] = {}
    lived_s = sum(trial.window_s for trial in trials)
    for trial in trials:
        for row in trial.limits:
            limit = row["limit"]
            total[limit] = total.get(limit, 0.0) + row["share"] * trial.window_s / lived_s
            if limit not in best or row["share"] > best[limit]["share"]:
                best[limit] = row
    merged = [{**row, "share": total[limit]} for limit, row in best.items()]
    return sorted(merged, key=lambda row: -row["share"])
