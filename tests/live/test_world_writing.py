"""A disk that fails while somebody waits for it is told once, and in one line; prompts that are
still being written when nothing is sent any more are given up."""

from __future__ import annotations

import asyncio
import gc
from concurrent.futures import Future
from typing import Any

import pytest
from test_live_validity import Kept, Told

from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import Vocabulary, common_words
from headroom_bench.crowd.world import Request, Stopped
from headroom_bench.errors import UserError
from headroom_bench.live.clock import RunClock, monotonic_ns
from headroom_bench.live.lag import LagWatch
from headroom_bench.live.renderer import Renderer
from headroom_bench.live.world import Asking, LiveWorld
from headroom_bench.measures import Moments
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment


class Slow(Kept):
    """Has not written a record when the next request comes, and then cannot."""

    def append(self, record: RequestRecord, event_times_s: Moments) -> Future[None]:
        super().append(record, event_times_s)
        written: Future[None] = Future()
        full = UserError("results cannot be written: No space left on device")
        asyncio.get_running_loop().call_later(0.05, written.set_exception, full)
        return written


def request(turn: int, tokens: int = 1) -> Request:
    ask = (Segment("ask", "user", "prose", f"x{turn}", tokens),)
    return Request(f"p-0/c0/t{turn}/r0", "p-0/c0", "p", 0, turn, 0, ask, 20)


async def test_a_disk_that_fails_is_told_once() -> None:
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    writing = Renderer(Vocabulary(common_words()), TemplateTokens(), "")
    transport = Told(monotonic_ns() - 10_000_000_000)
    asking = Asking("r", "t", "m", "openai")
    world = LiveWorld(transport, RunClock(), asking, writing, Slow(), LagWatch())
    await world.ask(request(0))
    with pytest.raises(UserError, match="No space left"):
        await world.ask(request(1))
    del world
    gc.collect()
    await asyncio.sleep(0)
    assert not told


def world_of(max_requests: int | None = None) -> tuple[LiveWorld, Told]:
    writing = Renderer(Vocabulary(common_words()), TemplateTokens(), "")
    transport = Told(monotonic_ns() - 10_000_000_000)
    asking = Asking("r", "t", "m", "openai", max_requests=max_requests)
    return LiveWorld(transport, RunClock(), asking, writing, Kept(), LagWatch()), transport


@pytest.mark.parametrize("ends", ["stop", "stop_now"])
async def test_a_prompt_that_is_written_when_the_run_ends_is_given_up(ends: str) -> None:
    world, transport = world_of()
    asking = [asyncio.create_task(world.ask(request(turn, 16_000_000))) for turn in range(2)]
    await asyncio.sleep(0.05)
    getattr(world, ends)()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(result) for result in results] == [Stopped, Stopped]
    assert not transport.sent


async def test_the_last_request_of_a_budget_is_still_written_and_sent() -> None:
    world, transport = world_of(max_requests=1)
    answer = await world.ask(request(0, 100))
    assert answer.ok
    assert world.stopping
    assert len(transport.sent) == 1


async def test_what_no_answer_can_hold_is_not_sent_again() -> None:
    """A server that says more than its own count can be would make every prompt longer."""
    world, transport = world_of()
    transport.word = " w" * 200_000
    first = request(0, 100)
    await world.ask(first)
    said = Segment("answer", "assistant", "prose", f"{first.request_id}/answer", 20)
    again = Segment("ask", "user", "prose", "x1", 100)
    talk = Request("p-0/c0/t1/r0", "p-0/c0", "p", 0, 1, 0, (*first.segments, said, again), 20)
    await world.ask(talk)
    assert len(transport.sent[1]) < 10_000
