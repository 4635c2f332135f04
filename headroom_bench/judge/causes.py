"""What ran out first: what took the time of the turns that missed their target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headroom_bench.judge.turns import Phase, TargetLike, Turn
from headroom_bench.judge.verdict import LEAST_TURNS, GroupVerdict, Load, is_lost, misses

NOTABLE_SHARE = 0.05
"""Below it nothing is told of."""
REFUSED = {
    "context_exceeded": ("context", "did not fit into their context"),
    "abandoned": ("patience", "were given up on"),
    "server_busy": ("slots", "were turned away from a full queue"),
}
"""Kind of error: the limit that it tells of, and in words."""


def limit_row(limit: str, share: float, evidence: str) -> dict[str, Any]:
    return {"limit": limit, "share": share, "evidence": evidence}


def what_broke(
    unmet: Sequence[Turn],
    load: Load,
    bound_by_phase: Mapping[str, str],
    on_radio: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence}` for turns that missed their target: what took their time.

    Shares are of `unmet`. A wait in the queue is for slots where all were taken, else for room in
    a shared cache, else for the pass before. Prefill and decoding are bound as `bound_by_phase`
    says (`prefill`, `decode`: a bound). `on_radio` are the personas whose clients share a radio.
    """
    causes = Counter(_cause(turn, load, bound_by_phase, on_radio) for turn in unmet)
    rows = [
        limit_row(limit, count / len(unmet), f"{count} of {len(unmet)} unmet turns {told}")
        for (limit, told), count in causes.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])


_TOLD: dict[Phase, str] = {
    "queue": "waited longest in the queue",
    "prefill": "waited longest for their prompt to be read",
    "reasoning": "waited longest for hidden reasoning",
    "decode": "waited longest for tokens to be written",
    "network": "waited longest for the network",
}


def _cause(
    turn: Turn, load: Load, bound_by_phase: Mapping[str, str], on_radio: Collection[str]
) -> tuple[str, str]:
    """The limit, and what happened in words."""
    if turn.error_kind == "server_error" and load.killed:
        return "KV", "were ended by a cache that ran out"
    if turn.error_kind is not None:
        return REFUSED.get(turn.error_kind, ("server", f"failed ({turn.error_kind})"))
    phase = turn.cause
    if phase is None:
        return "server", "came to nothing that the device can show"
    if phase == "queue":
        return _queue_cause(load, bound_by_phase)
    if phase == "network":
        return ("radio" if turn.persona in on_radio else "network"), _TOLD[phase]
    bound = bound_by_phase.get("prefill" if phase == "prefill" else "decode")
    return bound or phase, _TOLD[phase] + (f", bound by {bound}" if bound else "")


def _queue_cause(load: Load, bound_by_phase: Mapping[str, str]) -> tuple[str, str]:
    told = _TOLD["queue"]
    if load.all_slots_share is None or load.all_slots_share >= NOTABLE_SHARE:
        return "slots", told
    if load.one_pool:
        return "KV", f"{told}, with places free but no room in the cache"
    # A place was free: what they waited for is the end of a long pass, which reads a prompt.
    return bound_by_phase.get("prefill", "prefill"), f"{told} while others' prompts were read"


def first_to_break(
    groups: Mapping[str, GroupVerdict],
    turns: Sequence[Turn],
    targets: Mapping[str, TargetLike | None],
    load: Load,
    bound_by_phase: Mapping[str, str],
    on_radio: Collection[str] = (),
) -> dict[str, Any] | None:
    """The group that most clearly misses its target, and what took its time; None where none does.

    `causes` are the rows of `what_broke`, `limit` and `evidence` those of the first.
    """
    lost = [group for name, group in groups.items() if is_lost(group, targets[name])]
    if not lost:
        return None
    # Whoever has the turns of a verdict comes before those who may have been unlucky.
    worst = max(
        lost,
        key=lambda group: (group.turns >= LEAST_TURNS, misses(group, targets[group.persona])),
    )
    unmet = [turn for turn in turns if turn.persona == worst.persona and turn.met is False]
    rows = what_broke(unmet, load, bound_by_phase, on_radio)
    return {
        "persona": worst.persona,
        "target_met_share": worst.met_share,
        "turns": worst.turns,
        "limit": rows[0]["limit"],
        "evidence": rows[0]["evidence"],
        "causes": rows,
        "also_failing": sorted(group.persona for group in lost if group is not worst),
    }
