"""How long one frame keeps a shared medium busy. Payloads in bytes, times in seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headroom_bench.catalog.network import Network
from headroom_bench.errors import UserError

Airtime = Callable[[int], float]
"""From a frame's bytes, headers above the radio's own included, to its airtime."""

LORA_BANDWIDTH_HZ = 125_000
LORA_PREAMBLE_SYMBOLS = 8
LORA_LOW_RATE_S = 0.016
"""Symbols longer than this use the low data rate optimisation."""
LORA_DUTY_CYCLE = 0.1
"""EU868, 869.4 to 869.65 MHz: the sub-band that allows most (ETSI EN 300 220; Headroom article)."""


def lora_airtime_s(
    payload_bytes: int, spreading_factor: int, *, coding_rate: int = 1, crc: bool = True
) -> float:
    """Time on air of one LoRa packet with an explicit header (Semtech AN1200.13).

    T = (preamble + 4.25 + 8 + max(ceil((8 PL - 4 SF + 28 + 16 CRC) / (4 (SF - 2 DE))) (CR + 4), 0))
    2^SF / BW. `coding_rate` 1 to 4 for 4/5 to 4/8. Raises ValueError outside SF 7 to 12, coding
    rates 1 to 4, or 0 to 255 bytes.
    """
    if not (7 <= spreading_factor <= 12 and 1 <= coding_rate <= 4 and 0 <= payload_bytes <= 255):
        raise ValueError("LoRa has SF 7 to 12, coding rates 1 to 4 and packets of up to 255 bytes")
    symbol_s: float = 2**spreading_factor / LORA_BANDWIDTH_HZ
    low_rate = symbol_s > LORA_LOW_RATE_S
    bits = 8 * payload_bytes - 4 * spreading_factor + 28 + 16 * crc
    blocks = math.ceil(bits / (4 * (spreading_factor - 2 * low_rate)))
    symbols = 8 + max(blocks * (coding_rate + 4), 0)
    return (LORA_PREAMBLE_SYMBOLS + 4.25 + symbols) * symbol_s


def airtime_of(network: Network) -> Airtime:
    """The rule of one catalogue entry. Raises `UserError` where its figures fit no known radio."""
    facts: dict[str, Any] = dict(network.airtime or {})
    if network.id.startswith("lora"):
        factor = _spreading_factor(network)
        return lambda size: lora_airtime_s(min(size, 255), factor)
    if "fixed_us_per_exchange" in facts:
        return _wifi(facts)
    if "packet_us_251" in facts:
        return _bluetooth(facts)
    if "frame_us_127_bytes" in facts:
        return _zigbee(facts)
    rate = min(network.up_mbit_s or 0.0, network.down_mbit_s or 0.0) * 1e6
    if facts or rate <= 0:
        raise UserError(f"{network.name}: its airtime figures fit no radio that is known here")
    return lambda size: 8 * size / rate


def _spreading_factor(network: Network) -> int:
    digits = network.id.rpartition("sf")[2]
    if not digits.isdecimal():
        raise UserError(f"{network.name}: name it lora-sf7 to lora-sf12, for its spreading factor")
    return int(digits)


def _wifi(facts: dict[str, Any]) -> Airtime:
    """Backoff, preamble, acknowledgement: fixed. Then the bytes, at the PHY rate."""
    fixed: float = facts["fixed_us_per_exchange"] * 1e-6
    header: int = facts["mac_header_bytes"]
    rate: float = facts["typical_phy_rate_mbit_s"] * 1e6
    return lambda size: fixed + 8 * (size + header) / rate


def _bluetooth(facts: dict[str, Any]) -> Airtime:
    """Link-layer packets of up to 251 bytes, each with an empty one back and two spaces."""
    most: int = facts["max_ll_payload_bytes"]
    rate: float = facts["phy_mbit_s"] * 1e6
    around: float = (facts["empty_ack_us"] + 2 * facts["inter_frame_space_us"]) * 1e-6
    header_s: float = facts["packet_us_251"] * 1e-6 - 8 * most / rate

    def airtime(size: int) -> float:
        packets = max(1, -(-size // most))
        return packets * (header_s + around) + 8 * size / rate

    return airtime


def _zigbee(facts: dict[str, Any]) -> Airtime:
    """IEEE 802.15.4: backoff, a frame of up to 127 bytes (133 on air), turnaround and an
    acknowledgement. Entries that give the frame alone (Thread) have Zigbee's other figures."""
    rate: float = facts["phy_kbit_s"] * 1e3
    around: float = facts.get("mean_csma_backoff_us", 1120) + facts.get("turnaround_us", 192)
    around_s: float = (around + facts.get("ack_us", 352)) * 1e-6
    longest, on_air = 127, 6

    def airtime(size: int) -> float:
        frames = max(1, -(-size // longest))
        return frames * (around_s + 8 * on_air / rate) + 8 * size / rate

    return airtime
