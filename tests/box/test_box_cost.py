"""What the box may cost: grows with changes, not with tokens, sequences or time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from box_toys import ToyPricer, request

from headroom_bench.box import Box
from headroom_bench.box.decoders import Decoders
from headroom_bench.box.events import BoxRequest
from headroom_bench.box.task import Task


def serve(box: Box) -> float:
    """Serve all, forget the finished. Returns the time of the last event."""
    last = 0.0
    while (at := box.next_event_at()) is not None:
        last = at
        for event in box.advance(at):
            if event.kind == "finished":
                box.forget(event.id)
    return last


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
