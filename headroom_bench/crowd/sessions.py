"""Recorded sessions to replay: JSON lines, one session each.

Two forms are read: `{"messages": [{"role": …, "content": …}, …]}` as the OpenAI routes take them,
and `{"conversations": [{"from": "human" | "gpt" | …, "value": …}, …]}` as ShareGPT has them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from headroom_bench.crowd.texts import estimate_tokens
from headroom_bench.errors import UserError
from headroom_bench.segments import Segment

RECORDED = "recorded"
"""`Segment.kind` of a text that was not made up."""

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "tool": "tool", "function": "tool",
    "observation": "tool",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Said:
    """One recorded message."""

    role: str
    text: str
    tokens: int
    """Estimated."""
    reasoning_tokens: int = 0

    @property
    def content_id(self) -> str:
        """Equal for equal texts, in whichever session."""
        told = f"{self.role}\x1f{self.text}".encode("utf-8", "surrogatepass")
        return f"{RECORDED}/{blake2b(told, digest_size=12).hexdigest()}"

    def segment(self) -> Segment:
        name = {"tool": "tool_result", "user": "ask"}.get(self.role, self.role)
        return Segment(name, self.role, RECORDED, self.content_id, self.tokens)


@dataclass(frozen=True, slots=True)
class Round:
    """One request of a session: what is new in it, and the recorded answer."""

    new: tuple[Said, ...]
    answer: Said | None
    """None where the recording ends with the question."""

    @property
    def tokens(self) -> int:
        return sum(said.tokens for said in self.new) + (self.answer.tokens if self.answer else 0)


@dataclass(frozen=True, slots=True)
class Session:
    opening: tuple[Said, ...]
    """What stands before the first question: the system prompt, mostly."""
    turns: tuple[tuple[Round, ...], ...]
    """A turn begins with what the user says; further rounds begin with a tool's result."""

    @property
    def first_tokens(self) -> int:
        """Of its first request and the answer, estimated."""
        first = self.turns[0][0]
        return sum(said.tokens for said in self.opening) + first.tokens

    @property
    def tokens(self) -> int:
        """Of the whole session, estimated."""
        steps = (step for turn in self.turns for step in turn)
        return sum(said.tokens for said in self.opening) + sum(step.tokens for step in steps)


def read_sessions(path: Path) -> tuple[Session, ...]:
    """The sessions of a file, in order. Empty lines are passed over.

    Raises:
        UserError: no such file, no session in it, or a line that is none (file and line are named).
    """
    try:
        text = path.read_text("utf-8-sig")
    except OSError as why:
        raise UserError(f"cannot read sessions from {path}: {why.strerror or why}") from None
    except UnicodeDecodeError as why:
        raise UserError(f"{path}: not UTF-8 at byte {why.start}; sessions are JSON lines") from None
    sessions = tuple(
        _session(line, f"{path}:{number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip()
    )
    if not sessions:
        raise UserError(f'{path} holds no session; a line is {{"messages": [{{"role": …}}, …]}}')
    return sessions


def recorded_texts(sessions: Sequence[Session]) -> dict[str, str]:
    """Text by content id, of all that is sent."""
    return {said.content_id: said.text for session in sessions for said in _sent(session)}


def _sent(session: Session) -> Iterator[Said]:
    yield from session.opening
    for turn in session.turns:
        for step in turn:
            yield from step.new


def _session(line: str, where: str) -> Session:
    try:
        parsed = json.loads(line)
    except (ValueError, RecursionError) as why:
        told = getattr(why, "msg", "too deep, or a number of too many digits")
        raise UserError(f"{where}: not JSON ({told}); one session a line") from None
    messages = _listed(parsed, where)
    said = [_said(message, f"{where}: message {n}") for n, message in enumerate(messages, 1)]
    return _in_turns([one for one in said if one.text or one.role == "assistant"], where)


def _listed(parsed: Any, where: str) -> list[Any]:
    for key in ("messages", "conversations"):
        listed = parsed.get(key) if isinstance(parsed, dict) else None
        if isinstance(listed, list):
            return listed
    raise UserError(f'{where}: no list "messages" (or "conversations") in it')


def _said(message: Any, where: str) -> Said:
    if not isinstance(message, dict):
        raise UserError(f"{where} is not an object with role and content")
    role = _ROLES.get(str(message.get("role", message.get("from"))))
    if role is None:
        raise UserError(f'{where}: "role" must be system, user, assistant or tool')
    text = _text(message.get("content", message.get("value")))
    if text is None:
        raise UserError(f'{where}: "content" must be a text, or a list of text parts')
    if message.get("tool_calls"):
        text += json.dumps(message["tool_calls"])
    thought = message.get("reasoning_content") or message.get("reasoning")
    reasoning = estimate_tokens(thought) if isinstance(thought, str) else 0
    return Said(role, text, max(1, estimate_tokens(text)), reasoning)


def _text(content: Any) -> str | None:
    """None for what is no text: pictures and sound cannot be replayed."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if len(known) == len(texts) else None


def _in_turns(said: Sequence[Said], where: str) -> Session:
    first = next((place for place, one in enumerate(said) if one.role == "user"), None)
    if first is None:
        raise UserError(f"{where}: nobody asks anything; a session needs a message of the user")
    turns: list[list[Round]] = []
    new: list[Said] = []
    for one in said[first:]:
        if one.role != "assistant":
            new.append(one)
        elif new:
            _add_round(turns, Round(tuple(new), one))
            new = []
    if new:
        _add_round(turns, Round(tuple(new), None))
    return Session(tuple(said[:first]), tuple(tuple(turn) for turn in turns))


def _add_round(turns: list[list[Round]], step: Round) -> None:
    only_tools = all(one.role == "tool" for one in step.new)
    if only_tools and turns:
        turns[-1].append(step)
    else:
        turns.append([step])
