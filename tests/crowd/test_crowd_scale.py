"""Crowds of the same mix with more or fewer people."""

from __future__ import annotations

import pytest
from crowd_people import crowd, persona
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.crowd.crowd import load_crowd
from headroom_bench.crowd.scale import least_people, scaled

mixes = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@given(mixes, st.integers(0, 500))
def test_it_has_so_many_people_and_somebody_of_each(counts: list[int], more: int) -> None:
    mix = crowd(*((persona(f"p{place}"), count) for place, count in enumerate(counts)))
    people = len(counts) + more
    groups = scaled(mix, people).groups
    assert sum(group.count for group in groups) == people
    assert all(group.count >= 1 for group in groups)


@given(mixes, st.integers(1, 200))
def test_a_larger_crowd_holds_the_smaller_one(counts: list[int], more: int) -> None:
    mix = crowd(*((persona(f"p{place}"), count) for place, count in enumerate(counts)))
    smaller = scaled(mix, len(counts) + more - 1).users()
    larger = scaled(mix, len(counts) + more).users()
    assert {(u.persona.name, u.index) for u in smaller} < {
        (u.persona.name, u.index) for u in larger
    }


@given(mixes, st.integers(1, 9))
def test_a_multiple_of_the_file_keeps_its_proportions(counts: list[int], times: int) -> None:
    mix = crowd(*((persona(f"p{place}"), count) for place, count in enumerate(counts)))
    grown = scaled(mix, times * sum(counts))
    assert [group.count for group in grown.groups] == [times * count for count in counts]


def test_fewer_than_one_of_each() -> None:
    household = load_crowd("household")
    assert least_people(household) == 5
    with pytest.raises(ValueError, match="4 people cannot hold one of each of 5 groups"):
        scaled(household, 4)
