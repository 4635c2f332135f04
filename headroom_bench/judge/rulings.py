"""Whether a crowd's size passes, in the search for a redline, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping

from headroom_bench.judge.redline import Ruling
from headroom_bench.judge.turns import TargetLike
from headroom_bench.judge.verdict import LEAST_TURNS, TIGHT_USED, GroupVerdict, is_lost, misses

PLENTY_OF_TURNS = 300
"""With so many a share of 95 % is known to 1.3 points: that is enough."""
FIRM_ERRORS = 1.5
"""Standard errors between a group and its target that make a ruling firm."""
FEW_TURNS = 5
"""So many turns without a miss, all well inside, make a ruling firm too."""
SPARE = 1.25
"""Times the seconds in which lacking turns should come: they do not come evenly."""


def ruling_on(
    groups: Mapping[str, GroupVerdict], targets: Mapping[str, TargetLike | None]
) -> Ruling:
    """A size passes where no group is lost, and is judged once each has the turns of a verdict; it
    fails where one is lost, and is judged once one of those has them."""
    asked = [(group, targets[name]) for name, group in groups.items()]
    lost = [group for group, target in asked if is_lost(group, target)]
    firm = all(_firm(group, target) for group, target in asked)
    if lost:
        return Ruling(False, firm, not all(_thin(group, targets) for group in lost))
    return Ruling(True, firm, not any(_thin(group, targets) for group in groups.values()))


def seconds_to_judge(
    groups: Mapping[str, GroupVerdict],
    targets: Mapping[str, TargetLike | None],
    lived_s: float,
) -> float:
    """Life seconds in which the groups that a ruling waits for should have the turns that they
    lack, as often as they came in the `lived_s` so far; as long again where none came. 0 where it
    is judged."""
    if ruling_on(groups, targets).judged:
        return 0.0
    thin = [group for group in groups.values() if _thin(group, targets)]
    lost = [group for group in thin if is_lost(group, targets[group.persona])]

    def needed_s(group: GroupVerdict) -> float:
        if group.turns == 0:
            return lived_s
        return SPARE * lived_s * (LEAST_TURNS - group.turns) / group.turns

    if lost:  # one of them is enough
        return min(map(needed_s, lost))
    return max(map(needed_s, thin))


def _thin(group: GroupVerdict, targets: Mapping[str, TargetLike | None]) -> bool:
    """Whether a group with a target has too few turns for a verdict."""
    return targets[group.persona] is not None and group.turns < LEAST_TURNS


def _firm(group: GroupVerdict, target: TargetLike | None) -> bool:
    """Whether more turns would hardly change the ruling on a group: its share is far from the
    target, or all of its turns were well inside."""
    if target is None or group.turns >= PLENTY_OF_TURNS:
        return True
    if group.met_share == 1 and group.turns >= FEW_TURNS:
        return group.used_p95 is not None and group.used_p95 < TIGHT_USED
    return group.turns > 0 and abs(misses(group, target)) >= FIRM_ERRORS
