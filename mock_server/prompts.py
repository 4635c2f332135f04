"""Received prompts as segments: one a message, hashed in 16-token blocks.

Every message but an assistant's costs its text and a fixed number of template tokens (its header,
its end mark, and the generation prompt if it is the newest); an assistant's costs its text alone.
So an answer that is sent back has the tokens that it was generated with.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from headroom_bench.segments import HASH_BLOCK_TOKENS, Segment
from mock_server.tokens import split

TEMPLATE_TOKENS = 7
"""What the template adds to each message that is not an assistant's."""
PROMPT_ROLE = "prompt"
"""Role of a raw prompt, which no template touches."""
_KEPT_SEGMENTS = 4096
_BARE = ("assistant", PROMPT_ROLE)


def content_id(role: str, text: str) -> str:
    """Equal for equal role and text."""
    return blake2b(f"{role}\x1f{text}".encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class Segmenter:
    """Turns messages into segments. History comes again with every turn, so it is remembered."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Segment] = OrderedDict()

    def segment(self, role: str, text: str) -> Segment:
        """The segment of one message, or of a raw prompt (`PROMPT_ROLE`)."""
        key = content_id(role, text)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        pieces = split(text)
        tokens = len(pieces) + (0 if role in _BARE else TEMPLATE_TOKENS)
        made = Segment(role, role, "prose", key, tokens, _blocks(role, pieces))
        self._kept[key] = made
        if len(self._kept) > _KEPT_SEGMENTS:
            self._kept.popitem(last=False)
        return made


def prompt_id(segments: Sequence[Segment]) -> str:
    """One name for the whole prompt."""
    return "/".join(segment.content_id for segment in segments)


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
