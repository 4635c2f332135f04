"""The persona loop over its seam: the same life without an event loop and under asyncio."""

from __future__ import annotations

import ast
import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crowd_people import (
    ASK,
    RESULT,
    SYSTEM,
    TITLE,
    Answering,
    AsyncioWorld,
    Diary,
    TrivialWorld,
    canned,
    fixed,
    persona,
    plan,
    user,
)

import headroom_bench.crowd
from headroom_bench.crowd.crowd import User
from headroom_bench.crowd.loop import PAUSE_AFTER_FAILURE_S, live_as
from headroom_bench.crowd.world import Answer, Device, Request
from headroom_bench.segments import total_tokens

pytestmark = pytest.mark.filterwarnings("error")


def lived(who: User, requests: int, answer: Answering = canned) -> Diary:
    world = TrivialWorld(requests, answer)
    world.live(live_as(world, who))
    return world.diary


LIVES = {
    "plain": persona(),
    "reading": persona(read_tok_s=4.0, patience_s=30.0),
    "tools": persona(rounds=fixed(3), segments=(SYSTEM, ASK, RESULT), device=Device(before_s=0.3)),
    "titles": persona(extras=(TITLE,)),
    "thinking": persona(reasoning=fixed(9)),
}


@pytest.mark.parametrize("kind", LIVES)
def test_one_life_in_two_worlds(kind: str) -> None:
    without_loop = lived(user(LIVES[kind]), 17)
    under_asyncio = AsyncioWorld(17)
    asyncio.run(live_as(under_asyncio, user(LIVES[kind])))
    assert without_loop.ids() == under_asyncio.diary.ids()
    assert without_loop.asked == under_asyncio.diary.asked
    assert without_loop.slept_s == under_asyncio.diary.slept_s


def test_no_module_of_the_crowd_imports_asyncio() -> None:
    for path in Path(headroom_bench.crowd.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "asyncio"], path.name


def test_ids_count_conversations_turns_and_rounds_from_zero() -> None:
    one = persona(rounds=fixed(2), turns=fixed(2), segments=(SYSTEM, ASK, RESULT), extras=(TITLE,))
    assert lived(user(one, index=4), 7).ids() == [
        "chat-4/c0/t0/r0",
        "chat-4/c0/t0/r0.title",
        "chat-4/c0/t0/r1",
        "chat-4/c0/t1/r0",
        "chat-4/c0/t1/r1",
        "chat-4/c1/t0/r0",
        "chat-4/c1/t0/r0.title",
    ]


def test_every_request_says_how_many_rounds_its_turn_has() -> None:
    one = persona(rounds=fixed(3), segments=(SYSTEM, ASK, RESULT))
    assert {request.rounds for request in lived(user(one), 6).asked} == {3}


def test_history_agrees_with_what_the_server_counted() -> None:
    first, second = lived(user(), 2).asked
    counted = total_tokens(first.segments) + 7
    *history, said, asked = second.segments
    assert total_tokens(history) == counted
    assert said.name == "answer"
    assert said.role == "assistant"
    assert said.tokens == first.max_tokens
    assert said.content_id == "chat-0/c0/t0/r0/answer"
    assert asked.name == "ask"


def test_reasoning_is_not_sent_again() -> None:
    first, second = lived(user(persona(reasoning=fixed(50))), 2).asked
    assert first.reasoning_tokens == 50
    assert second.segments[-2].tokens == first.max_tokens - 50


def test_a_server_that_counts_nothing_leaves_lengths_as_drawn() -> None:
    def mute(request: Request, sent_s: float) -> Answer:
        return Answer(ok=True, end_s=sent_s + 1)

    first, second = lived(user(), 2, mute).asked
    assert second.segments[:-1] == first.segments


def test_tool_rounds_append_the_answer_and_the_result() -> None:
    one = persona(rounds=fixed(2), segments=(SYSTEM, ASK, RESULT))
    diary = lived(user(one), 2)
    call, final = diary.asked
    assert call.max_tokens == 6
    assert [s.name for s in final.segments] == ["system", "ask", "answer", "result"]
    assert final.segments[-1].role == "tool"
    assert diary.sent_s[1] == diary.sent_s[0] + 1.0 + 0.5  # the answer's end, then the tool


def test_users_of_a_group_share_a_segment_and_nothing_else() -> None:
    mine, theirs = (lived(user(index=index), 1).asked[0].segments for index in (0, 1))
    assert mine[0] == theirs[0]
    assert mine[1].content_id != theirs[1].content_id


def test_a_shared_segment_of_drawn_length_is_as_long_for_everyone() -> None:
    drawn = plan("system", "conversation", ASK.tokens, "group")
    own = plan("home", "conversation", ASK.tokens, "user")
    one = persona(segments=(drawn, own, ASK))
    first, again = (lived(user(one, 0), 7).asked[at] for at in (0, 3))
    assert again.conversation_id != first.conversation_id
    assert again.segments[:2] == first.segments[:2]
    neighbour = lived(user(one, 1), 1).asked[0]
    assert neighbour.segments[0] == first.segments[0]
    assert neighbour.segments[1].content_id != first.segments[1].content_id


