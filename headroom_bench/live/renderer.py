"""Segments into the messages of a request, remembering what was said before."""

from __future__ import annotations

from collections.abc import Sequence

from headroom_bench.crowd.prompts import TemplateTokens, Vocabulary, to_messages, write_text
from headroom_bench.crowd.world import Request
from headroom_bench.segments import Segment, total_tokens


class Renderer:
    """Writes prompts. Keeps each user's current conversation, so that history is sent verbatim.

    The chat template adds tokens that no segment names. The system segment is written shorter by
    its own share of them and the newest segment by the rest, so that prompts have the length that
    was asked for; what the template really adds is learnt from the server's own counts.
    """

    def __init__(self, vocabulary: Vocabulary, template: TemplateTokens, salt: str) -> None:
        self._vocabulary = vocabulary
        self._salt = salt
        self._system_tokens = template.system
        self._shared: dict[str, str] = {}
        self._talks: dict[tuple[str, int], tuple[str, dict[str, str]]] = {}
        self._added: dict[tuple[str, ...], int] = {
            ("user",): template.lone_turn,
            ("system", "user"): template.turn,
            ("assistant", "user"): template.turn,
        }
        self._newest_text_tokens: dict[str, int] = {}

    def messages(self, request: Request) -> list[dict[str, str]]:
        """The chat messages of a request."""
        texts = self._texts_of(request)
        newest = request.segments[-1]
        tokens = max(1, newest.tokens - self._added.get(_shape(request.segments), 0))
        self._newest_text_tokens[request.request_id] = tokens
        texts[newest.content_id] = self._write(newest, tokens)

        def text_of(segment: Segment) -> str:
            if segment.content_id in texts:
                return texts[segment.content_id]
            home = texts if segment.content_id.startswith(request.conversation_id) else self._shared
            if segment.content_id not in home:
                opening = segment.role == "system" and segment is request.segments[0]
                wrapped = self._system_tokens if opening else 0
                home[segment.content_id] = self._write(segment, max(1, segment.tokens - wrapped))
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
            self._added[_shape(request.segments)] = max(0, prompt_tokens - rest - written)
        self._texts_of(request)[f"{request.request_id}/answer"] = answer_text


def _shape(segments: Sequence[Segment]) -> tuple[str, ...]:
    """The messages' roles since the last answer, which it includes: what decides how many tokens
    the template adds."""
    roles: list[str] = []
    for segment in reversed(segments):
        role = "user" if segment.role == "tool" else segment.role
        if not roles or roles[0] != role:
            roles.insert(0, role)
        if role == "assistant":
            break
    return tuple(roles)
