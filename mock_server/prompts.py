"""Received prompts as segments: one a message, hashed in 16-token blocks.

The template is ChatML. What it adds is put where it arises in time: a message holds its header and
end mark, and the header of the answer that follows it; an answer's own end mark comes with what is
said next. So an answer that is sent back has exactly the tokens that it was generated with, and a
whole prompt as many as the rendered template.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment
from mock_server.tokens import split

HEADER_TOKENS = 3
"""Start mark, role, line end."""
END_TOKENS = 2
"""End mark, line end."""
PROMPT_ROLE = "prompt"
"""Role of a raw prompt, which no template touches."""
_KEPT_SEGMENTS = 4096


def render(messages: Sequence[tuple[str, str]]) -> str:
    """The chat as the model gets it, the header of its answer at the end."""
    said = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)
    return f"{said}<|im_start|>assistant\n"


def template_tokens(before: str | None, role: str, after: str | None) -> int:
    """What the template adds to a message, by the roles of its neighbours (None: no more)."""
    if role == "assistant":
        return 0
    own = HEADER_TOKENS + END_TOKENS
    answered = HEADER_TOKENS if after in (None, "assistant") else 0
    return own + answered + (END_TOKENS if before == "assistant" else 0)


def content_id(role: str, text: str) -> str:
    """Equal for equal role and text."""
    return blake2b(f"{role}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class Segmenter:
    """Turns messages into segments. History comes again with every turn, so it is remembered."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Segment] = OrderedDict()

    def chat(self, messages: Sequence[tuple[str, str]]) -> list[Segment]:
        """The segments of a chat of (role, text) messages."""
        roles = [None, *(role for role, _ in messages), None]
        return [
            self._segment(role, text, template_tokens(roles[at], role, roles[at + 2]))
            for at, (role, text) in enumerate(messages)
        ]

    def raw(self, text: str) -> list[Segment]:
        """The segment of a prompt that no template touches."""
        return [self._segment(PROMPT_ROLE, text, 0)]

    def _segment(self, role: str, text: str, added: int) -> Segment:
        name = content_id(role, text)
        key = f"{name}/{added}"
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        pieces = split(text)
        made = Segment(role, role, "prose", name, len(pieces) + added, _blocks(role, pieces))
        self._kept[key] = made
        if len(self._kept) > _KEPT_SEGMENTS:
            self._kept.popitem(last=False)
        return made


def prompt_id(segments: Sequence[Segment]) -> str:
    """One name for the whole prompt."""
    return "/".join(segment.content_id for segment in segments)


def salted(segments: Sequence[Segment], salt: str) -> tuple[Segment, ...]:
    """The same prompt, which matches only prompts with the same salt."""
    mark = _mark(salt)
    return tuple(
        replace(
            segment,
            content_id=salted_id(segment.content_id, salt),
            blocks=tuple(block ^ mark for block in segment.blocks),
        )
        for segment in segments
    )


def salted_id(content: str, salt: str) -> str:
    """A `content_id` under a salt."""
    return f"{_mark(salt):x}/{content}"


def _mark(salt: str) -> int:
    digest = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big")


def uncached(segments: Sequence[Segment], salt: str) -> tuple[Segment, ...]:
    """The same prompt, matching nothing that a slot holds."""
    return tuple(
        Segment(s.name, s.role, s.kind, f"{salt}/{s.content_id}", s.tokens) for s in segments
    )


def _blocks(role: str, pieces: Sequence[bytes]) -> tuple[int, ...]:
    blocks: list[int] = []
    chain = role.encode("utf-8", "surrogatepass")
    for start in range(0, len(pieces) - HASH_BLOCK_TOKENS + 1, HASH_BLOCK_TOKENS):
        block = b"\x1f".join(pieces[start : start + HASH_BLOCK_TOKENS])
        chain = blake2b(chain + block, digest_size=8).digest()
        blocks.append(int.from_bytes(chain, "big"))
    return tuple(blocks)
