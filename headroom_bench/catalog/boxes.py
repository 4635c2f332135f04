"""Boxes and GPUs: memory, bandwidth, compute."""

from __future__ import annotations

from dataclasses import dataclass

from headroom_bench.catalog._entries import require_positive
from headroom_bench.catalog._shelf import Shelf


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


def _check(box: Hardware, where: str) -> None:
    require_positive(box, where, "memory_gb", "usable_memory_gb", "bandwidth_gb_s")
    require_positive(box.tflops_dense, f"{where}: tflops_dense", "fp16_bf16")


_SHELF = Shelf(
    "hardware", Hardware, "hardware", lambda box: (box.id, box.name, *box.aliases), _check
)


def hardware() -> tuple[Hardware, ...]:
    """All shipped boxes, in the order of the data file."""
    return _SHELF.entries


def find_hardware(name: str) -> Hardware:
    """The box meant by an id, a name, words that only it has, or a TOML path.

    Raises `UserError`: nothing or several things fit, or the file is wrong.
    """
    return _SHELF.find(name)
