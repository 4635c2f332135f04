"""What the box may cost: grows with changes, not with tokens, sequences or time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import numpy as np
import pytest
from box_toys import ToyPricer, request
from numpy.typing import NDArray

from headroom_bench.box import Box, BoxDesign, plan
from headroom_bench.box.decoders import Decoders
from headroom_bench.box.design import MemoryKind
from headroom_bench.box.events import BoxRequest
from headroom_bench.box.pages import PagedMemory
from headroom_bench.box.task import Task
from headroom_bench.roofline.pricer import Batch


def serve(box: Box) -> float:
    """Serve all, forget the finished. Returns the time of the last event."""
    last = 0.0
    while (at := box.next_event_at()) is not None:
        last = at
        for event in box.advance(at):
            if event.kind == "finished":
                box.forget(event.id)
    return last


def serve_keeping(box: Box) -> None:
    """Serve all and remember them."""
    while (at := box.next_event_at()) is not None:
        box.advance(at)


def test_prices_are_asked_per_change_not_per_token() -> None:
    priced = {}
    for length in (1000, 100_000):
        pricer = ToyPricer(window=100)
        box = Box(pricer, slots=4, ctx_per_slot=200_000)
        for number in range(8):
            asked = request(f"r{number}", (f"t{number}", 50), max_tokens=length + number)
            box.submit(asked, at=0.0)
        serve(box)
        priced[length] = len(pricer.priced)
    # 8 prompts, 8 finishes and 8 crossings, then one price for each thousand passes.
    assert priced[1000] < 60
    assert priced[100_000] < priced[1000] + 2 * 100_000 / 1024 + 10


def test_arrivals_that_must_wait_waste_no_price() -> None:
    pricer = ToyPricer()
    box = Box(pricer, slots=1, ctx_per_slot=2000)
    for number in range(100):
        at = number * 0.1
        box.advance(at)
        box.submit(request(f"r{number}", ("text", 10), max_tokens=1000), at)
        box.next_event_at()
    assert len(pricer.priced) == 5  # the prompt; 128, 256, 512 and the last 103 passes


class CountedInt(int):
    """An int that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: int) -> bool:
        CountedInt.compared += 1
        return int(self) < int(other)

    def __eq__(self, other: object) -> bool:
        CountedInt.compared += 1
        return int(self) == other

    __hash__ = int.__hash__

    def __radd__(self, other: int) -> CountedInt:
        return CountedInt(int(self) + other)

    def __sub__(self, other: int) -> CountedInt:
        return CountedInt(int(self) - other)


@pytest.mark.parametrize("count", [64, 4096])
def test_a_change_compares_log_n(count: int) -> None:
    decoders = Decoders(window=None)
    tasks = []
    for order in range(count):
        wanted = CountedInt((order * 7919) % count + 2)
        task = Task(BoxRequest(str(order), (), 1, ""), order, (), 10, 0.0, order=order)
        task.wanted = wanted
        task.times.append(0.0)
        tasks.append(task)
    CountedInt.compared = 0
    for task in tasks:
        decoders.add(task)
    for beat in range(1, count + 2):
        decoders.batch(beat)
        decoders.pass_over([float(beat)])
        for task in decoders.finishing():
            decoders.remove(task)
    assert not decoders.tasks
    assert 1 < CountedInt.compared / count < 4 * count.bit_length()


@dataclass
class FlatPricer(ToyPricer):
    """Remembers no batches."""

    def pass_s(self, batch: object) -> float:
        return 0.01


@pytest.mark.parametrize("leap", [True, False])
def test_memory_stays_bounded(leap: bool) -> None:
    box = Box(FlatPricer(), slots=2, ctx_per_slot=4000, leap=leap)
    at = 0.0
    for number in range(60):
        box.submit(request(f"a{number}", ("text", 10), max_tokens=400), at)
        box.submit(request(f"b{number}", ("else", 10), max_tokens=2000), at)
        if number % 3 == 0:
            box.cancel(f"b{number}", at + 3.0)
            box.forget(f"b{number}")
        at = serve(box) + 1.0
    assert not box._live
    assert not box._over
    assert not box._calls
    assert len(box._decoders._timeline) < 3 * 4096
    assert len(box._decoders._finishes) <= 2
    assert len(box._plan.blocks) == 0


@dataclass
class CountingPricer(ToyPricer):
    """Counts passes that were priced."""

    passes: int = 0

    def pass_s(self, batch: Batch) -> float:
        self.passes += 1
        return super().pass_s(batch)

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        self.passes += k
        return super().passes_s(batch, k)


def test_arrivals_into_free_slots_waste_no_more_than_was_used() -> None:
    pricer = CountingPricer()
    box = Box(pricer, slots=64, ctx_per_slot=200_000)
    for number in range(60):
        at = number * 1.0
        while (due := box.next_event_at(by=at)) is not None and due <= at:
            box.advance(due)
        box.submit(request(f"r{number}", (f"t{number}", 10), max_tokens=100_000), at)
        box.advance(at)
    # Each arrival comes into the middle of a block at most as long as all before it, or of 128.
    assert pricer.passes < 2 * box.usage.passes + 60 * plan.FIRST_LEAP


