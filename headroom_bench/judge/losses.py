"""What the groups that miss their target wanted, and what they waited for instead."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headroom_bench.judge.turns import TargetLike, Turn
from headroom_bench.judge.verdict import GroupVerdict, is_lost

DEVICE = "device"
"""A device's own time: recognising speech, synthesising it, drawing."""


def losses(
    groups: Mapping[str, GroupVerdict],
    turns: Sequence[Turn],
    targets: Mapping[str, TargetLike | None],
) -> list[dict[str, Any]]:
    """A row for every group that is lost, the one that met least first.

    `wait_s` is the mean wait of its answered turns (None where none was), `spent_s` where it went:
    mean seconds by phase, and the device's own, which together are `wait_s`; `too_slow_share` is
    the share of its turns that came in time and were written too slowly, `failed_share` by kind of
    error that of those without an answer.
    """
    lost = [(group, target) for name, group in groups.items() if (target := targets[name])]
    rows = [_row(group, target, turns) for group, target in lost if is_lost(group, target)]
    return sorted(rows, key=lambda row: row["target_met_share"])


def _row(group: GroupVerdict, target: TargetLike, turns: Iterable[Turn]) -> dict[str, Any]:
    own = [turn for turn in turns if turn.persona == group.persona]
    answered = [turn for turn in own if turn.wait_s is not None]
    failed = Counter(turn.error_kind for turn in own if turn.error_kind is not None)
    wait_s = statistics.fmean(turn.wait_s or 0.0 for turn in answered) if answered else None
    return {
        "persona": group.persona,
        "target": {
            "metric": target.metric,
            "limit_s": target.limit_s,
            "min_tok_s": target.min_tok_s,
            "share": target.share,
        },
        "target_met_share": group.met_share,
        "turns": group.turns,
        "wait_s": wait_s,
        "spent_s": {} if wait_s is None else _spent_s(answered, wait_s),
        "too_slow_share": sum(turn.too_slow for turn in own) / len(own),
        "failed_share": {kind: count / len(own) for kind, count in failed.most_common()},
    }


def _spent_s(answered: Sequence[Turn], wait_s: float) -> dict[str, float]:
    total: dict[str, float] = {}
    for turn in answered:
        for phase, seconds in turn.phases.items():
            total[phase] = total.get(phase, 0.0) + seconds
    spent = {phase: seconds / len(answered) for phase, seconds in total.items()}
    return {**spent, DEVICE: max(0.0, wait_s - sum(spent.values()))}
