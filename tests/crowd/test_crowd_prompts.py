"""Prompts as messages, what they share on purpose, and the ways to share more."""

from __future__ import annotations

from crowd_people import ASK, RESULT, TITLE, TrivialWorld, crowd, fixed, persona, plan

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.prompts import SharedTexts, answered_segments, to_messages
from headroom_bench.crowd.script import PromptKind, Prompts
from headroom_bench.crowd.world import Request
from headroom_bench.segments import Segment, total_tokens


def part(role: str, content_id: str, tokens: int = 1) -> Segment:
    return Segment(content_id, role, "prose", content_id, tokens)


def test_neighbours_of_one_role_are_one_message() -> None:
    prompt = [part("system", "a"), part("system", "b"), part("user", "c"), part("user", "d"),
              part("assistant", "e"), part("tool", "f"), part("user", "g")]  # fmt: skip
    assert to_messages(prompt, lambda segment: segment.content_id) == [
        {"role": "system", "content": "a b"},
        {"role": "user", "content": "c d"},
        {"role": "assistant", "content": "e"},
        {"role": "user", "content": "f g"},
    ]


def asked(talk: str, *segments: Segment) -> Request:
    return Request(f"{talk}/t0/r0", talk, "chat", 0, 0, 0, segments, 10)


def test_what_was_sent_before_in_this_run_may_be_cached() -> None:
    texts = SharedTexts()
    system, common = part("system", "group/system", 100), part("user", "group/files", 50)
    own = part("user", "chat-0/c0/t0/ask", 20)
    first = asked("chat-0/c0", system, own)
    assert texts.reusable_tokens(first, first.segments) == 0, "nobody has sent anything"
    other = asked("chat-1/c0", system, common, part("user", "chat-1/c0/t0/ask", 20))
    assert texts.reusable_tokens(other, other.segments) == 100
    assert texts.reusable_tokens(other, other.segments) == 150
    answer = part("assistant", "chat-0/c0/t0/r0/answer", 9)
    later = asked("chat-0/c0", system, own, answer, part("user", "chat-0/c0/t1/ask", 30))
    assert answered_segments(later) == 3
    assert texts.reusable_tokens(later, later.segments) == 129


def test_a_namesake_is_not_ones_own() -> None:
    """c1 is no part of c10."""
    request = asked("chat-0/c1", part("user", "chat-0/c10/t0/ask", 20))
    texts = SharedTexts()
    texts.reusable_tokens(request, request.segments)
    assert texts.reusable_tokens(request, request.segments) == 20


ONE = persona(segments=(plan("system", "conversation", fixed(100), "group"), ASK, RESULT),
              rounds=fixed(2), extras=(TITLE,))  # fmt: skip


def lives(kind: PromptKind, one: object = ONE, limit: int = 24) -> list[list[Request]]:
    """What three people ask."""
    people = crowd((one, 3)).with_prompts(Prompts(kind))  # type: ignore[arg-type]
    found = []
    for person in people.users():
        world = TrivialWorld(limit)
        world.live(live_as(world, person))
        found.append(world.diary.asked)
    return found


def own_texts(request: Request) -> list[tuple[str, int]]:
    return [(s.content_id, s.tokens) for s in request.segments if s.role != "assistant"]


def test_identical_is_the_same_from_everyone_in_every_conversation() -> None:
    everyone = lives("identical")
    for ours in zip(*everyone, strict=True):
        assert len({tuple(own_texts(request)) for request in ours}) == 1
        assert len({request.max_tokens for request in ours}) == 1
        assert len({request.request_id for request in ours}) == 3
    first = [request for request in everyone[0] if request.request_id.endswith("/t0/r0")]
    assert len(first) >= 2, "more than one conversation"
    assert len({tuple(own_texts(request)) for request in first}) == 1


def test_identical_is_in_step() -> None:
    people = crowd((ONE, 3)).with_prompts(Prompts("identical"))
    times = []
    for person in people.users():
        world = TrivialWorld(12)
        world.live(live_as(world, person))
        times.append(world.diary.sent_s)
    assert times[0] == times[1] == times[2]


def test_distinct_shares_nothing_but_what_the_persona_says() -> None:
    seen: dict[str, set[str]] = {}
    for number, life in enumerate(lives("distinct")):
        for request in life:
            for segment in request.segments:
                seen.setdefault(segment.content_id, set()).add(
                    f"{number}/{request.conversation_id}"
                )
    shared = {content_id for content_id, talks in seen.items() if len(talks) > 1}
    assert shared == {"chat/system"}


def test_shared_prefix_gives_new_texts_a_common_half() -> None:
    long_ask = plan("ask", "turn", Distribution("uniform", 100, 300, 300))
    one = persona(segments=(long_ask,), turns=fixed(2))
    for request in (life[-1] for life in lives("shared-prefix", one)):
        new = request.segments[answered_segments(request) :]
        assert [segment.name for segment in new] == ["ask.shared", "ask"]
        assert (new[0].content_id, new[0].tokens) == ("chat/ask.shared", 100)
    totals = {total_tokens(life[0].segments) for life in lives("shared-prefix", one)}
    assert totals == {total_tokens(life[0].segments) for life in lives("distinct", one)}


def test_a_text_shorter_than_the_common_half_shares_nothing() -> None:
    common = round(Distribution("uniform", 10, 1000, 1000).typical / 2)
    short = plan("ask", "turn", Distribution("uniform", 10, 1000, 1000))
    sizes = [
        [segment.tokens for segment in request.segments]
        for life in lives("shared-prefix", persona(segments=(short,), turns=fixed(1)))
        for request in life
    ]
    alone = [size for (size,) in (s for s in sizes if len(s) == 1)]
    assert alone
    halves = {pair[0] for pair in sizes if len(pair) == 2}
    assert halves == {common}
    assert max(alone) <= common


def test_a_crowd_seats_its_people() -> None:
    people: Crowd = crowd((persona("a"), 2), (persona("b"), 1))
    assert [(user.seat, user.people) for user in people.users()] == [(0, 3), (1, 3), (2, 3)]
