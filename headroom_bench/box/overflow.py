"""What a server does with a prompt that is longer than its context."""

from __future__ import annotations

from headroom_bench.box.design import BoxDesign
from headroom_bench.box.events import BoxRequest
from headroom_bench.segments import Segment, total_tokens


def too_long(design: BoxDesign, prompt_tokens: int, max_tokens: int) -> bool:
    """Whether the prompt leaves no room for a token of answer, or for all of it where it counts."""
    wanted = max(1, max_tokens) if design.counts_answer else 1
    return prompt_tokens + wanted > design.ctx


def cut_to_fit(request: BoxRequest, ctx: int) -> tuple[Segment, ...]:
    """The prompt as Ollama cuts it: the oldest messages dropped until it fits, system messages and
    the last message always kept (ollama server/prompt.go, `chatPrompt`). What is still too long
    loses its start, down to about half the window and 2 tokens (ollama's runner).
    """
    messages = _messages(request.segments)
    last = len(messages) - 1
    dropped = 0
    while True:
        kept = [
            segment
            for index, message in enumerate(messages)
            if index >= dropped or index == last or message[0].role == "system"
            for segment in message
        ]
        if total_tokens(kept) < ctx or dropped >= last:
            break
        dropped += 1
    if total_tokens(kept) < ctx:
        return tuple(kept)
    return _tail(kept, min(ctx // 2 + 2, ctx - 1))


def _messages(segments: tuple[Segment, ...]) -> list[list[Segment]]:
    """Neighbours with one role are one message; a tool's result comes as a user's."""
    messages: list[list[Segment]] = []
    previous = ""
    for segment in segments:
        role = "user" if segment.role == "tool" else segment.role
        if role == previous:
            messages[-1].append(segment)
        else:
            messages.append([segment])
        previous = role
    return messages


def _tail(segments: list[Segment], tokens: int) -> tuple[Segment, ...]:
    """The last `tokens` tokens. A text without its start is another text."""
    kept: list[Segment] = []
    left = tokens
    for segment in reversed(segments):
        if segment.tokens > left:
            if left:
                name = f"{segment.content_id}/last{left}"
                kept.append(Segment(segment.name, segment.role, segment.kind, name, left))
            break
        kept.append(segment)
        left -= segment.tokens
    return tuple(reversed(kept))
