"""The catalogue: models, hardware, quantization, runtimes, networks, each fact with its source.

Nothing is read at import; the first look-up of a kind reads its data file once.
"""

from headroom_bench.catalog.boxes import Hardware, Tflops, find_hardware, hardware
from headroom_bench.catalog.model import (
    MLA,
    KvShape,
    LinearAttention,
    Model,
    MoE,
    Params,
    SlidingWindow,
    find_model,
    models,
)
from headroom_bench.catalog.network import Network, find_network, networks
from headroom_bench.catalog.quant import Quant, find_quant, kv_value_bytes, quants
from headroom_bench.catalog.runtime import Runtime, find_runtime, runtimes

__all__ = [
    "MLA",
    "Hardware",
    "KvShape",
    "LinearAttention",
    "MoE",
    "Model",
    "Network",
    "Params",
    "Quant",
    "Runtime",
    "SlidingWindow",
    "Tflops",
    "find_hardware",
    "find_model",
    "find_network",
    "find_quant",
    "find_runtime",
    "hardware",
    "kv_value_bytes",
    "models",
    "networks",
    "quants",
    "runtimes",
]
