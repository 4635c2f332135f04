"""People over their own links: what the documents say of radios, satellites and connections."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from crowd_people import ASK, crowd, fixed, persona
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headroom_bench.box import Box
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.world import Device
from headroom_bench.network import Link, link_named
from headroom_bench.records import RequestRecord
from headroom_bench.roofline.pricer import Batch
from headroom_bench.simulate.world import Naming, SimulatedWorld


@dataclass
class FlatPricer:
    """A pass takes the same time whatever it carries."""

    window: int | None = None

    def pass_s(self, batch: Batch) -> float:
        return 0.03

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        return np.full(k, 0.03)


def live(
    people: Crowd, links: dict[str, Link], *, requests: int, event_tokens: int = 1, slots: int = 64
) -> tuple[list[RequestRecord], dict[str, list[float]]]:
    records: list[RequestRecord] = []
    times: dict[str, list[float]] = {}

    def emit(record: RequestRecord, token_times: NDArray[np.float64]) -> None:
        records.append(record)
        times[record.request_id] = token_times.tolist()

    box = Box(FlatPricer(), slots, 100_000)
    world = SimulatedWorld(
        box,
        Naming("run", "mock"),
        emit,
        links=links,
        max_requests=requests,
        event_tokens=event_tokens,
    )
    world.run(people, None)
    return records, times


def asker(output: int = 200, **changes: object) -> object:
    return persona(
        segments=(replace(ASK, tokens=fixed(50)),), output=fixed(output), think_s=fixed(1),
        turns=fixed(1), single_request=True, **changes,
    )  # fmt: skip


def quiet(name: str) -> Link:
    return replace(link_named(name), jitter_s=0.0)


def test_a_connection_is_opened_once_and_its_round_trips_stand_apart() -> None:
    one = asker(output=20)
    link = replace(quiet("internet-transatlantic"), loss=0.0)
    records, times = live(crowd((one, 1)), {one.name: link}, requests=3)
    assert [record.connect_s for record in records] == [2 * link.rtt_s, 0.0, 0.0]
    for record in records:
        assert record.sent_s == pytest.approx(record.started_at_s + record.connect_s)
        assert record.network_s == pytest.approx(link.rtt_s, abs=0.001)
        assert record.ttft_s == pytest.approx(link.rtt_s + 0.03, abs=0.001)
        assert times[record.request_id][0] == pytest.approx(record.sent_s + record.ttft_s)
        assert record.server_prefill_s == pytest.approx(0.03)


def test_people_without_a_link_are_as_near_as_before() -> None:
    one = asker(output=5)
    records, _ = live(crowd((one, 2)), {}, requests=4)
    assert {record.connect_s for record in records} == {None}
    assert all(record.ttft_s == pytest.approx(0.03) for record in records)


def mean_wait(people: int, event_tokens: int, link: Link) -> float:
    """How much later than over a wire of one's own tokens come, on the mean, in seconds."""
    one = asker(output=300)
    own = replace(link, shared=False)
    late = []
    for way in (link, own):
        _, times = live(
            crowd((one, people)), {one.name: way}, requests=people, event_tokens=event_tokens
        )
        late.append(np.mean([np.mean(arrived) for arrived in times.values()]))
    return float(late[0] - late[1])


def test_fifty_streaming_clients_on_one_wifi_feel_each_other() -> None:
    """Headroom: one event a token to 50 clients multiplies the airtime of a frame; batched events
    carry the same text in a fifth of the frames."""
    link = replace(quiet("wifi-crowded"), loss=0.0)
    alone, fifty = mean_wait(1, 1, link), mean_wait(50, 1, link)
    frame_s = link.frame_s(252)
    assert alone < 2 * frame_s
    # 50 frames of 0.45 ms in each pass of 30 ms: load 0.75, and on the mean half of them before.
    assert fifty > 20 * frame_s
    assert fifty - alone > 0.01
    batched = mean_wait(50, 5, link)
    assert fifty - batched > 20 * frame_s / 1.3


def test_too_many_streams_for_a_radio_fall_behind_without_end() -> None:
    link = replace(quiet("wifi-crowded"), loss=0.0)
    people = 90  # 90 frames of 0.45 ms in 30 ms: more than there is
    one = asker(output=300)
    _, times = live(crowd((one, people)), {one.name: link}, requests=people, slots=people)
    arrived = next(iter(times.values()))
    decode_s = arrived[-1] - arrived[0]
    needed_s = 299 * people * link.frame_s(252)
    assert decode_s == pytest.approx(needed_s, rel=0.1)
    assert decode_s > 299 * 0.03 * 1.2


def test_a_satellite_under_loss_feels_worse_than_its_latency() -> None:
    one = asker(output=300)
    lossy = quiet("geo-satellite")
    stalls = {}
    for name, link in (("lossy", lossy), ("clean", replace(lossy, loss=0.0))):
        records, _ = live(crowd((one, 5)), {one.name: link}, requests=20)
        stalls[name] = max(record.itl_max_s or 0.0 for record in records)
        assert all((record.ttft_s or 0.0) > lossy.rtt_s for record in records)
    assert stalls["clean"] < 0.1
    assert stalls["lossy"] > lossy.rtt_s


def test_patience_counts_what_has_arrived_over_the_link() -> None:
    one = asker(output=400, patience_s=0.5)
    link = replace(quiet("geo-satellite"), loss=0.0)
    records, _ = live(crowd((one, 1)), {one.name: link}, requests=1)
    assert records[0].error_kind == "abandoned"  # the first byte takes 0.65 s
    patient = asker(output=400, patience_s=3.0)
    records, times = live(crowd((patient, 1)), {patient.name: link}, requests=1)
    assert records[0].ok
    assert len(times[records[0].request_id]) == 400


