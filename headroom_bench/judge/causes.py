"""What ran out first: what took the time of the turns that missed their target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headroom_bench.judge.turns import TargetLike, Turn
from headroom_bench.judge.verdict import GroupVerdict, Load, is_lost, misses
from headroom_bench.judge.waits import Phase
from headroom_bench.units import counted

NOTABLE_SHARE = 0.05
"""Below it nothing is told of."""
REFUSED = {
    "context_exceeded": ("context", "did not fit into their context"),
    "abandoned": ("patience", "were given up on"),
    "server_busy": ("slots", "were turned away from a full queue"),
}
"""Kind of error: the limit that it tells of, and in words."""
ENDED_BY_CACHE = ("KV", "were ended in their answers by a cache that ran out")

UNEXPLAINED = "the queue, others' prompts, or both ends of the way"
"""What time may be that is neither the round trip nor the server's own work."""


def limit_of_failure(error_kind: str | None, broke_off: bool) -> tuple[str, str] | None:
    """What such a failure tells of; None where it tells of no limit. `broke_off`: the answer had
    begun. A prompt that is too long is refused before its first token, a long answer is cut."""
    if error_kind == "context_exceeded" and broke_off:
        return ENDED_BY_CACHE
    return REFUSED.get(error_kind or "")


def limit_row(limit: str, share: float, evidence: str, modelled: bool = False) -> dict[str, Any]:
    return {"limit": limit, "share": share, "evidence": evidence, "modelled": modelled}


def what_broke(
    unmet: Sequence[Turn],
    load: Load,
    bound_by_phase: Mapping[str, str],
    on_radio: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Rows `{limit, share, evidence, modelled}` for turns that missed their target: what took their
    time.

    Shares are of `unmet`. A wait in the queue is for slots where more was in flight than there are
    (or all were taken, where their number is not known), else for room in a shared cache, else for
    the pass before; what nobody explains is for slots too where more was in flight. Prefill and
    decoding are bound as `bound_by_phase` says (`prefill`, `decode`: a bound). `on_radio` are the
    personas whose clients share a radio.
    """
    causes = Counter(_cause(turn, load, bound_by_phase, on_radio) for turn in unmet)
    rows = [
        limit_row(
            cause.limit,
            count / len(unmet),
            f"{count} of {len(unmet)} unmet turns {cause.told}",
            cause.modelled,
        )
        for cause, count in causes.items()
    ]
    return sorted(rows, key=lambda row: -row["share"])


class _Cause(NamedTuple):
    limit: str
    told: str
    modelled: bool = False
    """Whether a model of the box names the limit; where the time went is the records' to say."""


_TOLD: dict[Phase, str] = {
    "queue": "waited longest in the queue",
    "prefill": "waited longest for their prompt to be read",
    "reasoning": "waited longest for hidden reasoning",
    "decode": "waited longest for tokens to be written",
    "network": "waited longest for the network",
    "unexplained": "waited longest for what nobody explains",
}
_TOO_SLOW = "were written too slowly to read along"


def _cause(
    turn: Turn, load: Load, bound_by_phase: Mapping[str, str], on_radio: Collection[str]
) -> _Cause:
    if turn.error_kind == "server_error" and load.killed:
        return _Cause("KV", "were ended by a cache that ran out")
    if turn.error_kind is not None:
        known = limit_of_failure(turn.error_kind, turn.broke_off)
        return _Cause(*(known or ("server", f"failed ({turn.error_kind})")))
    phase = turn.cause
    if phase is None:
        return _Cause("server", "came to nothing that the device can show")
    if phase == "queue":
        return _queue_cause(turn, load, bound_by_phase)
    if phase == "unexplained":
        return _unexplained_cause(turn, load)
    if phase == "network":
        return _Cause("radio" if turn.persona in on_radio else "network", _TOLD[phase])
    bound = bound_by_phase.get("prefill" if phase == "prefill" else "decode")
    told = _TOO_SLOW if turn.too_slow else _TOLD[phase]
    if bound is None:
        return _Cause(phase, told)
    return _Cause(bound, f"{told}, bound by {bound}", modelled=True)


def _queue_cause(turn: Turn, load: Load, bound_by_phase: Mapping[str, str]) -> _Cause:
    told = _TOLD["queue"]
    if _slots_ran_out(turn, load):
        return _Cause("slots", told)
    if load.one_pool:
        return _Cause("KV", f"{told}, with places free but no room in the cache")
    # A place was free: what they waited for is the end of a long pass, which reads a prompt.
    bound = bound_by_phase.get("prefill")
    return _Cause(bound or "prefill", f"{told} while others' prompts were read", bound is not None)


def _slots_ran_out(turn: Turn, load: Load) -> bool:
    crowded = is_crowded(turn.in_flight, load)
    if crowded is not None:
        return crowded
    return load.all_slots_share is None or load.all_slots_share >= NOTABLE_SHARE


def is_crowded(in_flight: int | None, load: Load) -> bool | None:
    """Whether one of so many requests has to wait for a slot; None where nobody knows."""
    if in_flight is None or load.slots is None:
        return None
    return in_flight > load.slots


def _unexplained_cause(turn: Turn, load: Load) -> _Cause:
    if is_crowded(turn.in_flight, load):
        slots = counted(load.slots or 0, "slot")
        return _Cause("slots", f"waited longest with more in flight than the server's {slots}")
    if "prefill" not in turn.phases:
        return _Cause(
            "first token",
            "waited longest for their first token, of which the server tells nothing",
        )
    return _Cause("unexplained", f"{_TOLD['unexplained']}: {UNEXPLAINED}")


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
    # In standard errors: few turns weigh little, and bad luck is none of those who are lost.
    worst = max(lost, key=lambda group: misses(group, targets[group.persona]))
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
