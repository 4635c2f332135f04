"""Numbers drawn by counting: reproducible, the same one by one and at once, of the right law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.network import link_named
from headroom_bench.network.chance import (
    beside,
    exponential,
    exponentials,
    losses,
    uniform,
)
from headroom_bench.seeds import seed_of

seeds = st.integers(0, 2**64 - 1)


def test_the_words_are_splitmix64s() -> None:
    """The first outputs of the reference generator (Vigna's splitmix64.c) for seed 1234567."""
    published = [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431,
    ]  # fmt: skip
    ours = [int(uniform(1234567, n) * 2**52) for n in range(4)]
    assert ours == [word >> 12 for word in published]


@given(seeds, st.integers(0, 3000))
def test_a_vector_holds_the_numbers_that_come_one_by_one(seed: int, count: int) -> None:
    drawn = exponentials(seed, count)
    assert len(drawn) == count
    for n in {0, count // 2, count - 1} & set(range(count)):
        assert drawn[n] == pytest.approx(exponential(seed, n), rel=1e-12)
        assert 0 < uniform(seed, n) < 1
    assert (exponentials(seed, count // 2) == drawn[: count // 2]).all()
    assert (drawn > 0).all()
    assert np.isfinite(drawn).all()


def test_they_are_exponential_and_neighbours_know_nothing_of_each_other() -> None:
    drawn = np.concatenate([exponentials(seed_of(f"p-{n}/c0/t0/r0"), 500) for n in range(400)])
    ordered = np.sort(drawn)
    ideal = 1 - np.exp(-ordered)
    ranks = np.arange(1, len(drawn) + 1) / len(drawn)
    assert np.abs(ranks - ideal).max() < 1.63 / np.sqrt(len(drawn))  # Kolmogorov-Smirnov, 1 %
    rows = drawn.reshape(400, 500)
    assert abs(np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1]) < 0.01
    assert abs(np.corrcoef(rows[:-1].ravel(), rows[1:].ravel())[0, 1]) < 0.01
    other = np.concatenate(
        [exponentials(beside(seed_of(f"p-{n}/c0/t0/r0")), 500) for n in range(400)]
    )
    assert abs(np.corrcoef(drawn, other)[0, 1]) < 0.01


@pytest.mark.parametrize("loss", [0.5, 0.05, 0.001])
def test_packets_are_lost_as_often_as_the_link_says_each_by_itself(loss: float) -> None:
    count, people = 2000, 300
    places, times = [], []
    for n in range(people):
        for place, row in losses(seed_of(f"p-{n}"), count, loss):
            assert 0 <= place < count
            places.append(n * count + place)
            times.append(row)
    sent = count * people
    error = 3.5 * np.sqrt(sent * loss * (1 - loss))
    assert len(places) == pytest.approx(sent * loss, abs=error)
    assert (np.diff(places) > 0).all()
    again = np.mean(np.array(times) > 1)
    assert again == pytest.approx(loss, abs=3.5 * np.sqrt(loss / len(times)) + 1e-3)
    adjacent = np.count_nonzero(np.diff(places) == 1) / len(places)
    assert adjacent == pytest.approx(loss, abs=3.5 * np.sqrt(loss / len(places)) + 1e-3)


@given(seeds, st.integers(0, 3000), st.sampled_from([0.9, 0.05, 1e-3, 1e-6]))
def test_losses_are_drawn_from_the_numbers_one_by_one(seed: int, count: int, loss: float) -> None:
    expected, place, drawn = [], -1, 0
    while True:
        place += 1 + int(np.log(uniform(seed, drawn)) / np.log1p(-loss))
        if place >= count:
            break
        expected.append((place, 1 + int(np.log(uniform(seed, drawn + 1)) / np.log(loss))))
        drawn += 2
    assert losses(seed, count, loss) == expected


@pytest.mark.parametrize("name", ["geo-satellite", "internet-transpacific", "wifi-crowded"])
@pytest.mark.parametrize("packets", [1, 13, 112])
def test_the_last_of_many_packets_is_as_late_as_the_latest_drawn_one_by_one(
    name: str, packets: int
) -> None:
    """The largest of n exponentials comes from one number; drawn out it has the same law."""
    link = link_named(name)
    ours = [link._last_late_s(packets, seed_of(f"{n}"), 1000) for n in range(3000)]
    rng = np.random.default_rng(1)
    late = rng.exponential(link.jitter_s / 2, (3000, packets))
    if link.resend == "tcp":
        lost = np.zeros((3000, packets))
        u = rng.random((3000, packets))
        for n in range(1, 8):
            lost += u < link.loss**n
        late += link.resend_s(1000) * (2.0**lost - 1)
    drawn = late.max(axis=1)
    for q in (0.1, 0.5, 0.9):
        assert np.quantile(ours, q) == pytest.approx(np.quantile(drawn, q), rel=0.12, abs=2e-4)
    assert np.mean(ours) == pytest.approx(np.mean(drawn), rel=0.08)
