"""Recorded sessions: read, named where they are wrong, and replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from crowd_people import TrivialWorld, crowd, fixed, persona

from headroom_bench.crowd.loop import live_as
from headroom_bench.crowd.script import Prompts
from headroom_bench.crowd.sessions import RECORDED, read_sessions, recorded_texts
from headroom_bench.crowd.world import Request
from headroom_bench.errors import UserError


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


AGENT = {"messages": [
    said("system", "You fix bugs."),
    said("user", "Why does it fail?"),
    said("assistant", None, tool_calls=[{"function": {"name": "ls", "arguments": "{}"}}]),
    said("tool", "a.py b.py"),
    said("assistant", "Because a.py is empty.", reasoning_content="Let me look at the files."),
    said("user", [{"type": "text", "text": "Then"}, {"type": "text", "text": "fill it."}]),
]}  # fmt: skip
SHARED_GPT = {"conversations": [
    {"from": "human", "value": "Hello there"},
    {"from": "gpt", "value": "Hello, what can I do for you today?"},
    {"from": "human", "value": "Nothing"},
    {"from": "gpt", "value": "Good."},
]}  # fmt: skip


def written(folder: Path, *lines: Any) -> Path:
    path = folder / "sessions.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_both_forms_are_read(tmp_path: Path) -> None:
    agent, chat = read_sessions(written(tmp_path, AGENT, "", SHARED_GPT))
    assert [one.text for one in agent.opening] == ["You fix bugs."]
    assert [len(turn) for turn in agent.turns] == [2, 1]
    assert agent.turns[0][1].new[0].role == "tool"
    assert agent.turns[0][1].answer is not None
    assert agent.turns[0][1].answer.reasoning_tokens > 0
    assert agent.turns[1][0].new[0].text == "Then\nfill it."
    assert agent.turns[1][0].answer is None
    assert [len(turn) for turn in chat.turns] == [1, 1]
    first = agent.turns[0][0]
    assert agent.first_tokens == agent.opening[0].tokens + first.tokens
    assert agent.tokens > agent.first_tokens + agent.turns[1][0].tokens
    assert chat.tokens == sum(one.tokens for turn in chat.turns for one in turn)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "not JSON"),
        ("[]", 'no list "messages"'),
        ({"messages": "hello"}, 'no list "messages"'),
        ({"messages": ["hello"]}, "message 1 is not an object"),
        ({"messages": [said("user", "a"), said("wizard", "b")]}, 'message 2: "role"'),
        ({"messages": [said("user", 3)]}, 'message 1: "content"'),
        ({"messages": [said("user", [{"type": "image_url"}])]}, 'message 1: "content"'),
        ({"messages": []}, "nobody asks"),
        ({"messages": [said("assistant", "a")]}, "nobody asks"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, told: str) -> None:
    path = written(tmp_path, SHARED_GPT, "", line)
    with pytest.raises(UserError) as caught:
        read_sessions(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_hold_nothing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read sessions from .*: No such file"):
        read_sessions(tmp_path / "none.jsonl")
    with pytest.raises(UserError, match="holds no session"):
        read_sessions(written(tmp_path, "", ""))
    (tmp_path / "b.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="not UTF-8 at byte 0"):
        read_sessions(tmp_path / "b.jsonl")


def lives(path: Path, people: int, limit: int) -> list[list[Request]]:
    one = persona(turns=fixed(9), output=fixed(33))
    sessions = read_sessions(path)
    found = []
    for person in crowd((one, people)).with_prompts(Prompts("file", sessions)).users():
        world = TrivialWorld(limit)
        world.live(live_as(world, person))
        found.append(world.diary.asked)
    return found


def test_sessions_are_replayed_with_the_real_answers(tmp_path: Path) -> None:
    path = written(tmp_path, AGENT)
    (life,) = lives(path, 1, 3)
    texts = recorded_texts(read_sessions(path))
    first, second, third = life
    assert [texts[s.content_id] for s in first.segments] == ["You fix bugs.", "Why does it fail?"]
    assert [s.role for s in third.segments] == [
        "system", "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert third.segments[2].content_id == f"{first.request_id}/answer"
    assert [(r.turn, r.round) for r in life] == [(0, 0), (0, 1), (1, 0)]
    assert third.max_tokens == 33, "the persona's, where the recording has no answer"
    assert second.reasoning_tokens > 0
    assert all(s.kind == RECORDED for r in life for s in r.segments if s.role != "assistant")


def test_people_take_the_sessions_in_order_and_then_again(tmp_path: Path) -> None:
    path = written(tmp_path, *({"messages": [said("user", f"question {n}")]} for n in range(5)))
    texts = recorded_texts(read_sessions(path))
    taken = [[texts[r.segments[0].content_id][-1] for r in life] for life in lives(path, 2, 4)]
    assert taken == [["0", "2", "4", "1"], ["1", "3", "0", "2"]]
