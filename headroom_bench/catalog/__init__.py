"""The catalogue: models, hardware, quantization, runtimes, networks, each fact with its source.

Nothing is read at import; the first look-up of a kind reads its data file once.
"""

from headroom_bench.catalog.boxes import BoxLink, Hardware, Tflops, find_hardware, hardware
from headroom_bench.catalog.kv_shape import KvShape
from headroom_bench.catalog.model import MLA, LinearAttention, Model, MoE, SlidingWindow
from headroom_bench.catalog.models import find_model, is_model_file, models, twin
from headroom_bench.catalog.network import Network, find_network, networks
from headroom_bench.catalog.params import Params
from headroom_bench.catalog.quant import Quant, find_quant, kv_value_bytes, quants
from headroom_bench.catalog.runtime import Runtime, find_runtime, runtimes
from headroom_bench.catalog.stored import Stored

__all__ = [
    "MLA",
    "BoxLink",
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
    "Stored",
    "Tflops",
    "find_hardware",
    "find_model",
    "find_network",
    "find_quant",
    "find_runtime",
    "hardware",
    "is_model_file",
    "kv_value_bytes",
    "models",
    "networks",
    "quants",
    "runtimes",
    "twin",
]
