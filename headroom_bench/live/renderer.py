"""Segments into the messages of a request, remembering what was said before."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from headroom_bench.crowd.prompts import (
    SharedTexts,
    TemplateTokens,
    answered_segments,
    is_own,
    sent_role,
    to_messages,
)
from headroom_bench.crowd.sessions import RECORDED
from headroom_bench.crowd.texts import Sizes, Vocabulary, Writer
from headroom_bench.crowd.world import Request
from headroom_bench.live.lengths import Feedback
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment, total_tokens

Whole = TypeVar("Whole")

SLACK_TOKENS = 16
"""Counts that differ by no more say nothing: a block of a paged cache, a template's whims."""
_DOUBT_EXACT, _DOUBT_LEARNT, _DOUBT_GUESSED, _DOUBT_RECORDED = 0.02, 0.2, 0.3, 0.5
"""How far below our own count a server's may be before the prompt was cut, as a share of it."""

_DOUBT_SHARED: dict[Sizes, float] = {"exact": 0.0, "counted": 0.1, "guessed": 0.5}
"""How much longer than estimated a shared text may be, as a share of it."""
_LETTERS_A_TOKEN = 256
"""No token is longer. What a server says beyond that is not kept, nor sent again: prompts would
grow without bound."""
_LARGE_TEMPLATE = 48
"""Tokens of a template that writes a system message of its own (SmolLM2's: 30)."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's messages, and what we know of their length."""

    messages: list[dict[str, str]]
    tokens: int
    """As the server should count them."""
    least_tokens: int
    """Where it counts fewer the prompt was cut."""
    reusable_tokens: int
    """How many were sent before in this run, or are the template's: what a cache may hold."""
    template_tokens: int
    """How many of those are the template's."""


@dataclass(slots=True)
class _Talk:
    """One conversation's texts by content id, each with its size as the writer counts."""

    conversation_id: str
    texts: dict[str, tuple[str, float]] = field(default_factory=dict)
    ended_by: str = ""
    """Finish reason of the latest answer: some servers count the token that ends it."""
    vague: bool = False
    """Hidden reasoning may be among the answers' tokens, which are not sent again."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """A prompt that is on its way, as its count will be understood."""

    shape: Hashable
    written: float
    """Size of what is new, as the writer counts."""
    before: int
    """Tokens of its history."""
    shared_written: float | None
    """Size of the shared texts at its start that were sent before; None where history, or the
    server's own tokenizer, tells their tokens."""


