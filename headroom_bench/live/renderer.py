"""Segments into the messages of a request, remembering what was said before."""

from __future__ import annotations

from collections.abc import Sequence

from headroom_bench.crowd.prompts import Vocabulary, to_messages, write_text
from headroom_bench.crowd.world import Request
from headroom_bench.segments import Segment, total_tokens


class Renderer:
    """Writes prompts. Keeps each user's current conversation, so that history is sent verbatim.

    The chat template adds tokens that no segment names; they are learnt from the server's own
    counts, and the newest segment is written shorter by that much, so that whole prompts have the
    length that was asked for.
    """

    def __init__(self, vocabulary: Vocabulary, salt: str) -> None:
        self._vocabulary = vocabulary
        self._salt = salt
        self._shared: dict[str, str] = {}
        self._talks: dict[tuple[str, int], tuple[str, dict[str, str]]] = {}
        self._template_tokens: dict[tuple[str, ...], int] = {}
        self._newest_text_tokens: dict[str, int] = {}

    def messages(self, request: Request) -> list[dict[str, str]]:
        """The chat messages of a request."""
        texts = self._texts_of(request)
        newest = request.segments[-1]
        template = self._template_tokens.get(_shape(request.segments), 0)
        tokens = max(1, newest.tokens - template)
        self._newest_text_tokens[request.request_id] = tokens
        texts[newest.content_id] = self._write(newest, tokens)

        def text_of(segment: Segment) -> str:
            if segment.content_id in texts:
                return texts[segment.content_id]
            home = texts if segment.content_id.startswith(request.conversation_id) else self._shared
            if segment.content_id not in home:
                home[segment.content_id] = self._write(segment, segment.tokens)
            return home[segment.content_id]

        return to_messages(request.segments, text_of)

    def _write(self, segment: Segment, tokens: int) -> str:
        return write_text(segment.content_id, self._salt, tokens, self._vocabulary)

    def _texts_of(self, request: Request) -> dict[str, str]:
        """The texts of this conversation; the user's former one is forgotten."""
        person = (request.persona, request.user)
        current = self._talks.get(person)
        if current is None or current[0] != request.conversation_id:
            current = self._talks[person] = (request.conversation_id, {})
        return current[1]

    def learn(self, request: Request, prompt_tokens: int | None, answer_text: str) -> None:
        """Takes in what the server counted and said."""
        written = self._newest_text_tokens.pop(request.request_id, None)
        if prompt_tokens is not None and written is not None:
            rest = total_tokens(request.segments[:-1])
            self._template_tokens[_shape(request.segments)] = max(0, prompt_tokens - rest - written)
        self._texts_of(request)[f"{request.request_id}/answer"] = answer_text


def _shape(segments: Sequence[Segment]) -> tuple[str, ...]:
    """The roles since the last answer: what decides how many tokens the template adds."""
    roles: list[str] = []
    for segment in reversed(segments):
        if segment.role == "assistant":
            roles.append("assistant")
            break
        roles.append(segment.role)
    return tuple(roles)
