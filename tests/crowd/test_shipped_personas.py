"""Every shipped persona and crowd loads, is commented and sourced, and lives in a simulation."""

from __future__ import annotations

import functools
import re
import statistics
from collections import Counter

import pytest
from crowd_people import CROWDS, PERSONAS
from rich.console import Console

from headroom_bench.catalog import find_network
from headroom_bench.catalog.listing import one_entry
from headroom_bench.crowd.conversation import Conversation
from headroom_bench.crowd.crowd import Crowd, User, crowd_of, load_crowd
from headroom_bench.crowd.persona import load_persona
from headroom_bench.crowd.world import Answer
from headroom_bench.experiments.prediction import predict_crowd
from headroom_bench.records import RequestRecord
from headroom_bench.report.catalog_page import print_entry
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.shipped import shipped_dir
from headroom_bench.simulate.world import Naming

NAMED = {
    "chat-reader", "office-chat", "ide-coder", "coding-agent", "ops-agent", "voice-command",
    "voice-question", "eink-reader", "translator", "rag-worker", "summariser", "openwebui-family",
    "batch-worker", "automation-event", "lora-messenger",
}  # fmt: skip


def roomy_box(ctx: int = 400_000) -> Deployment:
    """A box on which nothing is refused."""
    return Deployment.named(
        model="Llama 3.1 8B", hardware="b200", quant="Q4_K_M", slots=32, ctx=ctx
    )


def lived(crowd: Crowd, duration_s: float) -> list[RequestRecord]:
    outcome, _ = predict_crowd(crowd, roomy_box(), Naming("r", "t"), duration_s=duration_s)
    return list(outcome.records)


def test_all_are_there() -> None:
    assert set(PERSONAS) >= NAMED
    assert set(CROWDS) >= {"demo", "household", "office", "classroom", "agents", "offgrid"}


@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_says_what_it_is_and_where_its_figures_come_from(name: str) -> None:
    text = (shipped_dir("personas") / f"{name}.toml").read_text("utf-8")
    comments = re.findall(r"^# .+", text, re.MULTILINE)
    assert len(comments) >= 3, "a file to copy explains itself"
    sources = one_entry("personas", name)["sources"]
    assert sources
    assert all(isinstance(source, str) and len(source) > 15 for source in sources)
    assert "estimated" in " ".join(sources), "what was not read anywhere is marked"


@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_is_explained_in_sentences(name: str) -> None:
    console = Console(width=200)
    with console.capture() as page:
        print_entry("personas", one_entry("personas", name), console)
    told = page.get()
    persona = load_persona(name)
    assert persona.target is not None
    assert f"within {persona.target.limit_s:g} s" in told
    assert all(plan.name in told for plan in persona.segments)
    assert "{" not in told
    assert "source: " in told


@pytest.mark.parametrize("name", PERSONAS)
def test_a_persona_lives(name: str) -> None:
    persona = load_persona(name)
    records = lived(crowd_of([f"{name}:3"], 1), 2 * 3600)
    assert records
    assert all(record.ok for record in records)
    assert {record.user for record in records} == {0, 1, 2}
    riders = {record.request_id.rsplit(".", 1)[1] for record in records if "." in record.request_id}
    assert riders == {extra.name for extra in persona.extras}


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_lives(name: str) -> None:
    crowd = load_crowd(name)
    records = lived(crowd, 3600)
    assert Counter(crowd.counts()).keys() == {record.persona for record in records}


@pytest.mark.parametrize("name", CROWDS)
def test_a_crowd_is_commented_and_its_links_exist(name: str) -> None:
    text = (shipped_dir("personas") / "crowds" / f"{name}.toml").read_text("utf-8")
    assert text.startswith("# ")
    for group in load_crowd(name).groups:
        if group.persona.link is not None:
            find_network(group.persona.link)


@functools.cache
def conversations(name: str) -> list[Conversation]:
    """Forty conversations of a persona with every answer as long as was asked for."""
    return [talked(load_persona(name).name, index) for index in range(40)]


def talked(name: str, index: int) -> Conversation:
    talk = Conversation(User(load_persona(name), index, 1), 0)
    talk.open()
    for turn in range(talk.script.turns):
        talk.say(turn)
        rounds = talk.script.rounds(turn)
        for step in range(rounds):
            request = talk.request(turn, step, rounds)
            visible = request.max_tokens - request.reasoning_tokens
            talk.heard(request, Answer(True, 0.0, visible_tokens=visible))
            if step < rounds - 1:
                talk.add_tool_results(turn, step)
    return talk


@pytest.mark.parametrize("name", ["coding-agent", "ops-agent"])
def test_agents_append_9_to_17_prompt_tokens_for_a_generated_one(name: str) -> None:
    appended = generated = 0
    for talk in conversations(name):
        for segment in talk.segments:
            generated += segment.tokens if segment.role == "assistant" else 0
            appended += segment.tokens if segment.role in ("user", "tool") else 0
    assert 9 <= appended / generated <= 17


def test_a_coding_agents_prompts_are_nearly_all_cached() -> None:
    records = lived(crowd_of(["coding-agent:3"], 1), 2 * 3600)
    read = sum(record.prompt_tokens or 0 for record in records)
    cached = sum(record.cached_tokens or 0 for record in records)
    assert cached / read > 0.9, "TraceLab: 96 %"
    steps = [record.turn_rounds or 0 for record in records if record.round == 0]
    assert 6 <= statistics.fmean(steps) <= 11, "TraceLab: 8.7 a request"


def test_an_ops_agent_fails_in_a_small_slot() -> None:
    box = Deployment.named(
        model="Llama 3.1 8B", hardware="b200", quant="Q4_K_M", slots=4, ctx=32_768
    )
    crowd = crowd_of(["ops-agent:2"], 1)
    outcome, _ = predict_crowd(crowd, box, Naming("r", "t"), duration_s=3600)
    assert outcome.records
    assert {record.error_kind for record in outcome.records} == {"context_exceeded"}


def test_six_languages_are_six_prompts() -> None:
    people = [u for u in load_crowd("classroom").users() if u.persona.name.startswith("translator")]
    prompts = set()
    for person in people:
        talk = Conversation(person, 0)
        talk.open()
        prompts.add(talk.segments[0].content_id)
    assert len(prompts) == 6


def test_speakers_of_a_household_share_one_prompt() -> None:
    opened = []
    for name in ("voice-command", "voice-question"):
        talk = Conversation(User(load_persona(name), 0, 1), 0)
        talk.open()
        opened.append(talk.segments[0])
    assert opened[0] == opened[1]


def test_an_event_sends_nothing_twice() -> None:
    seen: set[str] = set()
    for talk in conversations("automation-event"):
        ids = {segment.content_id for segment in talk.segments}
        assert ids
        assert not ids & seen
        seen |= ids
    assert seen
