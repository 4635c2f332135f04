"""What a conversation will consist of: drawn from a persona, or recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from headroom_bench.crowd.draws import KEY_SEPARATOR, Distribution, uniform, uniform_of
from headroom_bench.crowd.persona import Each, Extra, Persona, SegmentPlan
from headroom_bench.crowd.sessions import Session
from headroom_bench.segments import Segment

PromptKind = Literal["distinct", "identical", "shared-prefix", "file"]
PROMPT_KINDS: tuple[PromptKind, ...] = ("distinct", "identical", "shared-prefix", "file")

SHARED_SHARE = 0.5
"""With shared-prefix: this share of a text's typical length is the same for everybody."""
SHARED_PART = ".shared"
"""Ends the name of a segment that shared-prefix made common."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """Where the texts of prompts come from, and what they share.

    distinct: nothing but what personas share on purpose. identical: every user and conversation of
    a persona sends the same texts, with the same lengths and pauses. shared-prefix: new texts begin
    alike. file: recorded sessions; users take them in order.
    """

    kind: PromptKind = "distinct"
    sessions: tuple[Session, ...] = ()

    @property
    def filler(self) -> bool:
        """Whether texts are made up: words without meaning, which no draft model foresees."""
        return self.kind != "file"


DISTINCT = Prompts()


@dataclass(frozen=True, slots=True)
class Draws:
    """The random numbers of one conversation, keyed so that no order of events matters."""

    seed: int
    persona: str
    user: int
    conversation: int
    _whose: str = field(init=False)
    """How all keys begin: they are many."""

    def __post_init__(self) -> None:
        parts = (self.seed, self.persona, self.user, self.conversation, "")
        object.__setattr__(self, "_whose", KEY_SEPARATOR.join(map(str, parts)))

    def u(self, what: str, turn: int = -1, step: int = -1) -> float:
        return uniform_of(f"{self._whose}{turn}{KEY_SEPARATOR}{step}{KEY_SEPARATOR}{what}")

    def of(self, distribution: Distribution, what: str, turn: int = -1, step: int = -1) -> float:
        if distribution.kind == "fixed":  # whatever the number: it is dear to come by
            return distribution.a
        return distribution.draw(self.u(what, turn, step))

    def whole(
        self, distribution: Distribution, what: str, turn: int = -1, step: int = -1, least: int = 0
    ) -> int:
        if distribution.kind == "fixed":
            return max(least, round(distribution.a))
        return distribution.draw_whole(self.u(what, turn, step), least)


class Script(Protocol):
    """Texts and lengths of one conversation. Turns and rounds count from 0."""

    @property
    def turns(self) -> int: ...

    @property
    def extras(self) -> tuple[Extra, ...]:
        """What rides along with the first request."""
        ...

    @property
    def force_length(self) -> bool: ...

    def rounds(self, turn: int) -> int: ...

    def opening(self) -> list[Segment]:
        """What stands at the start of the conversation."""
        ...

    def asks(self, turn: int) -> list[Segment]:
        """What the person adds in this turn."""
        ...

    def results(self, turn: int, step: int) -> list[Segment]:
        """What a tool gives back after round `step`."""
        ...

    def lengths(self, turn: int, step: int) -> tuple[int, int]:
        """Tokens of the answer, and of hidden reasoning before it."""
        ...


class DrawnScript:
    """Lengths by the persona's distributions; texts are made up."""

    def __init__(self, persona: Persona, draws: Draws, prompts: Prompts, owner: str) -> None:
        """`owner` begins the ids of texts that this conversation shares with nobody."""
        self._persona = persona
        self._draws = draws
        self._half = prompts.kind == "shared-prefix"
        self._owner = owner

    @property
    def turns(self) -> int:
        return self._draws.whole(self._persona.turns, "turns", least=1)

    @property
    def extras(self) -> tuple[Extra, ...]:
        return self._persona.extras

    @property
    def force_length(self) -> bool:
        return self._persona.force_length

    def rounds(self, turn: int) -> int:
        return self._draws.whole(self._persona.rounds, "rounds", turn, least=1)

    def opening(self) -> list[Segment]:
        return self._planned("conversation", -1, -1)

    def asks(self, turn: int) -> list[Segment]:
        return self._planned("turn", turn, -1)

    def results(self, turn: int, step: int) -> list[Segment]:
        return self._planned("round", turn, step)

    def lengths(self, turn: int, step: int) -> tuple[int, int]:
        persona, draws = self._persona, self._draws
        if step < self.rounds(turn) - 1:
            called = draws.whole(persona.tool_output, "tool_output", turn, step, least=1)
            return called, draws.whole(persona.thought, "reasoning", turn, step)
        output = draws.whole(persona.output, "output", turn, least=1)
        return output, draws.whole(persona.thought, "reasoning", turn)

    def _planned(self, each: Each, turn: int, step: int) -> list[Segment]:
        made: list[Segment] = []
        for plan in self._persona.segments:
            if plan.each == each:
                made += self._segments(plan, turn, step)
        return made

    def _segments(self, plan: SegmentPlan, turn: int, step: int) -> list[Segment]:
        persona, draws = self._persona, self._draws
        if plan.shared == "nobody":
            owner = f"{self._owner}/t{turn}/r{step}/{plan.name}"
            tokens = draws.whole(plan.tokens, plan.name, turn, step, least=1)
            if self._half and plan.each != "conversation":
                return self._halves(plan, owner, tokens)
        else:  # equal text means equal length: the draw is keyed by the owner alone
            whose = persona.group if plan.shared == "group" else f"{persona.name}-{draws.user}"
            owner = f"{whose}/{plan.name}"
            tokens = plan.tokens.draw_whole(uniform(draws.seed, owner), least=1)
        return [Segment(plan.name, plan.role, plan.kind, owner, tokens)]

    def _halves(self, plan: SegmentPlan, owner: str, tokens: int) -> list[Segment]:
        """A part that everybody sends, of one length so that it is one text, and the rest."""
        common = max(1, round(SHARED_SHARE * plan.tokens.typical))
        own = Segment(plan.name, plan.role, plan.kind, owner, max(1, tokens - common))
        if tokens <= common:
            return [own.resized(tokens)]
        name = plan.name + SHARED_PART
        shared_id = f"{self._persona.name}/{name}"
        return [Segment(name, plan.role, plan.kind, shared_id, common), own]


class RecordedScript:
    """A recorded session: its texts and lengths; the persona has no say in them."""

    def __init__(self, persona: Persona, draws: Draws, session: Session) -> None:
        self._persona = persona
        self._draws = draws
        self._session = session

    @property
    def turns(self) -> int:
        return len(self._session.turns)

    @property
    def extras(self) -> tuple[Extra, ...]:
        return ()

    @property
    def force_length(self) -> bool:
        return False

    def rounds(self, turn: int) -> int:
        return len(self._session.turns[turn])

    def opening(self) -> list[Segment]:
        return [said.segment() for said in self._session.opening]

    def asks(self, turn: int) -> list[Segment]:
        return [said.segment() for said in self._session.turns[turn][0].new]

    def results(self, turn: int, step: int) -> list[Segment]:
        return [said.segment() for said in self._session.turns[turn][step + 1].new]

    def lengths(self, turn: int, step: int) -> tuple[int, int]:
        """As recorded (estimated tokens); the persona's where the recording has no answer."""
        answer = self._session.turns[turn][step].answer
        if answer is None:
            return self._draws.whole(self._persona.output, "output", turn, least=1), 0
        return answer.tokens, answer.reasoning_tokens
