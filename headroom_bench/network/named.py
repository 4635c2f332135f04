"""Links by name: catalogue entries, files of the user's own, and tunnels over another link."""

from __future__ import annotations

import math
from dataclasses import replace

from headroom_bench.catalog.network import Network, find_network
from headroom_bench.errors import UserError
from headroom_bench.network.airtime import LORA_DUTY_CYCLE, airtime_of
from headroom_bench.network.link import Link, Resend

TUNNEL_CPU_S = 0.001
"""What WireGuard's two ends add to a round trip (0.2 to 1 ms each, the entry's own note)."""
OVER = " over "


def link_named(name: str) -> Link:
    """The link meant by an id, a name, the path of a TOML file, or `TUNNEL over LINK`.

    Raises `UserError`: unknown, or a tunnel without what it goes over.
    """
    outer, over, inner = name.partition(OVER)
    network = find_network(outer.strip())
    if over:
        return _tunnel(network, link_named(inner))
    return link_of(network)


def link_of(network: Network) -> Link:
    """A catalogue entry as a path. Raises `UserError` for one that only adds to another path, or
    whose figures cannot be."""
    if network.rtt_ms is None or network.up_mbit_s is None or network.down_mbit_s is None:
        raise UserError(f"{network.name} adds to another path: write '{network.id}{OVER}NAME'")
    _check(network)
    resend = _resend(network.retransmit_at)
    return Link(
        name=network.id,
        rtt_s=network.rtt_ms / 1e3,
        jitter_s=(network.jitter_ms or 0.0) / 1e3,
        loss=network.loss or 0.0,
        up_bytes_s=network.up_mbit_s * 1e6 / 8,
        down_bytes_s=network.down_mbit_s * 1e6 / 8,
        packet_bytes=_payload(network),
        overhead_bytes=network.per_packet_overhead_bytes,
        resend=resend,
        shared=network.shared_medium,
        airtime=airtime_of(network) if network.shared_medium else _no_airtime,
        duty_cycle=LORA_DUTY_CYCLE if network.id.startswith("lora") else 1.0,
    )


def _check(network: Network) -> None:
    """Raises `UserError` for figures with which nothing would ever arrive."""
    if not (network.up_mbit_s and network.down_mbit_s):
        raise UserError(f"{network.name}: up_mbit_s and down_mbit_s must be above 0")
    if not 0 <= (network.loss or 0.0) < 1:
        raise UserError(f"{network.name}: loss is a share of packets, from 0 to below 1")
    if network.mtu_bytes < 1:
        raise UserError(f"{network.name}: mtu_bytes must be at least 1")


def _tunnel(network: Network, under: Link) -> Link:
    """`network` inside `under`: its headers and its work on top."""
    return replace(
        under,
        name=f"{network.id}{OVER}{under.name}",
        rtt_s=under.rtt_s + (network.rtt_ms / 1e3 if network.rtt_ms else TUNNEL_CPU_S),
        jitter_s=math.hypot(under.jitter_s, (network.jitter_ms or 0.0) / 1e3),
        packet_bytes=min(under.packet_bytes, network.mtu_bytes),
        overhead_bytes=under.overhead_bytes + network.per_packet_overhead_bytes,
    )


def _resend(words: str) -> Resend:
    """From the entry's words. Raises `UserError` for ones that are not known."""
    first = words.replace("(", " ").replace(",", " ").split()[0] if words.strip() else "none"
    known: dict[str, Resend] = {
        "tcp": "tcp",
        "radio": "radio",
        "application": "application",
        "none": "none",
        "modem": "radio",
    }
    if first not in known:
        raise UserError(f"retransmit_at {words!r} must begin with one of {', '.join(known)}")
    return known[first]


def _payload(network: Network) -> int:
    """Bytes of text in one packet: the MTU less IP and TCP where it counts them (Ethernet and IP
    paths); radios below IP give the payload itself."""
    return network.mtu_bytes - 40 if network.mtu_bytes >= 576 else network.mtu_bytes


def _no_airtime(_: int) -> float:
    """A wire of one's own keeps nobody waiting."""
    return 0.0
