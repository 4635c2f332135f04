"""Bytes, FLOPs and the time of a pass: pure functions, no clock, no I/O."""

from headroom_bench.roofline.constants import Constant, Constants, constants_for
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.memory import Fit, fit
from headroom_bench.roofline.passes import PassCost, Roofline
from headroom_bench.roofline.pricer import Batch, Chunk, Pricer

__all__ = [
    "Batch",
    "Chunk",
    "Constant",
    "Constants",
    "Deployment",
    "Fit",
    "PassCost",
    "Pricer",
    "Roofline",
    "constants_for",
    "fit",
]
