"""The search for the redline, over probes that are plain functions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.judge.redline import (
    FINE,
    WIDEST,
    Bracket,
    Effort,
    Limits,
    Ruling,
    find_redline,
)

FIRM: Callable[[Sequence[bool]], Ruling] = lambda trials: Ruling(trials[-1], 0.0)  # noqa: E731


def step(edge: int, limits: Limits) -> Bracket[bool]:
    return find_redline(lambda size, _: size <= edge, FIRM, limits)


@given(st.integers(0, 3000), st.integers(1, 50), st.integers(0, 2000))
def test_a_step_is_found(edge: int, least: int, more: int) -> None:
    limits = Limits(least, least + more, 3, 6)
    found = step(edge, limits)
    if edge < least:
        assert (found.passes, found.fails) == (None, least)
    elif edge >= limits.most:
        assert (found.passes, found.fails) == (limits.most, None)
    else:
        assert found.passes is not None
        assert found.fails is not None
        assert found.passes <= edge < found.fails
        assert found.fails - found.passes <= max(1, int(FINE * found.passes))


@given(st.integers(1, 100_000))
def test_it_takes_few_sizes(edge: int) -> None:
    found = step(edge, Limits(1, 1_000_000, 3, 6))
    assert len(found.trials) <= 2 * math.log2(edge + 1) + 3


def test_both_ends_rest_on_several_seeds() -> None:
    found = step(13, Limits(1, 1000, 3, 6))
    assert {size: len(trials) for size, trials in found.trials.items() if len(trials) > 1} == {
        13: 3,
        14: 3,
    }


def test_every_trial_has_its_own_repeat() -> None:
    seen = []

    def probe(size: int, made: Sequence[bool]) -> bool:
        seen.append((size, len(made)))
        return size <= 5

    find_redline(probe, FIRM, Limits(1, 100, 3, 6))
    assert len(seen) == len(set(seen))


def shares(trials: Sequence[float]) -> Ruling:
    """Passes where the mean is at least a half; without doubt when far from it or seen often."""
    mean = sum(trials) / len(trials)
    sure = abs(mean - 0.5) > 0.3 or len(trials) >= 6
    return Ruling(mean >= 0.5, 0.0 if sure else 0.5)


def test_an_end_that_chance_made_is_looked_at_again() -> None:
    """The first trial of 8 is lucky: with more trials it fails, and the bracket moves."""

    def probe(size: int, made: Sequence[float]) -> float:
        if size <= 6:
            return 1.0
        return 1.0 if size <= 8 and not made else 0.0

    found = find_redline(probe, shares, Limits(1, 100, 3, 6))
    assert (found.passes, found.fails) == (6, 7)


def test_an_unlucky_end_is_given_another_chance() -> None:
    def probe(size: int, made: Sequence[float]) -> float:
        return 0.0 if size > 20 or (size > 4 and not made) else 1.0

    found = find_redline(probe, shares, Limits(1, 100, 3, 6))
    assert (found.passes, found.fails) == (20, 21)


def test_sizes_far_from_the_edge_are_not_looked_at_again_and_again() -> None:
    """An unlucky first trial sends the search on; only what is near the edge costs many seeds."""

    def probe(size: int, made: Sequence[float]) -> float:
        return 0.0 if size > 20 or (size == 16 and not made) else 1.0

    found = find_redline(probe, shares, Limits(1, 100, 3, 6))
    assert (found.passes, found.fails) == (20, 21)
    assert {size for size in found.trials if len(found.trials[size]) > 1} <= set(range(15, 25))


def test_seeds_that_are_harsh_to_all_sizes_alike_do_not_make_it_creep() -> None:
    """The first two trials of every size miss closely beyond 12, all later ones beyond 60 only:
    once one end has shown it, its neighbours are looked at with as many, and steps double again."""

    def probe(size: int, made: Sequence[float]) -> float:
        if len(made) < 2 and size > 12:
            return 0.45
        return float(size <= 60)

    def doubted(trials: Sequence[float]) -> Ruling:
        return Ruling(shares(trials).passes, 0.2 if len(trials) < 4 else 0.0)

    found = find_redline(probe, doubted, Limits(1, 1000, 2, 8))
    assert (found.passes, found.fails) == (60, 62)
    assert len(found.trials) < 25
    assert sum(map(len, found.trials.values())) < 80


def test_the_way_back_from_a_lucky_size_is_short() -> None:
    """The first trials pass up to 1000, all others up to 20: the search goes back over sizes that
    it has probed, not over every one between."""

    def probe(size: int, made: Sequence[float]) -> float:
        return float(size <= 20) if made else 0.55 if size <= 1000 else 0.0

    found = find_redline(probe, shares, Limits(1, 4096, 2, 6))
    assert (found.passes, found.fails) == (20, 21)
    assert len(found.trials) < 25


def test_an_end_is_probed_until_it_is_judged() -> None:
    def ruling(trials: Sequence[bool]) -> Ruling:
        return Ruling(trials[-1], 0.0, judged=len(trials) >= 7)

    found = find_redline(lambda size, _: size <= 5, ruling, Limits(1, 100, 2, 3, 8))
    assert {size: len(trials) for size, trials in found.trials.items() if len(trials) > 1} == {
        5: 7,
        6: 7,
    }
    short = find_redline(lambda size, _: size <= 5, ruling, Limits(1, 100, 2, 3, 0))
    assert max(map(len, short.trials.values())) == 3


@given(st.integers(0, 2**32), st.integers(5, 60))
def test_noise_ends_in_a_bracket_whose_ends_hold(seed: int, edge: int) -> None:
    rng = random.Random(seed)
    found = find_redline(
        lambda size, _: 1 / (1 + math.exp((size - edge) / 3)) + rng.gauss(0, 0.2),
        shares,
        Limits(1, 200, 3, 6),
    )
    for size, holds in ((found.passes, True), (found.fails, False)):
        if size is not None:
            assert len(found.trials[size]) >= 3
            assert shares(found.trials[size]).passes == holds


# --- what it costs ------------------------------------------------------------------------------


def dear(edge: int, effort: Effort, repeats: int = 2) -> tuple[Bracket[int], int]:
    """A step, where a probe costs as much as it has people; with what the search cost."""
    limits = Limits(3, 4096, repeats, 10, effort=effort)
    found = find_redline(
        lambda size, _: size, lambda made: Ruling(made[0] <= edge, 0.0), limits, float
    )
    return found, sum(sum(made) for made in found.trials.values())


def test_a_search_that_has_spent_its_effort_narrows_no_further() -> None:
    (free, all_of_it), (found, cost) = dear(58, Effort()), dear(58, Effort(450.0, 4096))
    assert free.narrow
    assert (free.passes, free.fails) == (58, 60)
    assert not found.narrow
    assert found.passes is not None
    assert found.fails is not None
    assert free.passes >= found.passes
    assert free.fails <= found.fails <= found.passes * (1 + WIDEST)
    assert cost < all_of_it
    assert [len(found.trials[end]) for end in (found.passes, found.fails)] == [2, 2]


def test_effort_narrows_as_far_as_it_goes() -> None:
    costs = [dear(58, Effort(least, 4096))[1] for least in (400.0, 450.0, 500.0, 600.0)]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]
    assert all(cost <= least for cost, least in zip(costs, (400, 450, 500, 600), strict=True))


def test_a_bracket_is_never_left_very_wide() -> None:
    """Whatever it costs: nobody is helped by the size that doubling ended at."""
    found, cost = dear(58, Effort(1.0, 4096))
    assert cost > 1
    assert found.passes is not None
    assert found.fails is not None
    assert found.fails - found.passes <= WIDEST * found.passes


def test_a_larger_crowd_may_cost_as_many_probes_as_it_needs() -> None:
    small, large = Effort(400.0, 64, 10.0), Effort(400.0, 4096, 10.0)
    assert dear(1000, small)[0].narrow
    assert not dear(1000, large)[0].narrow


def test_effort_is_a_sum_for_few_people_and_some_probes_for_more() -> None:
    effort = Effort(400.0, 64, 10.0)
    assert effort.of(64, 100.0) == 400.0
    assert effort.of(65, 100.0) == 1000.0
    assert effort.of(65, 30.0) == 400.0, "and never less"


def test_more_effort_is_more_of_each() -> None:
    assert Effort(400.0, 64, 10.0).times(2) == Effort(800.0, 64, 20.0)


def test_seeds_leave_something_to_narrow_with() -> None:
    """Where every size is in doubt for long, seeds do not eat up what bisection needs."""

    def doubted(made: Sequence[int]) -> Ruling:
        return Ruling(made[0] <= 11, 0.3)

    limits = Limits(1, 64, 2, 10, effort=Effort(200.0, 64))
    found = find_redline(lambda size, _: size, doubted, limits, float)
    assert (found.passes, found.fails) == (11, 12)


def test_limits_that_hold_no_size() -> None:
    with pytest.raises(ValueError, match="no size"):
        step(1, Limits(5, 4, 3, 6))
