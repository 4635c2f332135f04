"""Draws: pure functions of their key, with the distributions that the files promise."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.crowd.draws import Distribution, read_distribution, uniform
from headroom_bench.crowd.script import Draws
from headroom_bench.errors import UserError
from headroom_bench.seeds import fraction
from headroom_bench.toml_table import Table


def lognormal(p50: float, p90: float, most: float = math.inf) -> Distribution:
    return read({"p50": p50, "p90": p90} | ({} if most == math.inf else {"max": most}))


def read(raw: object) -> Distribution:
    return read_distribution(Table({"x": raw}, Path("a.toml"), {}), "x", None)


def test_draws_are_the_same_in_every_process() -> None:
    code = "from headroom_bench.crowd.draws import uniform; print(uniform(1, 'chat', 0, 'output'))"
    told = set()
    for hash_seed in ("0", "4711"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        run = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        told.add(run.stdout.strip())
    assert told == {str(uniform(1, "chat", 0, "output"))}


def test_draws_do_not_depend_on_order() -> None:
    keys = [(1, "chat", index, "output") for index in range(50)]
    forwards = {key: uniform(*key) for key in keys}
    assert forwards == {key: uniform(*key) for key in reversed(keys)}
    assert len(set(forwards.values())) == 50


def test_parts_of_a_key_do_not_run_together() -> None:
    assert uniform("a", "bc") != uniform("ab", "c")


@given(st.lists(st.one_of(st.integers(), st.text()), max_size=4))
def test_uniform_is_inside_the_open_interval(key: list[int | str]) -> None:
    assert 0.0 < uniform(*key) < 1.0


@pytest.mark.parametrize("word", [0, 2**64 - 1])
def test_no_bits_make_an_end_of_the_interval(word: int) -> None:
    u = fraction(word)
    assert 0.0 < u < 1.0
    assert math.isfinite(lognormal(10, 20).draw(u))
    assert Distribution("uniform", 3, 7, 7).draw_whole(u) == (7 if word else 3)


def test_lognormal_has_the_percentiles_that_it_is_named_by() -> None:
    drawn = [lognormal(250, 700).draw(uniform("p", number)) for number in range(20_000)]
    p50, p90 = np.percentile(drawn, [50, 90])
    assert p50 == pytest.approx(250, rel=0.03)
    assert p90 == pytest.approx(700, rel=0.03)


def test_whole_uniform_draws_are_even_with_both_ends() -> None:
    dice = Distribution("uniform", 1, 6, 6)
    counts = Counter(dice.draw_whole(uniform("dice", number)) for number in range(12_000))
    assert set(counts) == {1, 2, 3, 4, 5, 6}
    assert min(counts.values()) > 1800


INSIDE = st.floats(0, 1, exclude_min=True, exclude_max=True)


@given(st.floats(0.5, 5e3), st.floats(1, 50), st.floats(1, 50), INSIDE)
def test_max_holds(p50: float, spread: float, room: float, u: float) -> None:
    most = p50 * spread * room
    drawn = lognormal(p50, p50 * spread, most)
    assert 0 < drawn.draw(u) <= most
    assert drawn.draw(u) <= drawn.largest
    assert drawn.draw_whole(u, least=1) >= 1


@given(st.floats(0, 100), st.floats(0, 100), INSIDE)
def test_uniform_stays_between_its_ends(low: float, width: float, u: float) -> None:
    drawn = Distribution("uniform", low, low + width, low + width)
    assert low <= drawn.draw(u) <= low + width
    whole = drawn.draw_whole(u)
    if math.floor(low + width) >= math.ceil(low):
        assert low <= whole <= low + width


@given(st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_larger_quantile_is_a_larger_value(a: float, b: float) -> None:
    low, high = sorted((a, b))
    for drawn in (lognormal(10, 30), Distribution("uniform", 1, 9, 9), Distribution.fixed(4)):
        assert drawn.draw(low) <= drawn.draw(high)


def test_fixed_is_fixed() -> None:
    assert read({"fixed": 7}).draw(0.3) == 7
    assert read(7) == read({"fixed": 7})
    assert read({"fixed": 0}).draw_whole(0.5, least=1) == 1


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ("ten", "is not a distribution"),
        (True, "is not a distribution"),
        ({"fixed": -1}, "-1 is not a number from 0"),
        ({"fixed": math.inf}, "inf is not a number from 0"),
        ({"fixed": math.nan}, "nan is not a number from 0"),
        ({"fixed": "7"}, "'7' is not a number from 0"),
        ({"fixed": 1, "max": 2}, "is not {fixed}"),
        ({"uniform": [5, 2]}, "runs backwards"),
        ({"uniform": [5]}, "is not {fixed}"),
        ({"p50": 5, "p90": 2}, "needs 0 < p50 <= p90 <= max"),
        ({"p50": 0, "p90": 2}, "needs 0 < p50 <= p90 <= max"),
        ({"p50": 5, "p90": 9, "max": 8}, "needs 0 < p50 <= p90 <= max"),
        ({"p50": 5}, "is not {fixed}"),
        ({"p50": 5, "p90": 9, "p99": 20}, "is not {fixed}"),
    ],
)
def test_wrong_distributions_are_refused(raw: object, told: str) -> None:
    with pytest.raises(UserError) as why:
        read(raw)
    assert str(why.value).startswith("a.toml: x: ")
    assert told in str(why.value)


def test_a_conversations_draws_are_keyed_by_all_that_names_it() -> None:
    draws = Draws(7, "chat", 3, 2)
    assert draws.u("output", 1) == uniform(7, "chat", 3, 2, 1, -1, "output")
    assert draws.u("output", 1, 4) == uniform(7, "chat", 3, 2, 1, 4, "output")
    assert len({Draws(7, "chat", *key).u("x") for key in ((3, 2), (2, 3), (32, 3))}) == 3
