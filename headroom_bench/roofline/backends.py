"""Which backend runs a runtime on a box, and what the box is to it."""

from __future__ import annotations

import dataclasses

from headroom_bench.catalog import Hardware, Runtime
from headroom_bench.catalog.boxes import Tflops
from headroom_bench.errors import UserError, unknown_name

BACKENDS = ("cuda", "rocm", "vulkan", "metal", "sycl", "xpu", "cpu")
"""Names that a user may give."""

_NVIDIA, _AMD, _INTEL = ("cuda", "vulkan"), ("vulkan", "rocm"), ("vulkan", "sycl", "xpu")
_OF_ARCHITECTURE = {
    **dict.fromkeys(("gb10", "thor", "orin", "pascal", "volta", "turing"), _NVIDIA),
    **dict.fromkeys(("ampere", "ada", "blackwell", "hopper"), _NVIDIA),
    **dict.fromkeys(("rdna3", "rdna3.5", "rdna4"), _AMD),
    "cdna": ("rocm", "vulkan"), "xe": _INTEL, "xe2": _INTEL, "apple": ("metal", "vulkan"),
}  # fmt: skip
"""What the maker's chips have drivers for, the usual one first; Vulkan on Macs is MoltenVK."""
_SLOT_SERVERS = ("llama.cpp", "ollama", "lm-studio")

CPU_TFLOPS = 0.4
"""Assumed of a CPU that the catalogue does not know: four cores that do 32 FP32 operations a cycle
at 3.2 GHz (an Apple M1's fast cores, the least of the boxes that it stands for)."""


def default_backend(hardware: Hardware, runtime: str) -> str:
    """What the runtime (its id) uses on this box unless told otherwise."""
    if _is_cpu(hardware):
        return "cpu"
    backend = _OF_ARCHITECTURE.get(hardware.architecture, ("cuda",))[0]
    if backend == "vulkan" and runtime not in _SLOT_SERVERS:
        return "xpu" if hardware.architecture.startswith("xe") else "rocm"
    return backend


def backends_of(hardware: Hardware) -> tuple[str, ...]:
    """What the box can run, by its maker; everything where the maker is not known."""
    if _is_cpu(hardware):
        graphics = any("vulkan" in server.lower() for server in hardware.usual_backends)
        return ("cpu", "vulkan") if graphics else ("cpu",)
    found = _OF_ARCHITECTURE.get(hardware.architecture, BACKENDS[:-1])
    return (*found, "cpu") if hardware.unified else found


def backend_of(hardware: Hardware, runtime: Runtime, asked: str | None) -> str:
    """The backend that is asked for, else the runtime's own choice there.

    Raises `UserError`: no such name, or one that the box or the runtime cannot have.
    """
    box, server = backends_of(hardware), runtime.backends or BACKENDS
    both = [backend for backend in box if backend in server]
    if asked is None:
        usual = default_backend(hardware, runtime.id)
        if usual in server:
            return usual
        if both:
            return both[0]
    elif asked not in BACKENDS:
        raise unknown_name("backend", asked, BACKENDS)
    elif asked in both:
        return asked
    elif asked == "cpu" and "cpu" not in box:
        raise UserError(
            f"{hardware.name} is a card, and the CPU beside it is not known: name a CPU box "
            "(`headroom-bench catalog hardware`)"
        )
    raise UserError(
        f"{runtime.name} on {hardware.name} cannot use {asked or 'any backend'}: "
        f"the runtime has {', '.join(server)}, the box {', '.join(box)}"
    )


def as_used(hardware: Hardware, backend: str) -> Hardware:
    """The box as a backend sees it: to the CPU's it is its cores, with the memory it shares."""
    if backend != "cpu" or (_is_cpu(hardware) and hardware.cpu_tflops is None):
        return hardware
    peak = CPU_TFLOPS if hardware.cpu_tflops is None else hardware.cpu_tflops
    basis = "assumed" if hardware.cpu_tflops is None else "arithmetic"
    return dataclasses.replace(
        hardware, tflops_dense=Tflops(fp16_bf16=peak, fp32=peak), tflops_basis=basis
    )


def _is_cpu(hardware: Hardware) -> bool:
    return hardware.architecture.startswith("cpu")