def test_the_same_crowd_lives_the_same_life_twice() -> None:
    one = asker(output=50)
    link = link_named("wifi6")
    lives = [live(crowd((one, 10)), {one.name: link}, requests=60) for _ in range(2)]
    assert lives[0][1] == lives[1][1]


def test_a_gateway_sends_whole_texts_over_lora() -> None:
    """A messenger's answer is a few packets, a stream over the same radio some hundred."""
    messenger = asker(60, device=Device(shows_reasoning=False, whole=True))
    links = {"chat": link_named("lora-sf7")}
    whole, times = live(crowd((messenger, 1)), links, requests=1)
    streamed, _ = live(crowd((asker(60), 1)), links, requests=1)
    assert whole[0].e2e_s is not None
    assert streamed[0].e2e_s is not None
    link = links["chat"]
    least_s = 60 * 0.03 + link.frame_s(50 * 4) + link.frame_s(60 * 4)
    assert least_s < whole[0].e2e_s < least_s + 60
    assert streamed[0].e2e_s > 10 * whole[0].e2e_s
    assert len(set(times[whole[0].request_id])) == 1, "all of it comes at once"
    assert whole[0].server_decode_s == pytest.approx(59 * 0.03)


def test_messengers_wait_for_one_anothers_packets() -> None:
    messenger = asker(60, device=Device(shows_reasoning=False, whole=True))
    links = {"chat": link_named("lora-sf7")}
    lone, _ = live(crowd((messenger, 1)), links, requests=1)
    many, _ = live(crowd((messenger, 12)), links, requests=12)
    slowest_s = max(record.e2e_s or 0.0 for record in many)
    assert slowest_s > 3 * (lone[0].e2e_s or 0.0)


def test_who_asks_while_others_stream_does_not_pile_their_past_frames_up() -> None:
    """The box leaps from change to change. What it gave before somebody asked was on the air
    before, evenly, and not at the moment of asking."""
    link = replace(quiet("wifi-crowded"), loss=0.0)
    reader = asker(output=2000)
    passer = replace(asker(output=1), name="passer", single_request=False, think_s=fixed(40))
    _, times = live(
        crowd((reader, 4), (passer, 2)), {reader.name: link, passer.name: link}, requests=6
    )
    # 4 frames of 0.45 ms in each pass of 30 ms: nobody ever waits for more than a few frames.
    streams = [arrived for name, arrived in times.items() if name.startswith(f"{reader.name}-")]
    assert len(streams) >= 4
    for arrived in streams:
        gaps = np.diff(arrived)
        assert gaps.max() < 0.03 + 20 * link.frame_s(252)


def test_a_radio_is_busy_for_the_frames_that_it_carries() -> None:
    link = replace(quiet("wifi-crowded"), loss=0.0)
    one = asker(output=200)
    box = Box(FlatPricer(), 8, 100_000)
    world = SimulatedWorld(
        box, Naming("run", "mock"), lambda *_: None, links={one.name: link}, max_requests=4
    )
    ended_s = world.run(crowd((one, 4)), None)
    frames_s = 4 * 200 * link.frame_s(252) + 4 * link.frame_s(600 + 225)
    worked = world.worked()
    assert worked.seconds == ended_s
    assert worked.radios_s == {link.name: pytest.approx(frames_s, rel=0.01)}


any_link = st.builds(
    lambda name, jitter_s, loss: replace(link_named(name), jitter_s=jitter_s, loss=loss),
    st.sampled_from(["gbe", "wifi-crowded", "lte", "geo-satellite", "ble", "zigbee"]),
    st.sampled_from([0.0, 0.004, 0.2]),
    st.sampled_from([0.0, 0.01, 0.4]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(any_link, min_size=1, max_size=2),
    st.integers(1, 6),
    st.integers(1, 90),
    st.none() | st.floats(0.05, 5),
    st.integers(1, 4),
    st.integers(1, 6),
)
def test_nothing_comes_before_it_was_sent_nor_out_of_order(
    links: list[Link],
    people: int,
    output: int,
    patience_s: float | None,
    event_tokens: int,
    slots: int,
) -> None:
    kinds = [
        replace(asker(output, patience_s=patience_s), name=f"kind{n}") for n in range(len(links))
    ]
    ways = {kind.name: link for kind, link in zip(kinds, links, strict=True)}
    records, times = live(
        crowd(*((kind, people) for kind in kinds)), ways, requests=20, event_tokens=event_tokens,
        slots=slots,
    )  # fmt: skip
    assert len(records) >= 20
    for record in records:
        link, arrived = ways[record.persona], times[record.request_id]
        assert record.sent_s is not None
        assert record.end_s is not None
        assert arrived == sorted(arrived)
        assert all(record.sent_s + link.rtt_s <= at <= record.end_s for at in arrived)
        assert record.ok == (record.error_kind is None)
        if record.ok:
            assert len(arrived) == output
            assert arrived[-1] == record.end_s
            assert record.network_s is not None
            assert record.network_s >= link.rtt_s - 1e-9
        else:
            assert record.error_kind == "abandoned"
            assert patience_s is not None
            last_s = arrived[-1] if arrived else record.sent_s
            assert record.end_s == pytest.approx(last_s + patience_s)
