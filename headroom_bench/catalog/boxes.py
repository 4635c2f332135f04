"""Boxes and GPUs: memory, bandwidth, compute."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from headroom_bench.catalog._entries import (
    Names,
    build,
    own_entry,
    read_data,
    read_toml,
    require_positive,
)


@dataclass(frozen=True, slots=True)
class Tflops:
    """Peak dense rates in 10^12 operations a second; None where the chip has no such unit."""

    fp16_bf16: float
    fp32: float | None = None
    fp16_acc16: float | None = None
    fp8: float | None = None
    int8: float | None = None
    fp4: float | None = None


@dataclass(frozen=True, slots=True)
class BoxLink:
    """How a second box or card is reached. Bandwidth is one direction."""

    kind: str
    bandwidth_gb_s: float
    latency_us: float
    note: str = ""
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Hardware:
    """One box or card. GB are 10^9 bytes."""

    id: str
    name: str
    architecture: str
    """gb10, ada, rdna3.5, apple, cpu-x86 …: what fitted efficiencies are kept by."""
    memory_gb: float
    usable_memory_gb: float
    bandwidth_gb_s: float
    """The vendor's figure."""
    tflops_dense: Tflops
    kind: str = "gpu"
    unified: bool = False
    """CPU and GPU share the memory, so there is no second tier to offload to."""
    aliases: tuple[str, ...] = ()
    measured_read_bandwidth_gb_s: float | None = None
    tflops_basis: str = ""
    cpu_tflops: float | None = None
    """Peak FP32 rate of the CPU's cores, 10^12 operations a second, where `tflops_dense` is a
    GPU's; estimated by arithmetic (cores, operations a cycle, clock)."""
    host_bandwidth_gb_s: float | None = None
    second_box_link: BoxLink | None = None
    tdp_w: float | None = None
    launch_price_usd: float | None = None
    launch: str = ""
    usual_backends: tuple[str, ...] = ()
    notes: str = ""
    estimated: bool = False
    source: str = ""


@functools.cache
def hardware() -> tuple[Hardware, ...]:
    """All shipped boxes, in the order of the data file."""
    entries = read_data("hardware.json")["hardware"]
    return tuple(build(Hardware, entry, f"hardware.json: {entry['id']}") for entry in entries)


@functools.cache
def _names() -> Names:
    return Names("hardware", {box.id: (box.name, *box.aliases) for box in hardware()})


@functools.cache
def _by_id() -> dict[str, Hardware]:
    return {box.id: box for box in hardware()}


def hardware_from_toml(path: Path) -> Hardware:
    """A user's own box: a TOML file with the keys of one entry. Raises `UserError`."""
    box = build(Hardware, {"source": path.name, **read_toml(path)}, str(path))
    require_positive(box, str(path), "memory_gb", "usable_memory_gb", "bandwidth_gb_s")
    require_positive(box.tflops_dense, f"{path}: tflops_dense", "fp16_bf16")
    return box


def find_hardware(name: str) -> Hardware:
    """The box meant by an id, a name, a unique part of either, or a TOML path.

    Raises `UserError`: nothing or several things fit, or the file is wrong.
    """
    if path := own_entry(name):
        return hardware_from_toml(path)
    return _by_id()[_names().find(name)]
