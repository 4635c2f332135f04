"""Personas for tests, and worlds of a few lines that answer from a can."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field, replace
from typing import Any

from headroom_bench.crowd.crowd import Crowd, Group, User
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import Extra, Persona, SegmentPlan, Target
from headroom_bench.crowd.world import Answer, Device, Request, Stopped
from headroom_bench.segments import total_tokens
from headroom_bench.shipped import names_in, shipped_dir

PERSONAS = names_in(shipped_dir("personas"))
CROWDS = names_in(shipped_dir("personas") / "crowds")
fixed = Distribution.fixed


def plan(name: str, each: Any, tokens: Distribution, shared: Any = "nobody") -> SegmentPlan:
    role = {"conversation": "system", "turn": "user", "round": "tool"}[each]
    return SegmentPlan(name, role, "prose", tokens, each, shared)


SYSTEM = plan("system", "conversation", fixed(100), "group")
ASK = plan("ask", "turn", Distribution("uniform", 10, 40, 40))
RESULT = plan("result", "round", fixed(25))
TITLE = Extra("title", fixed(15), fixed(4))


def persona(name: str = "chat", **changes: Any) -> Persona:
    plain = Persona(
        name=name,
        summary="",
        segments=(SYSTEM, ASK),
        output=Distribution("uniform", 5, 20, 20),
        turns=fixed(3),
        rounds=fixed(1),
        tool_output=fixed(6),
        tool_wait_s=fixed(0.5),
        reasoning=fixed(0),
        think_s=Distribution("uniform", 1, 3, 3),
        read_tok_s=None,
        patience_s=None,
        device=Device(),
        target=Target("ttfv", 2.0, None, 0.95),
        group=name,
        link=None,
        extras=(),
    )
    return replace(plain, **changes)


def crowd(*groups: tuple[Persona, int], seed: int = 1) -> Crowd:
    return Crowd("test", seed, tuple(Group(*group) for group in groups))


def user(one: Persona | None = None, index: int = 0, seed: int = 1) -> User:
    return User(one or persona(), index, seed)


Answering = Callable[[Request, float], Answer]
"""The answer to a request that was sent at a moment."""


def canned(request: Request, sent_s: float) -> Answer:
    """Takes 1 s, first word after 0.25 s; the server counts 7 tokens of template."""
    return Answer(
        ok=True,
        end_s=sent_s + 1.0,
        first_visible_s=sent_s + 0.25,
        prompt_tokens=total_tokens(request.segments) + 7,
        visible_tokens=request.max_tokens - request.reasoning_tokens,
    )


@dataclass
class Diary:
    """What a world saw."""

    asked: list[Request] = field(default_factory=list)
    sent_s: list[float] = field(default_factory=list)
    slept_s: list[float] = field(default_factory=list)

    def ids(self) -> list[str]:
        return [request.request_id for request in self.asked]


class _Yielded:
    """Awaitable that gives itself to whoever drives the coroutine."""

    def __init__(self, kind: str, what: Any) -> None:
        self.kind, self.what = kind, what

    def __await__(self) -> Generator[_Yielded, Any, Any]:
        return (yield self)


class TrivialWorld:
    """`World` under a virtual clock, for one person: no event loop, only `coroutine.send`."""

    def __init__(self, limit: int, answer: Answering = canned) -> None:
        self.diary = Diary()
        self.clock_s = 0.0
        self._limit = limit
        self._answer = answer

    @property
    def stopping(self) -> bool:
        return len(self.diary.asked) >= self._limit

    def now(self) -> float:
        return self.clock_s

    def sleep(self, seconds: float) -> Awaitable[None]:
        self.diary.slept_s.append(seconds)
        return _Yielded("sleep", seconds)

    def ask(self, request: Request) -> Awaitable[Answer]:
        return _Yielded("ask", request)

    def together(self, *coroutines: Any) -> Awaitable[None]:
        return _Yielded("together", coroutines)

    def live(self, coroutine: Any) -> None:
        """Drives it, and whoever rides along, to the end."""
        agenda: list[tuple[float, int, Any, Any]] = []
        waiting: dict[Any, list[Any]] = {}  # by child: the parent, and whether it must stop
        order = 0

        def step(who: Any, value: Any = None, stop: bool = False) -> None:
            nonlocal order
            try:
                wait = who.throw(Stopped()) if stop else who.send(value)
            except StopIteration:
                wait = None
            except Stopped:
                wait, stop = None, True
            if wait is None:
                family = waiting.pop(who, None)
                if family is None:
                    return
                family[1] |= stop
                if not any(other is family for other in waiting.values()):
                    step(family[0], stop=family[1])
            elif wait.kind == "together":
                family = [who, False]
                waiting.update((child, family) for child in wait.what)
                for child in wait.what:
                    step(child)
            elif self.stopping:
                step(who, stop=True)
            else:
                order += 1
                due_s, result = self.clock_s + (wait.kind == "sleep" and wait.what), None
                if wait.kind == "ask":
                    self.diary.asked.append(wait.what)
                    self.diary.sent_s.append(self.clock_s)
                    result = self._answer(wait.what, self.clock_s)
                    due_s = result.end_s
                heapq.heappush(agenda, (due_s, order, who, result))

        step(coroutine)
        while agenda:
            self.clock_s, _, who, result = heapq.heappop(agenda)
            step(who, result)


class AsyncioWorld:
    """The same for asyncio; its clock jumps instead of waiting."""

    def __init__(self, limit: int, answer: Answering = canned) -> None:
        self.diary = Diary()
        self.clock_s = 0.0
        self._limit = limit
        self._answer = answer

    @property
    def stopping(self) -> bool:
        return len(self.diary.asked) >= self._limit

    def now(self) -> float:
        return self.clock_s

    async def sleep(self, seconds: float) -> None:
        self.diary.slept_s.append(seconds)
        if self.stopping:
            raise Stopped
        await asyncio.sleep(0)
        self.clock_s += seconds

    async def ask(self, request: Request) -> Answer:
        if self.stopping:
            raise Stopped
        self.diary.asked.append(request)
        self.diary.sent_s.append(self.clock_s)
        answer = self._answer(request, self.clock_s)
        await asyncio.sleep(0)
        self.clock_s = max(self.clock_s, answer.end_s)
        return answer

    async def together(self, *coroutines: Any) -> None:
        for ended in await asyncio.gather(*coroutines, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended
