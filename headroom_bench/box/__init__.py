"""The virtual server: a state machine without a clock, I/O or equations of its own."""

from headroom_bench.box.box import Box
from headroom_bench.box.design import BoxDesign, split_slots
from headroom_bench.box.events import (
    POOL_EXHAUSTED,
    QUEUE_FULL,
    TOO_LONG,
    BoxRequest,
    Event,
    EventKind,
)
from headroom_bench.box.readings import SlotState, SlotView, Snapshot, Usage
from headroom_bench.box.slots import context_per_slot
from headroom_bench.box.speculation import (
    Speculation,
    alpha_of,
    tokens_a_pass,
    typical_speculation,
)
from headroom_bench.box.task import Outcome, Served

__all__ = [
    "POOL_EXHAUSTED",
    "QUEUE_FULL",
    "TOO_LONG",
    "Box",
    "BoxDesign",
    "BoxRequest",
    "Event",
    "EventKind",
    "Outcome",
    "Served",
    "SlotState",
    "SlotView",
    "Snapshot",
    "Speculation",
    "Usage",
    "alpha_of",
    "context_per_slot",
    "split_slots",
    "tokens_a_pass",
    "typical_speculation",
]
