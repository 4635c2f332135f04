"""A conversation's growing context, as segments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headroom_bench.crowd.crowd import User
from headroom_bench.crowd.persona import Extra
from headroom_bench.crowd.script import DrawnScript, Draws, RecordedScript, Script
from headroom_bench.crowd.world import Answer, Request
from headroom_bench.segments import Segment, total_tokens


@dataclass(slots=True)
class Conversation:
    """One user's turns that share a context."""

    user: User
    number: int
    segments: list[Segment] = field(default_factory=list)
    id: str = field(init=False)
    script: Script = field(init=False)
    draws: Draws = field(init=False)

    def __post_init__(self) -> None:
        user, persona = self.user, self.user.persona
        self.id = f"{persona.name}-{user.index}/c{self.number}"
        alike = user.prompts.kind == "identical"
        index, number = (0, 0) if alike else (user.index, self.number)
        self.draws = Draws(user.seed, persona.name, index, number)
        sessions = user.prompts.sessions
        if sessions:
            place = (user.seat + self.number * user.people) % len(sessions)
            self.script = RecordedScript(persona, self.draws, sessions[place])
        else:
            owner = f"{persona.name}/alike" if alike else self.id
            self.script = DrawnScript(persona, self.draws, user.prompts, owner)

    def open(self) -> None:
        """Puts down what stands at the start of every conversation."""
        self.segments += self.script.opening()

    def say(self, turn: int) -> None:
        """Adds what the person asks in this turn."""
        self.segments += self.script.asks(turn)

    def add_tool_results(self, turn: int, step: int) -> None:
        """Adds what a tool gave back after round `step`, whether or not the model called it."""
        self.segments += self.script.results(turn, step)

    def request(self, turn: int, step: int, rounds: int) -> Request:
        """The whole context as a request for the answer that the script wants."""
        persona = self.user.persona
        output, reasoning = self.script.lengths(turn, step)
        return Request(
            request_id=f"{self.id}/t{turn}/r{step}",
            conversation_id=self.id,
            persona=persona.name,
            user=self.user.index,
            turn=turn,
            round=step,
            segments=tuple(self.segments),
            max_tokens=output + reasoning,
            reasoning_tokens=reasoning,
            rounds=rounds,
            force_length=self.script.force_length,
            patience_s=persona.patience_s,
            device=persona.device,
        )

    def extra_request(self, extra: Extra, first: Request) -> Request:
        """A request of its own context that rides along with `first`."""
        request_id = f"{first.request_id}.{extra.name}"
        tokens = self.draws.whole(extra.tokens, f"{extra.name} tokens", least=1)
        output = self.draws.whole(extra.output, f"{extra.name} output", least=1)
        alike = self.user.prompts.kind == "identical"
        whose = f"{self.user.persona.name}/alike/{extra.name}" if alike else request_id
        ask = Segment(extra.name, "user", "prose", f"{whose}/ask", tokens)
        return replace(
            first,
            request_id=request_id,
            segments=(ask,),
            max_tokens=output,
            reasoning_tokens=0,
        )

    def heard(self, request: Request, answer: Answer) -> None:
        """Adds the answer, and makes the newest segment agree with what the server counted."""
        newest = self.segments[-1]
        if answer.prompt_tokens is not None:
            counted = newest.tokens + answer.prompt_tokens - total_tokens(request.segments)
            self.segments[-1] = newest.resized(max(1, counted))
        if answer.visible_tokens:
            answer_id = f"{request.request_id}/answer"
            said = Segment("answer", "assistant", "prose", answer_id, answer.visible_tokens)
            self.segments.append(said)