@pytest.mark.parametrize("count", [64, 2048])
def test_pages_of_a_batch_cost_the_same_whatever_its_size(count: int) -> None:
    """A batch's pages come from sums by the rest of a context in pages, 16 of them, not from its
    sequences."""
    decoders = Decoders(window=None, page_tokens=16)
    for order in range(count):
        task = Task(BoxRequest(str(order), (), 1, ""), order, (), 10 + order % 50, 0.0, order=order)
        task.wanted = 10_000
        task.times.append(0.0)
        decoders.add(task)
    counted = 0

    def tracer(frame: FrameType, event: str, arg: object) -> None:
        nonlocal counted
        counted += 1

    sys.setprofile(tracer)
    try:
        for beat in range(1, 101):
            decoders.pages_after(beat)
            decoders.batch(beat)
    finally:
        sys.setprofile(None)
    assert counted < 2500
    for beat in (0, 1, 15, 16, 17, 1000):
        want = sum(-(-(beat + task.shift + 1) // 16) for task in decoders.tasks.values())
        assert decoders.pages_after(beat) == want <= decoders.most_pages(beat)


class Operations:
    """Counts the bytecodes that run while it is entered."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Operations:
        sys.settrace(self._begin)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _begin(self, frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        self.count += event == "opcode"
        return self._step


def crowded(memory: MemoryKind, others: int) -> Box:
    """A box in which so many decode, of one more at most, with answers of many lengths."""
    pool = None if memory == "split_slots" else 4096 * (others + 2)
    design = BoxDesign(memory, 4096, others + 1, pool_tokens=pool, batch_tokens=others + 64)
    box = Box.of(FlatPricer(window=600), design)
    for number in range(others):
        length = 500 + number * 7919 % 1000
        box.submit(request(f"r{number}", (f"text{number}", 1), max_tokens=length), 0.0)
    box.advance(0.015)  # one pass, which reads them all
    assert len(box._decoders.tasks) == others
    return box


def operations_of_a_request(memory: MemoryKind, others: int) -> int:
    """Of one who comes, is read, answered and forgotten while so many others decode."""
    box = crowded(memory, others)
    asked = request("one", ("system", 40), ("ask", 24), max_tokens=30)
    events: list[str] = []
    with Operations() as operations:
        box.submit(asked, 0.02)
        while "finished" not in events:
            at = box.next_event_at(by=0.02)
            assert at is not None
            events += [event.kind for event in box.advance(at) if event.id == "one"]
        box.forget("one")
    assert events == ["admitted", "cached", "first_token", "finished"]
    return operations.count


@pytest.mark.parametrize("memory", ["split_slots", "unified_slots", "paged", "dynamic_batch"])
def test_a_request_costs_log_n_of_those_beside_it(memory: MemoryKind) -> None:
    few, many = (operations_of_a_request(memory, others) for others in (32, 1024))
    assert many < few * 1.1


def test_a_preemption_costs_log_n_of_those_beside_it() -> None:
    counts = []
    for others in (32, 1024):
        design = BoxDesign("paged", 512, others, pool_tokens=(others - 1) * 128 + 512)
        box = Box.of(FlatPricer(), design)
        for number in range(others):
            box.submit(request(f"r{number}", (f"text{number}", 32), max_tokens=110), 0.0)
        operations = Operations()
        while not box.usage.preempted:
            at = box.next_event_at()
            assert at is not None
            operations = Operations()
            with operations:
                box.advance(at)
        counts.append(operations.count / box.usage.preempted)
    assert counts[1] < counts[0] * 1.1


def test_a_conversation_is_few_nodes_of_the_tree_and_parts_where_others_leave_it() -> None:
    box = Box.of(FlatPricer(), BoxDesign("paged", 8192, 4, pool_tokens=16_384))
    memory = box._memory
    assert isinstance(memory, PagedMemory)
    said = [("system", 100)]
    for turn in range(40):
        said.append((f"ask{turn}", 20))
        box.submit(request(f"r{turn}", *said, max_tokens=30), turn * 100.0)
        serve_keeping(box)
        said.append((f"r{turn}/answer", 30))
    # Of 80 pieces: a new one only where an answer's unread last token would have ended a page.
    nodes = len(memory.tree._nodes)
    assert nodes <= 1 + 2 * 40 // 16
    assert box.served("r39").cached_tokens == (100 + 39 * 50 - 1) // 16 * 16
    box.submit(request("other", ("system", 100), ("else", 50), max_tokens=30), 5000.0)
    serve_keeping(box)
    assert box.served("other").cached_tokens == 96
    assert len(memory.tree._nodes) == nodes + 2  # what they share, and how each goes on


def test_texts_shorter_than_a_page_do_not_pile_up() -> None:
    box = Box.of(FlatPricer(), BoxDesign("paged", 512, 4, pool_tokens=4096))
    for number in range(200):
        parts = (("system", 40), (f"ask{number}", 3)) if number % 2 else ((f"only{number}", 9),)
        box.submit(request(f"r{number}", *parts, max_tokens=2), number * 10.0)
        serve_keeping(box)
    memory = box._memory
    assert isinstance(memory, PagedMemory)
    assert len(memory.tree._nodes) <= 2
    assert box.served("r199").cached_tokens == 32
