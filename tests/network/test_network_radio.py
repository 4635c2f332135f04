"""A shared radio's fluid queue against one that serves frame after frame."""

from __future__ import annotations

import numpy as np
import pytest

from headroom_bench.network import EVENT_BYTES, Radio, link_named

FRAME_S = 0.001


def frame_by_frame(arrivals: np.ndarray, service_s: float) -> np.ndarray:
    """Waits of frames in one line: Lindley's recursion."""
    waits = np.zeros(len(arrivals))
    for i in range(1, len(arrivals)):
        waits[i] = max(0.0, waits[i - 1] + service_s - (arrivals[i] - arrivals[i - 1]))
    return waits


@pytest.mark.parametrize("load", [0.2, 0.5, 0.8])
def test_frames_that_come_by_chance_wait_as_m_d_1(load: float) -> None:
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(FRAME_S / load, 60_000))
    reference = frame_by_frame(arrivals, FRAME_S).mean()
    radio = Radio()
    radio.carry(float(arrivals[-1]), len(arrivals), FRAME_S)
    ours = radio.waits(arrivals).mean()
    assert ours == pytest.approx(load * FRAME_S / (2 * (1 - load)), rel=0.02)
    assert ours == pytest.approx(reference, rel=0.15)


@pytest.mark.parametrize("streams", [2, 10, 50])
def test_streams_of_one_server_wait_for_each_other_in_every_pass(streams: int) -> None:
    """All get their token at the end of the same pass, each some chance later."""
    rng = np.random.default_rng(4)
    passes, gap_s = 600, 0.08
    arrivals = np.repeat(np.arange(passes) * gap_s, streams)
    arrivals = np.sort(arrivals + rng.uniform(0, 1e-5, len(arrivals)))
    reference = frame_by_frame(arrivals, FRAME_S).mean()
    radio = Radio()
    radio.carry(passes * gap_s, passes * streams, FRAME_S, together=streams)
    assert radio.waits(arrivals).mean() == pytest.approx(reference, rel=0.1, abs=2e-5)
    # Where other delays scatter them over the pass, the fluid's figure is the upper one.
    scattered = np.sort(arrivals + rng.uniform(0, gap_s, len(arrivals)))
    assert frame_by_frame(scattered, FRAME_S).mean() < radio.waits(arrivals).mean() + 1e-6


def test_more_than_the_radio_carries_piles_up_and_drains_again() -> None:
    rng = np.random.default_rng(5)
    heavy = np.sort(rng.uniform(0.0, 4.0, 6000))  # load 1.5 for 4 s
    light = np.sort(rng.uniform(4.0, 10.0, 1800))  # then 0.3 for 6 s
    arrivals = np.concatenate([heavy, light])
    reference = frame_by_frame(arrivals, FRAME_S)
    radio = Radio()
    radio.carry(4.0, len(heavy), FRAME_S)
    radio.carry(10.0, len(light), FRAME_S)
    ours = radio.waits(arrivals)
    assert np.abs(ours - reference).max() < 0.12  # of 2 s at the worst
    assert ours.max() == pytest.approx(2.0, rel=0.03)
    assert ours[-1] < 0.001


def test_a_burst_waits_for_what_is_there_and_delays_what_follows() -> None:
    radio = Radio()
    assert radio.burst(0.5) == 0.0
    assert radio.burst(0.1) == pytest.approx(0.5)
    radio.carry(1.0, 0, FRAME_S)
    assert radio.waits(np.array([0.0, 0.3, 0.6, 0.9])).tolist() == pytest.approx([0.6, 0.3, 0, 0])


def test_old_stretches_are_forgotten() -> None:
    radio = Radio()
    for second in range(1, 2001):
        radio.carry(float(second), 100, FRAME_S)
        radio.forget_before(second - 10.0)
    assert len(radio._starts) < 300
    assert radio.waits(np.array([1995.5]))[0] > 0.0


def test_one_token_an_event_keeps_a_crowded_wifi_as_busy_as_a_kilobyte_would() -> None:
    """Headroom: a frame costs the same preamble and acknowledgement whatever it carries."""
    link = link_named("wifi-crowded")
    one, kilobyte = link.frame_s(EVENT_BYTES), link.frame_s(1000)
    assert kilobyte < 1.2 * one


def test_a_long_silence_is_one_stretch() -> None:
    radio = Radio()
    radio.carry(1.0, 100, FRAME_S)
    for second in range(2, 200):
        radio.carry(float(second), 0, FRAME_S)
    assert len(radio._starts) == 3
    assert radio.waits(np.array([150.0])).tolist() == [0.0]
    radio.burst(0.5)
    radio.carry(200.0, 0, FRAME_S)
    assert radio.waits(np.array([198.9, 199.1])).tolist() == pytest.approx([0.0, 0.4])
    radio.carry(201.0, 100, FRAME_S)
    assert radio.waits(np.array([200.5]))[0] > 0.0
