"""One kind of path: what happens to the bytes of a request and to the events of its answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headroom_bench.network.airtime import Airtime
from headroom_bench.network.chance import (
    beside,
    exponential,
    exponentials,
    losses,
    uniform,
)
from headroom_bench.seeds import seed_of

Times = NDArray[np.float64]
Resend = Literal["tcp", "radio", "application", "none"]
"""Who sends a lost packet again. tcp: after a timeout, and all that follows waits. radio: at once,
for the airtime. application: after a round trip and the airtime. none: nothing is lost."""

INITIAL_WINDOW_SEGMENTS = 10
"""RFC 6928."""
MIN_RTO_S = 0.2
"""Linux: a retransmission timeout is the round trip and at least this much more (RFC 6298 with
Linux's minimum). The Headroom article: "about a round trip plus 200 ms"."""
TCP_ROUND_TRIPS = 1
TLS_ROUND_TRIPS = 1
"""TLS 1.3 (RFC 8446)."""
EVENT_BYTES = 252
"""One streamed event: a chat.completion.chunk of 230 bytes (160 to 330, estimated) in a TLS record
(22 bytes)."""
MORE_TOKEN_BYTES = 5
"""What each further token adds to an event that carries several."""
TOKEN_BYTES = 4.5
"""A prompt's bytes a token, as JSON."""
REQUEST_BYTES = 600
"""HTTP headers, model and options around a prompt (an estimate)."""
MOST_RESENDS = 7
"""Of a Wi-Fi frame."""


@dataclass(frozen=True, slots=True)
class Link:
    """One path. Times in seconds, rates in bytes a second, one way alike in both directions."""

    name: str
    rtt_s: float
    jitter_s: float
    """Mean of what a round trip takes beyond `rtt_s`."""
    loss: float
    """Share of packets that are lost before they are sent again."""
    up_bytes_s: float
    down_bytes_s: float
    packet_bytes: int
    """Most payload of one packet."""
    overhead_bytes: int
    """Headers of each packet."""
    resend: Resend
    shared: bool
    """All clients' frames wait for one another."""
    airtime: Airtime
    duty_cycle: float = 1.0
    """Share of the time that a sender may be on the air."""

    @property
    def one_way_s(self) -> float:
        return self.rtt_s / 2

    def connect_s(self) -> float:
        """Until a new connection can carry a request: TCP, then TLS 1.3. Nothing where there is no
        TCP."""
        if self.resend == "application":
            return 0.0
        return (TCP_ROUND_TRIPS + TLS_ROUND_TRIPS) * self.rtt_s

    def packets(self, payload_bytes: int) -> int:
        return max(1, -(-payload_bytes // self.packet_bytes))

    def frame_s(self, payload_bytes: int) -> float:
        """Airtime of a message's frames: with those sent again at the radio, and the rests that a
        duty cycle asks for."""
        whole, rest = divmod(payload_bytes, self.packet_bytes)
        seconds = whole * self.airtime(self.packet_bytes + self.overhead_bytes)
        if rest or not whole:
            seconds += self.airtime(rest + self.overhead_bytes)
        if self.resend == "radio":  # sent once, and once more with chance loss, loss², …
            seconds *= (1.0 - self.loss ** (MOST_RESENDS + 1)) / (1.0 - self.loss)
        return seconds / self.duty_cycle

    def upload_s(self, payload_bytes: int, key: str, sending_s: float | None = None) -> float:
        """From sending a request until its last byte is at the server, no other client there.
        `sending_s`: its `frame_s`, where the medium is shared and the caller knows it.

        TCP's first window is 10 packets and doubles each round trip (RFC 6928); beyond it the rate
        counts. A lost packet is sent again as in `arrivals`.
        """
        packets = self.packets(payload_bytes)
        if sending_s is None:
            size = payload_bytes + packets * self.overhead_bytes
            sending_s = self._send_s(size, self.up_bytes_s, payload_bytes)
        seconds = self.one_way_s + sending_s
        if self.resend in ("tcp", "none") and packets > INITIAL_WINDOW_SEGMENTS:
            rounds = math.ceil(math.log2(packets / INITIAL_WINDOW_SEGMENTS + 1))
            seconds += (rounds - 1) * self.rtt_s
        return seconds + self._last_late_s(packets, seed_of(f"{key}/up"), payload_bytes)

    def events(self, event_bytes: int) -> Events:
        """The way down for events of one size."""
        size = event_bytes + self.packets(event_bytes) * self.overhead_bytes
        travel_s = self.one_way_s + self._send_s(size, self.down_bytes_s, event_bytes)
        resend_s = self.resend_s(event_bytes) if self._stalls else None
        return Events(self, travel_s, resend_s)

    def arrivals(self, sent: Times, event_bytes: int, key: str) -> Times:
        """When events of that size arrive that were sent at `sent`: see `Events.arrivals`."""
        return self.events(event_bytes).arrivals(sent, key)

    def _send_s(self, size: int, rate: float, payload_bytes: int) -> float:
        return self.frame_s(payload_bytes) if self.shared else size / rate

    @property
    def _stalls(self) -> bool:
        """Whether a lost packet is noticed above the radio."""
        return self.loss > 0 and self.resend in ("tcp", "application")

    def _last_late_s(self, packets: int, seed: int, payload_bytes: int) -> float:
        """How late the last to arrive is of packets that are sent together."""
        lost, latest_s = 0, 0.0
        if self._stalls:
            resend_s = self.resend_s(payload_bytes)
            for _, times in losses(beside(seed), packets, self.loss):
                lost += 1
                jitter_s = self.jitter_s / 2 * exponential(seed, lost)
                latest_s = max(latest_s, _stall_s(resend_s, times) + jitter_s)
        on_time = packets - lost
        if self.jitter_s and on_time:
            largest = -math.log(-math.expm1(math.log(uniform(seed, 0)) / on_time))
            latest_s = max(latest_s, self.jitter_s / 2 * largest)  # of n exponentials, by its law
        return latest_s

    def resend_s(self, payload_bytes: int) -> float:
        """How much later a packet comes that was lost once."""
        if self.resend == "tcp":
            return self.rtt_s + max(MIN_RTO_S, 4 * self.jitter_s)
        return self.rtt_s + self.frame_s(payload_bytes)


@dataclass(frozen=True, slots=True)
class Events:
    """Events of one size on a link's way down."""

    link: Link
    travel_s: float
    """Of each, where nothing is late."""
    resend_s: float | None
    """How much later one comes that was lost once; None where none is."""

    def arrivals(self, sent: Times, key: str) -> Times:
        """When events sent at `sent` (ascending) arrive, in order. Shapes (n,), seconds.

        A pure function of its arguments: with more events, the first ones arrive as before.
        """
        count = len(sent)
        if not count:
            return sent
        arrived: Times = sent + self.travel_s
        jitter_s, resend_s = self.link.jitter_s, self.resend_s
        if not jitter_s and resend_s is None:
            return arrived
        seed = seed_of(f"{key}/down")
        if jitter_s:
            arrived += exponentials(seed, count, jitter_s / 2)
        if resend_s is not None:
            for place, times in losses(beside(seed), count, self.link.loss):
                arrived[place] += _stall_s(resend_s, times)
        # What comes late holds up what was sent after it.
        return np.maximum.accumulate(arrived, out=arrived)


def _stall_s(resend_s: float, times: int) -> float:
    """How much later a packet comes that was lost so many times in a row: each time the sender
    waits twice as long."""
    return resend_s * float(2 ** min(times, MOST_RESENDS) - 1)
