"""Models that think before they answer: whom, how long, and what a run leaves room for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from record_makers import record
from run_tools import headroom

from headroom_bench.catalog import find_model
from headroom_bench.crowd.crowd import Crowd, Group, plain_crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import Persona, load_persona, probe_persona
from headroom_bench.experiments.thinking import (
    cut_in_thought,
    reasons,
    thinking_tokens,
    with_thinking,
    with_thinking_of,
)
from headroom_bench.records import RequestRecord
from headroom_bench.shipped import shipped_dir

SHIPPED = shipped_dir("personas")


def alone(persona: Persona) -> Crowd:
    return Crowd(persona.name, 1, (Group(persona, 1),))


def test_models_think_as_long_as_was_measured() -> None:
    oss = find_model("gpt-oss-120b")
    assert thinking_tokens(oss, "trivial").typical == pytest.approx(46)
    assert thinking_tokens(oss, "knowledge").typical == pytest.approx(53)
    assert thinking_tokens(oss, "logic").draw(0.9) == pytest.approx(1567)
    assert thinking_tokens(find_model("QwQ 32B"), "knowledge").typical > 200, "as others do"


def test_who_thinks() -> None:
    assert reasons(find_model("gpt-oss-120b"))
    assert not reasons(find_model("Qwen3 8B"))
    assert reasons(find_model("Qwen3 8B"), optional=True)
    assert not reasons(find_model("Llama 3.1 8B"), optional=True)


@pytest.mark.parametrize("tokens", [7, 1, 0])
def test_a_persona_that_says_how_long_it_is_thought_for_keeps_that(
    tokens: int, tmp_path: Path
) -> None:
    """Nothing said and nothing thought are different answers."""
    file = tmp_path / "mine.toml"
    file.write_text(f"reasoning = {tokens}\n" + (SHIPPED / "voice-question.toml").read_text())
    oss = find_model("gpt-oss-120b")
    own, open_ = load_persona(str(file)), load_persona("voice-question")
    assert with_thinking(alone(own), oss).groups[0].persona.thought == Distribution.fixed(tokens)
    assert open_.reasoning is None
    assert with_thinking(alone(open_), oss).groups[0].persona.thought.typical > 10


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b"),
        ("/models/gpt-oss-120b-UD-Q4_K_XL-00001-of-00003.gguf", "gpt-oss-120b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("Llama-3.1-8B-Instruct-Q4_K_M.gguf", None),
        ("nobody-knows-it", None),
        (None, None),
    ],
)
def test_a_server_tells_only_a_name(name: str | None, model: str | None) -> None:
    crowd = alone(load_persona("chat-reader"))
    known = crowd if model is None else with_thinking(crowd, find_model(model))
    assert with_thinking_of(crowd, name) == known
    assert (known != crowd) == (model is not None)


def test_answers_cut_in_thought_are_told_of() -> None:
    def thought(visible: int, finish: str) -> RequestRecord:
        return record(reasoning_tokens=20, visible_tokens=visible, finish_reason=finish)

    assert cut_in_thought([thought(5, "length"), thought(0, "stop"), record()]) == []
    (told,) = cut_in_thought([thought(0, "length"), thought(5, "length"), record()])
    assert told.startswith("1 of 2 answers")


@contextmanager
def thinker(folder: Path) -> Iterator[str]:
    """The URL of a mock whose model thinks 40 tokens before each answer."""
    command = [
        sys.executable, "-m", "mock_server", "--port", "0", "--hardware", "dgx-spark",
        "--model", "gpt-oss-20b", "--quant", "MXFP4", "--reasoning", "40", "--slots", "8",
    ]  # fmt: skip
    log = folder / "mock.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            told = next((line for line in server.stdout if "http://" in line), None)
            assert told is not None, log.read_text()
            yield told.split()[-1]
        finally:
            server.terminate()


BRIEF = """
name = "brief"
output = {fixed = 6}
think_s = {fixed = 0.1}
[[segments]]
name = "ask"
each = "turn"
tokens = {fixed = 60}
[device]
shows_reasoning = false
[target]
metric = "ttfv"
limit_s = 30
"""


@pytest.mark.parametrize("reasoning", [None, 10])
def test_a_run_leaves_room_for_thought(reasoning: int | None, tmp_path: Path) -> None:
    """6 tokens would be cut in the middle of 40 of thought. A persona's own word counts more."""
    own = "" if reasoning is None else f"reasoning = {{fixed = {reasoning}}}\n"
    path = tmp_path / "brief.toml"
    path.write_text(own + BRIEF)
    with thinker(tmp_path) as url:
        words = ("run", url, "--persona", f"{path}:2", "--requests", "8", "--json")
        ran = headroom(*words, out=tmp_path / "out")
    assert ran.code == 0, ran.err
    rows, warnings = ran.rows("requests.jsonl"), json.loads(ran.out)["warnings"]
    cut = [told for told in warnings if "cut before its thought" in told]
    if reasoning is None:
        assert min(row["asked_tokens"] for row in rows) > 6
        assert len({row["asked_tokens"] for row in rows}) > 1, "as long as was drawn for each"
        assert any(row["visible_tokens"] for row in rows)
    else:
        assert {row["asked_tokens"] for row in rows} == {16}
        assert cut
        assert not any(row["visible_tokens"] for row in rows)


@pytest.mark.parametrize("optional", [False, True])
def test_the_plain_crowd_is_answered_as_long_as_was_asked_for(optional: bool) -> None:
    plain = plain_crowd(probe_persona(100, 20, 0.0), 2, 1)
    assert with_thinking(plain, find_model("gpt-oss-120b"), optional) == plain
    assert with_thinking_of(plain, "gpt-oss-20b-MXFP4.gguf", optional) == plain
