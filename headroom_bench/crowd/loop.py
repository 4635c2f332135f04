"""The closed loop that every person runs: ask, wait, read, think, ask again.

Plain coroutines over `World`: they run under asyncio and under the simulation kernel alike.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine
from typing import Any

from headroom_bench.crowd.conversation import Conversation
from headroom_bench.crowd.crowd import User
from headroom_bench.crowd.draws import uniform
from headroom_bench.crowd.world import Answer, Request, Stopped, World

PAUSE_AFTER_FAILURE_S = 1.0
"""Shortest wait after a failed request, so that a dead server is not hammered."""


async def live_as(world: World, user: User, first: int = 0) -> None:
    """One person's life in a world, from conversation `first` on, until the world stops."""
    persona = user.persona
    try:
        if not persona.single_request:
            await world.sleep(_comes_s(user))
        for number in itertools.count(first):
            await _hold(world, Conversation(user, number))
    except Stopped:
        return


def _comes_s(user: User) -> float:
    """When a person comes: within the first pause, so that not all begin at once."""
    persona = user.persona
    if persona.single_request:
        return 0.0
    alike = user.prompts.kind == "identical"  # lockstep
    phase = uniform(user.seed, persona.name, 0 if alike else user.index, "phase")
    return phase * persona.think_s.typical


def first_ask_s(user: User) -> float:
    """When a person first asks, seconds after their world began."""
    return _comes_s(user) + user.persona.device.before_s


async def _hold(world: World, talk: Conversation) -> None:
    """One conversation; a failed turn ends it."""
    persona = talk.user.persona
    talk.open()
    for turn in range(talk.script.turns):
        talk.say(turn)
        if persona.device.before_s:
            await world.sleep(persona.device.before_s)
        answer = await _take_turn(world, talk, turn)
        think_s = talk.draws.of(persona.think_s, "think_s", turn)
        if not answer.ok:
            pause_s = max(think_s, PAUSE_AFTER_FAILURE_S)
            await _sleep_until(world, max(answer.end_s + pause_s, answer.again_s or 0.0))
            return
        await _sleep_until(world, _read_by(talk, answer) + think_s)


async def _take_turn(world: World, talk: Conversation, turn: int) -> Answer:
    """All rounds of a turn; the answer to the last one."""
    persona = talk.user.persona
    rounds = talk.script.rounds(turn)
    for step in range(rounds - 1):
        answer = await _ask(world, talk, talk.request(turn, step, rounds))
        if not answer.ok:
            return answer
        wait_s = talk.draws.of(persona.tool_wait_s, "tool_wait_s", turn, step)
        talk.add_tool_results(turn, step)
        await _sleep_until(world, answer.end_s + wait_s)
    return await _ask(world, talk, talk.request(turn, rounds - 1, rounds))


async def _ask(world: World, talk: Conversation, request: Request) -> Answer:
    first = request.turn == request.round == 0
    riders = _riders(world, talk, request) if first else []
    if not riders:
        answer = await world.ask(request)
    else:
        answers: list[Answer] = []

        async def asked() -> None:
            answers.append(await world.ask(request))

        await world.together(asked(), *riders)
        answer = answers[0]
    if answer.ok:
        talk.heard(request, answer)
    return answer


def _riders(world: World, talk: Conversation, first: Request) -> list[Coroutine[Any, Any, Any]]:
    """Requests that the client sends by itself beside the first one: a title, tags."""

    async def ride(request: Request) -> None:
        await world.ask(request)

    return [ride(talk.extra_request(extra, first)) for extra in talk.script.extras]


def _read_by(talk: Conversation, answer: Answer) -> float:
    """When the person has read the answer, reading along while it streams."""
    speed = talk.user.persona.read_tok_s
    if speed is None or answer.first_visible_s is None or not answer.visible_tokens:
        return answer.end_s
    return max(answer.end_s, answer.first_visible_s + answer.visible_tokens / speed)


async def _sleep_until(world: World, when_s: float) -> None:
    """Sleeps to a moment on the world's clock: pauses count from the answer's own end stamp."""
    await world.sleep(max(0.0, when_s - world.now()))
