"""The virtual server: a state machine without a clock, I/O or equations of its own."""

from headroom_bench.box.box import Box
from headroom_bench.box.events import TOO_LONG, BoxRequest, Event, EventKind
from headroom_bench.box.readings import SlotState, SlotView, Snapshot, Usage
from headroom_bench.box.slots import context_per_slot
from headroom_bench.box.task import Outcome, Served

__all__ = [
    "TOO_LONG",
    "Box",
    "BoxRequest",
    "Event",
    "EventKind",
    "Outcome",
    "Served",
    "SlotState",
    "SlotView",
    "Snapshot",
    "Usage",
    "context_per_slot",
]
