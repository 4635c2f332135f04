"""Client paths: round trips, loss, rates, airtime."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from headroom_bench.catalog._entries import (
    Facts,
    Names,
    build,
    own_entry,
    read_data,
    read_toml,
)


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


@functools.cache
def networks() -> tuple[Network, ...]:
    """All shipped paths, in the order of the data file."""
    entries = read_data("networks.json")["networks"]
    return tuple(build(Network, entry, f"networks.json: {entry['id']}") for entry in entries)


@functools.cache
def _names() -> Names:
    return Names("network", {n.id: (n.name, *n.aliases) for n in networks()})


@functools.cache
def _by_id() -> dict[str, Network]:
    return {network.id: network for network in networks()}


def network_from_toml(path: Path) -> Network:
    """A user's own path: a TOML file with the keys of one entry. Raises `UserError`."""
    return build(Network, {"source": path.name, **read_toml(path)}, str(path))


def find_network(name: str) -> Network:
    """The path meant by an id, a name or a TOML path. Raises `UserError`."""
    if path := own_entry(name):
        return network_from_toml(path)
    return _by_id()[_names().find(name)]
