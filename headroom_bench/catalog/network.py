"""Client paths: round trips, loss, rates, airtime."""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom_bench.catalog._entries import Facts
from headroom_bench.catalog._shelf import Shelf


@dataclass(frozen=True, slots=True)
class Network:
    """One kind of path between a client and the server."""

    id: str
    name: str
    rtt_ms: float | None = None
    jitter_ms: float | None = None
    loss: float | None = None
    """Share of packets lost before retransmission, where `retransmit_at` says."""
    up_mbit_s: float | None = None
    down_mbit_s: float | None = None
    mtu_bytes: int = 1500
    per_packet_overhead_bytes: int = 40
    retransmit_at: str = "tcp"
    shared_medium: bool = False
    """All clients' frames wait in one queue."""
    airtime: Facts | None = field(default=None, compare=False)
    """A shared radio's costs a frame, in the units that the keys name."""
    handshake: str = ""
    aliases: tuple[str, ...] = ()
    notes: str = ""
    estimated: bool = False
    source: str = ""


_SHELF = Shelf("network", Network, "networks", lambda path: (path.id, path.name, *path.aliases))


def networks() -> tuple[Network, ...]:
    """All shipped paths, in the order of the data file."""
    return _SHELF.entries


def find_network(name: str) -> Network:
    """The path meant by an id, a name or a TOML path. Raises `UserError`."""
    return _SHELF.find(name)