def test_another_persona_in_the_group_shares_its_text() -> None:
    a, b = persona("a", group="home"), persona("b", group="home")
    assert lived(user(a), 1).asked[0].segments[0] == lived(user(b), 1).asked[0].segments[0]


def test_extras_ride_along_once_a_conversation_with_a_context_of_their_own() -> None:
    diary = lived(user(persona(extras=(TITLE,))), 8)
    titles = [request for request in diary.asked if request.request_id.endswith(".title")]
    assert [t.request_id for t in titles] == ["chat-0/c0/t0/r0.title", "chat-0/c1/t0/r0.title"]
    assert total_tokens(titles[0].segments) == 15
    assert titles[0].max_tokens == 4
    assert diary.sent_s[0] == diary.sent_s[1]
    assert all(".title" not in s.content_id for s in diary.asked[2].segments)


@pytest.mark.parametrize(("think_s", "pause_s"), [(0, PAUSE_AFTER_FAILURE_S), (5, 5.0)])
def test_a_failure_ends_the_conversation_and_pauses(think_s: float, pause_s: float) -> None:
    def failing(request: Request, sent_s: float) -> Answer:
        return Answer(ok=False, end_s=sent_s + 0.1, error_kind="reset")

    diary = lived(user(persona(think_s=fixed(think_s))), 3, failing)
    assert diary.ids() == [f"chat-0/c{number}/t0/r0" for number in range(3)]
    for before, after in itertools.pairwise(diary.sent_s):
        assert after - before == pytest.approx(0.1 + pause_s)


def test_a_server_that_says_when_to_come_again_is_not_asked_before() -> None:
    def refusing(request: Request, sent_s: float) -> Answer:
        return Answer(ok=False, end_s=sent_s + 0.1, error_kind="rate_limited", again_s=sent_s + 9)

    diary = lived(user(persona(think_s=fixed(2))), 3, refusing)
    assert len(diary.sent_s) == 3
    for before, after in itertools.pairwise(diary.sent_s):
        assert after - before == pytest.approx(9.0)


def test_a_failed_tool_round_ends_the_turn() -> None:
    def second_fails(request: Request, sent_s: float) -> Answer:
        return replace(canned(request, sent_s), ok=request.round != 1)

    one = persona(rounds=fixed(3), segments=(SYSTEM, ASK, RESULT))
    ids = lived(user(one), 3, second_fails).ids()
    assert ids == ["chat-0/c0/t0/r0", "chat-0/c0/t0/r1", "chat-0/c1/t0/r0"]


def test_patience_device_and_forced_lengths_pass_through() -> None:
    device = Device(shows_reasoning=False, buffer_tokens=16)
    one = persona(patience_s=12.0, device=device, force_length=True)
    request = lived(user(one), 1).asked[0]
    assert (request.patience_s, request.device, request.force_length) == (12.0, device, True)


def test_before_s_is_slept_once_a_turn() -> None:
    one = persona(
        rounds=fixed(3), segments=(SYSTEM, ASK, RESULT), turns=fixed(1), think_s=fixed(2),
        device=Device(before_s=0.125),
    )  # fmt: skip
    diary = lived(user(one), 6)
    assert diary.slept_s.count(0.125) == 2


def test_thinking_counts_from_the_end_of_the_answer_not_from_now() -> None:
    """Whoever reads the answer late (a busy event loop) must not think longer for it."""

    def late(request: Request, sent_s: float) -> Answer:
        return replace(canned(request, sent_s), end_s=sent_s + 1.0)

    world = AsyncioWorld(2, late)
    resume = world.ask

    async def ask(request: Request) -> Answer:
        answer = await resume(request)
        world.clock_s += 0.4  # parsing
        return answer

    world.ask = ask  # type: ignore[method-assign]
    asyncio.run(live_as(world, user(persona(think_s=fixed(2)))))
    first, second = world.diary.sent_s
    assert second - first == pytest.approx(1.0 + 2.0)


def test_reading_counts_from_the_first_visible_word() -> None:
    slow = persona(read_tok_s=2.0, output=fixed(10), think_s=fixed(3), turns=fixed(9))
    first, second = lived(user(slow), 2).sent_s
    assert second - first == pytest.approx(0.25 + 10 / 2.0 + 3)


def test_a_quick_reader_still_waits_for_the_end() -> None:
    quick = persona(read_tok_s=1e6, think_s=fixed(3), turns=fixed(9))
    first, second = lived(user(quick), 2).sent_s
    assert second - first == pytest.approx(1.0 + 3)


def test_users_begin_at_different_phases_of_their_think_time() -> None:
    one = persona(think_s=fixed(10))
    phases = [lived(user(one, index), 1).sent_s[0] for index in range(40)]
    assert all(0 < phase < 10 for phase in phases)
    assert max(phases) - min(phases) > 6
    assert len(set(phases)) == 40


def test_the_probe_begins_at_once() -> None:
    assert lived(user(persona(single_request=True)), 1).sent_s == [0.0]


def test_a_stopped_world_ends_a_life_at_any_wait() -> None:
    kinds: set[Any] = set()
    for limit in range(1, 9):
        diary = lived(user(LIVES["tools"]), limit)
        assert len(diary.asked) == limit
        kinds.add(diary.asked[-1].round)
    assert kinds == {0, 1, 2}
