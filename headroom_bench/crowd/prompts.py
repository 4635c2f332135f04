"""Segments as chat messages, and what a prompt shares with those before it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headroom_bench.crowd.world import Request
from headroom_bench.segments import Segment, total_tokens


@dataclass(frozen=True, slots=True)
class TemplateTokens:
    """Tokens that a chat template adds around the texts of messages."""

    system: int = 0
    """Around the system message at the start."""
    lone_turn: int = 0
    """Around a first message with no system message before it."""
    turn: int = 0
    """For every other turn: around what the user says, and to open the answer."""
    known: bool = False
    """False: nobody has told yet; to be learnt from what the server counts."""


def to_messages(
    segments: Sequence[Segment], text_of: Callable[[Segment], str]
) -> list[dict[str, str]]:
    """Chat messages: neighbours with the same role become one message.

    A tool's result goes out as a user message: the script decides the rounds, and a `tool` message
    needs a call that the model may not have made.
    """
    messages: list[dict[str, str]] = []
    for segment in segments:
        role = sent_role(segment)
        text = text_of(segment)
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += f" {text}"
        else:
            messages.append({"role": role, "content": text})
    return messages


def sent_role(segment: Segment) -> str:
    return "user" if segment.role == "tool" else segment.role


def as_sent(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments in the roles that a server sees."""
    for segment in segments:
        if segment.role == "tool":
            return tuple([replace(segment, role=sent_role(segment)) for segment in segments])
    return segments


def is_own(segment: Segment, request: Request) -> bool:
    """Whether the text belongs to this conversation alone; else others may send it too."""
    return segment.content_id.startswith(f"{request.conversation_id}/")


def answered_segments(request: Request) -> int:
    """How many leading segments are history: all up to the last answer in the conversation."""
    segments = request.segments
    for place in range(len(segments), 0, -1):
        last = segments[place - 1]
        if last.role == "assistant" and is_own(last, request):
            return place
    return 0


class SharedTexts:
    """Which texts that conversations share have been sent in this run."""

    def __init__(self) -> None:
        self._sent: set[str] = set()

    def reusable_tokens(self, request: Request, sized: tuple[Segment, ...]) -> int:
        """Tokens of the `reusable` segments; `sized` are all of them, as long as they are sent."""
        return total_tokens(sized[: self.reusable(request)])

    def reusable(self, request: Request) -> int:
        """How many segments at the prompt's start were sent before: the conversation's own history,
        or shared texts that anybody sent. A cache can hold these, and the template's. Marks what
        is new as sent."""
        history = answered_segments(request)
        leading = history
        if history == 0:
            for segment in request.segments:
                if is_own(segment, request) or segment.content_id not in self._sent:
                    break
                leading += 1
        new = request.segments[history:]  # earlier ones were marked when they were new
        self._sent.update([s.content_id for s in new if not is_own(s, request)])
        return leading
