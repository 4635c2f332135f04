"""Prompts that the server counts as long as was asked, whatever its tokenizer and template."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from crowd_people import TrivialWorld, crowd, fixed, persona, plan
from record_makers import record

from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.script import PromptKind, Prompts
from headroom_bench.crowd.texts import Vocabulary, common_words, guessed_vocabulary
from headroom_bench.crowd.world import Answer, Request
from headroom_bench.live.renderer import Prompt, Renderer
from headroom_bench.records import RequestRecord
from headroom_bench.segments import total_tokens

Counting = Callable[[str], int]
EXACT = Vocabulary(common_words(), sizes="exact")


def bare(text: str) -> int:
    return len(text.replace(".", " . ").split())


@dataclass
class Server:
    """Counts prompts with a tokenizer and a template, answers in words of its own."""

    renderer: Renderer
    count: Counting = bare
    per_message: int = 5
    opening: int = 3
    keeps: int | None = None
    """Longest prompt that it reads; None: any."""
    asked: list[tuple[Request, Prompt, int]] = field(default_factory=list)
    told: dict[str, RequestRecord] = field(default_factory=dict)

    def answer(self, request: Request, sent_s: float) -> Answer:
        prompt = self.renderer.prompt(request)
        counted = self.opening + sum(
            self.per_message + self.count(message["content"]) for message in prompt.messages
        )
        if self.keeps is not None:
            counted = min(counted, self.keeps)
        self.asked.append((request, prompt, counted))
        said = " ".join(["fine"] * request.max_tokens)
        visible = self.count(said)
        told = record(prompt_tokens=counted, visible_tokens=visible,
                      finish_reason="length", prompt_cut=counted < prompt.least_tokens)  # fmt: skip
        told.reusable_tokens = prompt.reusable_tokens
        self.renderer.learn(request, told, said)
        self.told[request.request_id] = told
        return Answer(True, sent_s + 1, sent_s + 0.5,
                      None if told.prompt_cut else counted, visible)  # fmt: skip


SYSTEM = plan("system", "conversation", fixed(200), "group")
ASK = plan("ask", "turn", Distribution("uniform", 60, 300, 300))
RESULT = plan("result", "round", Distribution("uniform", 40, 90, 90))
ONE = persona(segments=(SYSTEM, ASK, RESULT), rounds=fixed(2), turns=fixed(4))


def lived(
    server: Server, one: Any = ONE, requests: int = 40, kind: PromptKind = "distinct"
) -> None:
    for person in crowd((one, 2)).with_prompts(Prompts(kind)).users():
        world = TrivialWorld(requests, server.answer)
        world.live(live_as(world, person))
    assert len(server.asked) >= 2 * requests


def test_exact_from_the_first_request_where_the_template_is_known() -> None:
    server = Server(Renderer(EXACT, TemplateTokens(3, 8, 10, known=True), "s"))
    lived(server)
    for request, prompt, counted in server.asked:
        assert counted == prompt.tokens
        if request.turn == request.round == 0:
            assert counted == total_tokens(request.segments)


def test_exact_from_the_second_of_a_shape_where_it_is_not() -> None:
    server = Server(Renderer(EXACT, TemplateTokens(), "s"))
    lived(server)
    shapes: set[object] = set()
    late = 0
    for request, prompt, counted in server.asked:
        shape = (request.turn > 0, request.round > 0)
        if shape in shapes:
            assert counted == prompt.tokens
            late += 1
        shapes.add(shape)
    assert late > 60


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.4])
def test_estimates_come_near_after_one_answer_of_a_shape(ratio: float) -> None:
    """Each word costs `ratio` tokens, which nobody told."""

    def words(text: str) -> int:
        return round(ratio * bare(text))

    rough = Vocabulary(common_words())
    server = Server(Renderer(rough, TemplateTokens(), "s"), words)
    lived(server, requests=30)
    off = [abs(prompt.tokens - counted) for _, prompt, counted in server.asked]
    new = 180.0
    assert max(off[8:]) <= 0.05 * new + 2, off
    assert sum(off[20:]) / len(off[20:]) <= 2


def test_one_length_again_and_again_is_exact_after_the_first() -> None:
    """The plain crowd: ratio and template cannot be told apart, and need not be."""

    def words(text: str) -> int:
        return round(1.3 * bare(text))

    one = persona(segments=(plan("ask", "turn", fixed(500)),), turns=fixed(1))
    server = Server(Renderer(Vocabulary(common_words()), TemplateTokens(), "s"), words)
    lived(server, one, 12)
    assert abs(server.asked[0][2] - 500) > 100
    assert all(abs(counted - 500) <= 4 for _, _, counted in server.asked[3:])


@pytest.mark.parametrize("vocabulary", [EXACT, guessed_vocabulary()])
def test_a_cut_prompt_is_below_what_it_can_be(vocabulary: Vocabulary) -> None:
    """A window of 1,000 tokens, of which half is left when one message is too long."""
    one = persona(segments=(plan("ask", "turn", fixed(1400)),), turns=fixed(1))
    renderer = Renderer(vocabulary, TemplateTokens(), "s")
    server = Server(renderer, keeps=502)
    lived(server, one, 5)
    assert all(counted < prompt.least_tokens for _, prompt, counted in server.asked)
    assert {prompt.tokens for _, prompt, _ in server.asked} <= set(range(1380, 1420)), (
        "what a cut prompt says of lengths is not believed"
    )


@pytest.mark.parametrize("ratio", [0.75, 1.0, 1.6, 4.0])
def test_no_whole_prompt_is_called_cut(ratio: float) -> None:
    """Some texts cost more than others, by chance."""

    def words(text: str) -> int:
        return round(random.Random(text).uniform(0.97, 1.03) * ratio * bare(text))

    server = Server(Renderer(guessed_vocabulary(), TemplateTokens(), "s"), words)
    lived(server)
    assert all(counted >= prompt.least_tokens for _, prompt, counted in server.asked)


@pytest.mark.parametrize("kind", ["distinct", "identical", "shared-prefix"])
def test_texts_are_equal_where_ids_are(kind: PromptKind) -> None:
    server = Server(Renderer(EXACT, TemplateTokens(3, 8, 10, known=True), "s"))
    lived(server, kind=kind)
    said: dict[tuple[object, ...], set[str]] = {}
    for request, prompt, _ in server.asked:
        if request.turn == request.round == 0:
            ids = tuple(segment.content_id for segment in request.segments)
            said.setdefault(ids, set()).add(str(prompt.messages))
    assert all(len(texts) == 1 for texts in said.values())
    texts = {text for texts in said.values() for text in texts}
    assert len(texts) == len(said), "and different where ids differ"
    assert (len(texts) == 1) == (kind == "identical")


def test_history_is_sent_word_for_word() -> None:
    server = Server(Renderer(EXACT, TemplateTokens(), "s"))
    lived(server, requests=8)
    first = [entry for entry in server.asked if entry[0].user == 0]
    grown = 0
    for (_, earlier, _), (_, later, _) in pairwise(first):
        if len(later.messages) > len(earlier.messages):
            assert later.messages[: len(earlier.messages)] == earlier.messages
            assert set(later.messages[len(earlier.messages)]["content"].split()) == {"fine"}
            grown += 1
    assert grown == len(first) - 1, "of one conversation"


def test_what_a_cache_may_hold_is_said() -> None:
    server = Server(Renderer(EXACT, TemplateTokens(3, 8, 10, known=True), "s"))
    lived(server, requests=3)
    by_id = {request.request_id: prompt for request, prompt, _ in server.asked}
    assert by_id["chat-0/c0/t0/r0"].reusable_tokens == 13, "the template"
    assert by_id["chat-1/c0/t0/r0"].reusable_tokens == 210, (
        "the group's system prompt too, 200 tokens long with the template's 3 in it"
    )
    assert by_id["chat-1/c0/t0/r1"].reusable_tokens > by_id["chat-1/c0/t0/r0"].tokens


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("kind", ["distinct", "identical", "shared-prefix"])
def test_no_more_of_a_prompt_can_be_held_than_there_is_of_it(kind: PromptKind, known: bool) -> None:
    """Of a prompt that somebody sent before all of it, its template's tokens once."""
    template = TemplateTokens(3, 8, 10, known=True) if known else TemplateTokens()
    server = Server(Renderer(EXACT, template, "s"))
    lived(server, kind=kind)
    for request, prompt, counted in server.asked[1:]:
        assert prompt.reusable_tokens <= prompt.tokens
        if kind == "identical" and known and request.turn == request.round == 0:
            assert prompt.reusable_tokens == counted


