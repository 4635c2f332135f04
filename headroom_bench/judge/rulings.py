"""Whether a crowd's size passes, in the search for a redline, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Mapping

from headroom_bench.judge.redline import Ruling
from headroom_bench.judge.turns import TargetLike
from headroom_bench.judge.verdict import (
    LEAST_TURNS,
    TIGHT_USED,
    GroupVerdict,
    is_lost,
    turns_allowed,
    turns_unmet,
)

ENOUGH_TURNS = 120
"""With so many a group's share of 95 % is known to 2 points: nobody waits for more."""
FEW_TURNS = 5
"""So many turns without a miss, all well inside, leave no doubt either."""
SPARE = 1.25
"""Times the seconds in which lacking turns should come: they do not come evenly."""


def ruling_on(
    groups: Mapping[str, GroupVerdict], targets: Mapping[str, TargetLike | None]
) -> Ruling:
    """A size passes where no group is lost, and is judged once each has the turns of a verdict; it
    fails where one is lost, and is judged once one of those has them."""
    asked = [(group, target) for name, group in groups.items() if (target := targets[name])]
    lost = [(group, target) for group, target in asked if is_lost(group, target)]
    if lost:
        doubt = min(1 - chance_to_lose(*one) for one in lost)
        return Ruling(False, doubt, not all(_thin(group) for group, _ in lost))
    chances = [chance_to_lose(*one) for one in asked if not _well_inside(one[0])]
    return Ruling(True, min(1.0, sum(chances)), not any(_thin(group) for group, _ in asked))


def chance_to_lose(group: GroupVerdict, target: TargetLike) -> float:
    """The chance that a group is lost once it has `ENOUGH_TURNS`, by the turns it had so far.

    Unmet turns among those to come are beta-binomial: a binomial share with Jeffreys' prior,
    Beta(1/2, 1/2). 0 or 1 where it has enough.
    """
    turns, unmet = group.turns, turns_unmet(group)
    more = max(0, ENOUGH_TURNS - turns)
    spare = math.floor(turns_allowed(turns + more, target)) - unmet
    if spare < 0 or more == 0:
        return float(is_lost(group, target))
    a, b = unmet + 0.5, turns - unmet + 0.5
    chance = _beta(a, more + b) / _beta(a, b)  # that none of those to come is unmet
    kept = 0.0
    for k in range(min(spare, more) + 1):
        kept += chance
        chance *= (more - k) / (k + 1) * (a + k) / max(more - k - 1 + b, 0.5)
    return max(0.0, 1 - kept)


def _beta(a: float, b: float) -> float:
    return math.exp(math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))


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
    asked = [group for name, group in groups.items() if targets[name] is not None]
    thin = [group for group in asked if _thin(group)]
    lost = [group for group in thin if is_lost(group, targets[group.persona])]

    def needed_s(group: GroupVerdict) -> float:
        if group.turns == 0:
            return lived_s
        return SPARE * lived_s * (LEAST_TURNS - group.turns) / group.turns

    if lost:  # one of them is enough
        return min(map(needed_s, lost))
    return max(map(needed_s, thin))


def _thin(group: GroupVerdict) -> bool:
    """Whether a group has too few turns for a verdict."""
    return group.turns < LEAST_TURNS


def _well_inside(group: GroupVerdict) -> bool:
    """Whether none of a few turns came near its limit."""
    if group.turns < FEW_TURNS or group.met_share != 1 or group.used_p95 is None:
        return False
    return group.used_p95 < TIGHT_USED