class Renderer:
    """Writes prompts. Keeps each user's current conversation, so that history is sent verbatim.

    The chat template adds tokens that no segment names. The system segment is written shorter by
    its own share of them and the newest segment by the rest, so that prompts have the length that
    was asked for. Texts that conversations share are written once and never again.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: TemplateTokens,
        salt: str,
        recorded: Mapping[str, str] | None = None,
    ) -> None:
        """`recorded`: texts by content id, of segments of kind `recorded`."""
        self._writer = Writer(vocabulary, salt)
        self._template = template
        self._recorded = recorded or {}
        self._sizes = vocabulary.sizes
        self._feedback = Feedback(vocabulary.sizes, template)
        self._shared_texts = SharedTexts()
        self._shared: dict[str, tuple[str, float]] = {}
        self._talks: dict[tuple[str, int], _Talk] = {}
        self._sent: dict[str, _Sent] = {}
        """By request id, until its answer."""

    def prompt(self, request: Request) -> Prompt:
        """The messages of a request."""
        return _whole(self.prompting(request))

    def prompting(self, request: Request) -> Generator[None, None, Prompt]:
        """`prompt` in steps of a millisecond or so, between which others may have their turn."""
        talk = self._talk_of(request)
        segments = request.segments
        history = answered_segments(request)
        shape = _shape(request, history, talk.ended_by)
        extra = self._known_extra(request, history, talk.ended_by)
        size = self._feedback.size(shape, extra)
        before = total_tokens(segments[:history])
        off = self._misjudged(segments[history:], size.ratio)
        written = 0.0
        for segment in segments[history:-1]:
            written += (yield from self._text(talk, request, segment, size.ratio))[1]
        newest = segments[-1]
        asked = total_tokens(segments) - before + off
        wanted = max(1, size.written(asked) - round(written))
        if is_own(newest, request):
            talk.texts[newest.content_id] = yield from self._write(newest, wanted)
        elif newest.content_id not in self._shared:
            self._shared[newest.content_id] = yield from self._write(newest, wanted)
        written += (yield from self._text(talk, request, newest, size.ratio))[1]
        new = size.counted(written)
        leading = self._shared_texts.reusable(request)
        shared, shared_written = before, None
        if not history:
            # As they were written: a segment's own tokens hold its share of the template's.
            shared_written = sum(self._shared[s.content_id][1] for s in segments[:leading])
            doubt = 0.0 if self._feedback.knows(shape) else _DOUBT_SHARED[self._sizes]
            shared = round(shared_written * size.ratio * (1 + doubt))
            if self._feedback.exact:
                shared_written = None
        self._sent[request.request_id] = _Sent(shape, written, before, shared_written)
        messages = to_messages(
            segments, lambda segment: _whole(self._text(talk, request, segment, size.ratio))[0]
        )
        template = self._template_tokens(shape, size.added)
        return Prompt(
            messages,
            before + new,
            self._least(before, new, shape, talk, segments[history:]),
            min(before + new, shared + template),
            template,
        )

    def _misjudged(self, segments: tuple[Segment, ...], ratio: float) -> float:
        """By how many tokens shared texts are longer than was asked, as we know by now. They were
        written before that was known, and stay: what is new must not pay for it."""
        if self._feedback.exact:
            return 0.0
        known = [s for s in segments if s.content_id in self._shared]
        return sum(self._shared[s.content_id][1] * ratio - s.tokens for s in known)

    def _template_tokens(self, shape: Hashable, added: float) -> int:
        """At most so many, where they are not counted yet."""
        if not self._template.known and not self._feedback.knows(shape):
            added = max(added, _LARGE_TEMPLATE)
        return max(0, round(added))

    def _least(
        self,
        before: int,
        new: int,
        shape: Hashable,
        talk: _Talk,
        segments: tuple[Segment, ...],
    ) -> int:
        if self._feedback.exact:
            doubt = _DOUBT_EXACT
        elif self._sizes == "counted" or self._feedback.knows(shape):
            doubt = _DOUBT_LEARNT
        else:
            doubt = _DOUBT_GUESSED
        if any(segment.kind == RECORDED for segment in segments):
            doubt = max(doubt, _DOUBT_LEARNT if self._feedback.knows(shape) else _DOUBT_RECORDED)
        sure = before * (1 - (_DOUBT_RECORDED if talk.vague else _DOUBT_EXACT))
        return round(sure + new * (1 - doubt)) - SLACK_TOKENS

    def _known_extra(self, request: Request, history: int, ended_by: str) -> int:
        """What the template adds to such a prompt, where it is known."""
        template = self._template
        if history:
            # The token that ends an answer is counted with it, and is the template's to write.
            return template.turn - (ended_by == "stop")
        opening = request.segments[0].role == "system"
        return template.system + template.turn if opening else template.lone_turn

    def _text(
        self, talk: _Talk, request: Request, segment: Segment, ratio: float
    ) -> Generator[None, None, tuple[str, float]]:
        """A segment's text and size; it is written where this is the first time."""
        home = talk.texts if is_own(segment, request) else self._shared
        found = home.get(segment.content_id)
        if found is None:
            opening = segment.role == "system" and segment is request.segments[0]
            tokens = segment.tokens - (self._template.system if opening else 0)
            found = yield from self._write(segment, max(1, round(tokens / ratio)))
            home[segment.content_id] = found
        return found

    def _write(self, segment: Segment, size: int) -> Generator[None, None, tuple[str, float]]:
        if segment.kind == RECORDED:
            return self._recorded[segment.content_id], segment.tokens
        parts = []
        for part in self._writer.writing(segment.kind, size):
            parts.append(part)
            yield
        return "".join(parts), size

    def _talk_of(self, request: Request) -> _Talk:
        """This conversation's texts; the user's former one is forgotten."""
        person = (request.persona, request.user)
        current = self._talks.get(person)
        if current is None or current.conversation_id != request.conversation_id:
            current = self._talks[person] = _Talk(request.conversation_id)
        return current

    def learn(self, request: Request, record: RequestRecord, answer_text: str) -> None:
        """Takes in what the server counted and said, and gives the record the sizes that are known
        by it. What it says of a cut prompt teaches nothing about lengths."""
        sent = self._sent.pop(request.request_id)
        if not record.ok:
            return
        talk = self._talk_of(request)
        if record.prompt_tokens is not None and not record.prompt_cut and not talk.vague:
            self._feedback.learn(sent.shape, sent.written, record.prompt_tokens - sent.before)
            self._settle(record, sent)
        tokens = max(record.completion_tokens or 0, request.max_tokens)
        kept = answer_text[: _LETTERS_A_TOKEN * tokens]
        talk.texts[f"{request.request_id}/answer"] = (kept, 0.0)
        if not request.request_id.rsplit("/", 1)[-1].count("."):  # a title is no part of the talk
            talk.ended_by = record.finish_reason or ""
            talk.vague = talk.vague or record.visible_tokens is None

    def _settle(self, record: RequestRecord, sent: _Sent) -> None:
        """What a cache may have held of a prompt, now that its tokens were counted."""
        counted = record.prompt_tokens
        if counted is None or sent.shared_written is None:
            return
        size = self._feedback.size(sent.shape, 0)
        record.template_tokens = min(counted, max(0, round(size.added)))
        shared = round(sent.shared_written * size.ratio)
        record.reusable_tokens = min(counted, shared + record.template_tokens)


def _whole(steps: Generator[None, None, Whole]) -> Whole:
    """What comes of it when all steps are taken at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: Whole = done.value
            return result


def _shape(request: Request, history: int, ended_by: str) -> Hashable:
    """Roles and kinds of what is new, and what it follows: decides how many tokens the template
    adds and how well sizes are known."""
    parts: list[tuple[str, str]] = [("assistant", ended_by)] if history else []
    for segment in request.segments[history:]:
        part = (sent_role(segment), segment.kind)
        if not parts or parts[-1] != part:
            parts.append(part)
    return tuple(parts)
