"""Links: what each kind of path does to a request and to the events of its answer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headroom_bench.catalog.network import find_network, networks
from headroom_bench.errors import UserError
from headroom_bench.network import EVENT_BYTES, Link, link_named, link_of, lora_airtime_s

TUNNELS = {"tailscale-direct"}
PATHS = [network for network in networks() if network.id not in TUNNELS]


@pytest.mark.parametrize("network", PATHS, ids=[network.id for network in PATHS])
def test_every_link_of_the_catalogue_carries_an_answer(network: object) -> None:
    link = link_of(network)  # type: ignore[arg-type]
    sent = np.linspace(1.0, 5.0, 200)
    arrived = link.arrivals(sent, EVENT_BYTES, "someone")
    assert (arrived >= sent + link.one_way_s).all()
    assert (np.diff(arrived) >= 0).all()
    # The same draws for the same request; an answer that is not over yet has the same beginning.
    assert (link.arrivals(sent, EVENT_BYTES, "someone") == arrived).all()
    assert (link.arrivals(sent[:50], EVENT_BYTES, "someone") == arrived[:50]).all()
    assert link.upload_s(100, "a") >= link.one_way_s
    assert link.upload_s(100_000, "a") > link.upload_s(1000, "a") or link.rtt_s < 1e-4
    assert link.connect_s() == (0.0 if link.resend == "application" else 2 * link.rtt_s)


def test_a_tunnel_adds_to_the_path_below_it() -> None:
    with pytest.raises(UserError, match="tailscale-direct over NAME"):
        link_named("tailscale-direct")
    below, tunnel = link_named("lte"), link_named("tailscale-direct over lte")
    assert tunnel.rtt_s > below.rtt_s
    assert tunnel.overhead_bytes == below.overhead_bytes + 60
    assert tunnel.packet_bytes == 1280
    assert tunnel.loss == below.loss
    with pytest.raises(UserError, match="network"):
        link_named("carrier-pigeon")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"loss": 1.0}, "loss is a share of packets, from 0 to below 1"),
        ({"loss": 3.0}, "loss is a share"),
        ({"up_mbit_s": 0.0}, "up_mbit_s and down_mbit_s must be above 0"),
        ({"mtu_bytes": 0}, "mtu_bytes must be at least 1"),
        ({"retransmit_at": "pigeon"}, "must begin with one of tcp"),
    ],
)
def test_a_path_over_which_nothing_arrives_is_refused(wrong: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        link_of(replace(find_network("fibre-metro"), **wrong))


# --- LoRa -------------------------------------------------------------------------------------


def test_lora_airtime_is_the_published_tables() -> None:
    table = find_network("lora-sf7").airtime["time_on_air_ms"]  # type: ignore[index]
    for factor, row in table.items():
        for size, milliseconds in row.items():
            ours = lora_airtime_s(int(size.rstrip("B")), int(factor.removeprefix("SF"))) * 1e3
            assert ours == pytest.approx(milliseconds, abs=0.06)


def test_200_bytes_of_lora_take_more_than_a_second_from_sf9_on() -> None:
    seconds = [lora_airtime_s(200, factor) for factor in range(7, 13)]
    assert [round(s, 4) for s in seconds] == [0.3177, 0.5637, 1.0045, 1.8452, 4.0182, 7.2172]
    for wrong in ((200, 6), (200, 13), (256, 7)):
        with pytest.raises(ValueError, match="LoRa"):
            lora_airtime_s(*wrong)


def test_a_duty_cycle_of_a_tenth_makes_senders_rest_nine_times_as_long() -> None:
    link = link_named("lora-sf7")
    free = replace(link, duty_cycle=1.0)
    assert link.frame_s(200) == pytest.approx(10 * free.frame_s(200))
    assert free.frame_s(200) == pytest.approx(lora_airtime_s(213, 7))


# --- loss -------------------------------------------------------------------------------------


def still(link: Link, **changes: object) -> Link:
    """Without jitter, so that only loss shows."""
    return replace(link, jitter_s=0.0, **changes)  # type: ignore[arg-type]


def test_a_packet_lost_by_tcp_stalls_the_stream_by_a_round_trip_and_200_ms() -> None:
    link = still(link_named("internet-continental"), loss=0.002)
    sent = np.arange(30_000) * 0.02
    late = link.arrivals(sent, EVENT_BYTES, "a") - sent
    usual = late.min()
    first = int(np.argmax(late > usual + 1e-9))
    assert late[first] - usual == pytest.approx(link.rtt_s + 0.2)
    # What follows waits for it: 13 events of 20 ms come at once.
    held = int((link.rtt_s + 0.2) / 0.02)
    assert (np.diff((sent + late)[first : first + held]) == 0).all()
    lost = np.count_nonzero(np.diff(late) > 0.1)
    assert 35 < lost < 75  # 2 in a thousand, less those lost while the stream stood still


def test_a_radio_sends_again_at_once_and_only_pays_the_airtime() -> None:
    clean = still(link_named("wifi6"), loss=0.0)
    lossy = replace(clean, loss=0.05)
    assert lossy.frame_s(EVENT_BYTES) == pytest.approx(clean.frame_s(EVENT_BYTES) / 0.95, rel=1e-6)
    sent = np.arange(1000) * 0.02
    late = lossy.arrivals(sent, EVENT_BYTES, "a") - sent
    assert late.max() - late.min() < 1e-9


def test_a_satellite_under_loss_feels_worse_than_its_latency() -> None:
    """Headroom: a lost packet stalls the connection, so a lossy link feels worse than its round
    trip. The same loss on Wi-Fi, which resends at the radio, is not felt."""
    sent = np.arange(400) * 0.05
    worst = {}
    for name in ("geo-satellite", "wifi6"):
        link = still(link_named(name), loss=0.01)
        late = link.arrivals(sent, EVENT_BYTES, "person") - sent
        worst[name] = float(late.max() - link.one_way_s)
    assert worst["geo-satellite"] > link_named("geo-satellite").one_way_s
    assert worst["geo-satellite"] > 0.8
    assert worst["wifi6"] < 0.002


def test_long_prompts_take_more_round_trips_and_the_rate_of_the_way_up() -> None:
    link = still(link_named("internet-continental"), loss=0.0)
    small, large = link.upload_s(8_000, "a"), link.upload_s(200_000, "a")
    assert small == pytest.approx(link.one_way_s, abs=0.002)
    # 137 packets: 10, 20, 40, 80: three more round trips, and 200 kB at 100 Mb/s.
    assert large - small == pytest.approx(3 * link.rtt_s + 0.016, abs=0.003)