@pytest.mark.parametrize("ratio", [0.75, 1.36])
def test_a_shared_text_is_as_long_as_the_server_counts_it(ratio: float) -> None:
    """It was written before anybody knew what a word costs. What is new is not written shorter or
    longer for that, and the record tells the shared text's real size."""

    def words(text: str) -> int:
        return round(ratio * bare(text))

    system, ask = (
        plan("system", "conversation", fixed(1000), "group"),
        plan("ask", "turn", fixed(60)),
    )
    one = persona(segments=(system, ask), turns=fixed(1))
    server = Server(Renderer(Vocabulary(common_words()), TemplateTokens(), "s"), words)
    lived(server, one, 12)
    shared = words(server.asked[0][1].messages[0]["content"])
    assert abs(shared - 1000) > 100
    for request, prompt, counted in server.asked[2:]:
        own = words(prompt.messages[1]["content"])
        assert 40 <= own <= 65, "60 with what the template adds"
        assert abs(prompt.tokens - counted) <= 0.02 * counted
        told = server.told[request.request_id].reusable_tokens
        assert told is not None
        assert told <= counted
        assert abs(told - (shared + server.opening + server.per_message)) <= 30
    first = server.told[server.asked[0][0].request_id]
    assert first.reusable_tokens is not None
    assert first.reusable_tokens < 48, "nobody had sent anything but the template"
