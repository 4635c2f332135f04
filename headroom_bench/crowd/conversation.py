"""A conversation's growing context, as segments."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headroom_bench.crowd.crowd import User
from headroom_bench.crowd.draws import Distribution, uniform
from headroom_bench.crowd.persona import Extra, SegmentPlan
from headroom_bench.crowd.world import Answer, Request
from headroom_bench.segments import Segment, total_tokens


@dataclass(slots=True)
class Conversation:
    """One user's turns that share a context."""

    user: User
    number: int
    segments: list[Segment] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.user.persona.name}-{self.user.index}/c{self.number}"

    def draw(self, distribution: Distribution, what: str, turn: int = -1, step: int = -1) -> float:
        return distribution.draw(self._u(what, turn, step))

    def draw_whole(
        self, distribution: Distribution, what: str, turn: int = -1, step: int = -1, least: int = 0
    ) -> int:
        return distribution.draw_whole(self._u(what, turn, step), least)

    def _u(self, what: str, turn: int, step: int) -> float:
        user = self.user
        return uniform(user.seed, user.persona.name, user.index, self.number, turn, step, what)

    def open(self) -> None:
        """Puts down what stands at the start of every conversation."""
        for plan in self.user.persona.segments:
            if plan.each == "conversation":
                self.segments.append(self._planned(plan, -1, -1))

    def say(self, turn: int) -> None:
        """Adds what the person asks in this turn."""
        for plan in self.user.persona.segments:
            if plan.each == "turn":
                self.segments.append(self._planned(plan, turn, -1))

    def add_tool_results(self, turn: int, step: int) -> None:
        """Adds what a tool gave back after round `step`, whether or not the model called it."""
        for plan in self.user.persona.segments:
            if plan.each == "round":
                self.segments.append(self._planned(plan, turn, step))

    def _planned(self, plan: SegmentPlan, turn: int, step: int) -> Segment:
        persona, index = self.user.persona, self.user.index
        owner = {
            "group": f"{persona.group}/{plan.name}",
            "user": f"{persona.name}-{index}/{plan.name}",
            "nobody": f"{self.id}/t{turn}/r{step}/{plan.name}",
        }[plan.shared]
        if plan.shared == "nobody":
            tokens = self.draw_whole(plan.tokens, plan.name, turn, step, least=1)
        else:  # equal text means equal length: the draw is keyed by the owner alone
            tokens = plan.tokens.draw_whole(uniform(self.user.seed, owner), least=1)
        return Segment(plan.name, plan.role, plan.kind, owner, tokens)

    def request(self, turn: int, step: int, rounds: int, output: int, reasoning: int) -> Request:
        """The whole context as a request for `output` + `reasoning` tokens."""
        persona = self.user.persona
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
            force_length=persona.force_length,
            patience_s=persona.patience_s,
            device=persona.device,
        )

    def extra_request(self, extra: Extra, first: Request) -> Request:
        """A request of its own context that rides along with `first`."""
        request_id = f"{first.request_id}.{extra.name}"
        tokens = self.draw_whole(extra.tokens, f"{extra.name} tokens", least=1)
        output = self.draw_whole(extra.output, f"{extra.name} output", least=1)
        ask = Segment(extra.name, "user", "prose", f"{request_id}/ask", tokens)
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
