"""One kind of person, read from a TOML file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headroom_bench.crowd.draws import Distribution, read_count, read_distribution
from headroom_bench.crowd.world import Device
from headroom_bench.errors import UserError
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import Check, Table, read_toml
from headroom_bench.units import MOST_S, MOST_SEQUENCE_TOKENS

Each = Literal["conversation", "turn", "round"]
Shared = Literal["group", "user", "nobody"]
Metric = Literal["ttft", "ttfv", "e2e"]
Difficulty = Literal["trivial", "knowledge", "logic"]
"""How hard the questions are. It decides how long a model that reasons thinks before it answers."""

_ROLES = ("system", "user", "tool")
_KINDS = ("prose", "code", "schema", "log")
_NOTHING = Distribution.fixed(0)


@dataclass(frozen=True, slots=True)
class SegmentPlan:
    """A part of the prompt that this persona sends, and how often it is new."""

    name: str
    role: str
    kind: str
    tokens: Distribution
    each: Each
    """conversation: at its start; turn: with every ask; round: a tool's result after a round."""
    shared: Shared
    """group: the same text for everyone in `Persona.group`; user: the same for one user always."""


@dataclass(frozen=True, slots=True)
class Extra:
    """A request that rides along with the first answer of a conversation (a title, say)."""

    name: str
    tokens: Distribution
    output: Distribution


@dataclass(frozen=True, slots=True)
class Target:
    """What this person calls a good answer: `share` of turns within `limit_s`."""

    metric: Metric
    limit_s: float
    min_tok_s: float | None
    """Slowest acceptable decode rate, tokens per second; None where speed does not matter."""
    share: float
    device_s: float = 0.0
    """Of each such wait, the device's own time, which no server can shorten."""


@dataclass(frozen=True, slots=True)
class Persona:
    """One kind of person. Token counts are tokens, times are seconds."""

    name: str
    summary: str
    segments: tuple[SegmentPlan, ...]
    output: Distribution
    turns: Distribution
    """Turns in a conversation."""
    rounds: Distribution
    """Requests in a turn; all but the last call a tool."""
    tool_output: Distribution
    """Tokens of an answer that calls a tool."""
    tool_wait_s: Distribution
    """How long the tool takes."""
    reasoning: Distribution | None
    """Hidden reasoning tokens before the answer; None: as many as the model is known to have."""
    think_s: Distribution
    read_tok_s: float | None
    """Reading speed; None for a machine, which reads at once."""
    patience_s: float | None
    device: Device
    target: Target | None
    group: str
    link: str | None
    extras: tuple[Extra, ...]
    difficulty: Difficulty = "knowledge"
    force_length: bool = False
    single_request: bool = False
    """The plain crowd's `probe`: users begin at once, no phase drawn."""

    @property
    def thought(self) -> Distribution:
        """Hidden reasoning tokens as far as this persona knows: none where it leaves them open."""
        return _NOTHING if self.reasoning is None else self.reasoning

    @property
    def largest_context(self) -> float:
        """The most tokens a conversation of this persona can hold; infinite where unbounded."""
        turns, rounds = max(1.0, self.turns.largest), max(1.0, self.rounds.largest)
        per_turn = self.output.largest
        if rounds > 1:
            per_turn += (rounds - 1) * self.tool_output.largest
        # Reasoning is not sent again: only the last answer's is there.
        total = turns * per_turn + self.thought.largest
        for plan in self.segments:
            times = {"conversation": 1.0, "turn": turns, "round": turns * (rounds - 1)}[plan.each]
            total += times * plan.tokens.largest if times else 0.0
        return total

    @property
    def typical_first_context(self) -> float:
        """Tokens of a typical first request and its answer."""
        new = sum(plan.tokens.typical for plan in self.segments if plan.each != "round")
        return new + self.output.typical + self.thought.typical


def load_persona(name: str, check_link: Check | None = None) -> Persona:
    """A persona by its shipped name or by the path of a user's own file. `check_link` looks up the
    name of a link.

    Raises:
        UserError: unknown name, or the file is wrong (file, line and field are named).
    """
    table = read_toml(find_file("persona", name, shipped_dir("personas")))
    return read_persona(table, check_link)


def read_persona(table: Table, check_link: Check | None = None) -> Persona:
    """The persona that a table describes."""
    name = table.text("name", table.path.stem)
    _check_name(table, name)
    device = _read_device(table.table("device"))
    persona = Persona(
        name=name,
        summary=table.text("summary", "", empty=True),
        segments=tuple(_read_segment(item) for item in table.tables("segments")),
        output=read_count(table, "output", None),
        turns=read_count(table, "turns", 1),
        rounds=read_count(table, "rounds", 1),
        tool_output=read_count(table, "tool_output", 30),
        tool_wait_s=read_distribution(table, "tool_wait_s", Distribution.fixed(0), most=MOST_S),
        reasoning=read_count(table, "reasoning", None, 0) if "reasoning" in table else None,
        think_s=read_distribution(table, "think_s", Distribution.fixed(0), most=MOST_S),
        read_tok_s=table.number("read_tok_s", None, least=0.01),
        patience_s=table.number("patience_s", None, least=0.001, most=MOST_S),
        device=device,
        target=_read_target(table.table("target"), device),
        group=table.text("group", name),
        link=table.name("link", check_link),
        extras=tuple(_read_extra(item) for item in table.tables("extras")),
        difficulty=table.choice("difficulty", ("trivial", "knowledge", "logic"), "knowledge"),
        force_length=table.flag("force_length", False),
    )
    table.raw("sources")  # prose for readers: `catalog personas` shows it, nothing computes with it
    table.done()
    if not any(plan.each == "turn" for plan in persona.segments):
        raise table.error("segments", 'needs at least one with each = "turn": what the person asks')
    # A name is part of a text's or a request's id: twins would be one text, or one request.
    _refuse_twins(table, "segments", [plan.name for plan in persona.segments])
    _refuse_twins(table, "extras", [extra.name for extra in persona.extras])
    return persona


def _refuse_twins(table: Table, field: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise table.error(field, f"two of them are named {name!r}")


NAME_LENGTH = 64
"""Names stand in every request id and in file formats with bounded fields."""


def _check_name(table: Table, name: str) -> None:
    if len(name) > NAME_LENGTH:
        raise table.error("name", f"is {len(name)} letters long; at most {NAME_LENGTH} fit")
    if not name or any(mark in "/." or mark.isspace() for mark in name):
        raise table.error("name", f"{name!r} must not be empty or hold blanks, dots or slashes")


def _read_segment(table: Table) -> SegmentPlan:
    each: Each = table.choice("each", ("conversation", "turn", "round"))
    plan = SegmentPlan(
        name=table.text("name"),
        role=table.choice("role", _ROLES, "tool" if each == "round" else "user"),
        kind=table.choice("kind", _KINDS, "prose"),
        tokens=read_count(table, "tokens", None),
        each=each,
        shared=table.choice("shared", ("group", "user", "nobody"), "nobody"),
    )
    table.done()
    return plan


def _read_device(table: Table | None) -> Device:
    if table is None:
        return Device()
    device = Device(
        shows_reasoning=table.flag("shows_reasoning", True),
        buffer_tokens=table.whole("buffer_tokens", 1, least=1),
        whole=table.flag("whole", False),
        before_s=table.number("before_s", 0.0, most=MOST_S),
        after_s=table.number("after_s", 0.0, most=MOST_S),
    )
    table.done()
    return device


def _read_target(table: Table | None, device: Device) -> Target | None:
    if table is None:
        return None
    metric: Metric = table.choice("metric", ("ttft", "ttfv", "e2e"))
    target = Target(
        metric=metric,
        limit_s=table.number("limit_s", least=0.001, most=MOST_S),
        min_tok_s=table.number("min_tok_s", None, least=0.001),
        share=table.number("share", 0.95, least=0.01, most=1.0),
        device_s=device.before_s + device.after_s if metric == "ttfv" else 0.0,
    )
    table.done()
    return target


def _read_extra(table: Table) -> Extra:
    extra = Extra(
        name=table.text("name"),
        tokens=read_count(table, "tokens", None),
        output=read_count(table, "output", None),
    )
    _check_name(table, extra.name)
    table.done()
    return extra


def probe_persona(prompt_tokens: int, output_tokens: int, think_s: float) -> Persona:
    """The plain crowd's persona: one forced-length request after another, no reading.

    Raises:
        UserError: a length that no prompt or answer can have.
    """
    if not (1 <= prompt_tokens <= MOST_SEQUENCE_TOKENS >= output_tokens >= 1):
        raise UserError(
            f"--prompt-tokens and --output-tokens must be from 1 to {MOST_SEQUENCE_TOKENS:,}"
        )
    one = Distribution.fixed(1)
    ask = SegmentPlan("ask", "user", "prose", Distribution.fixed(prompt_tokens), "turn", "nobody")
    return Persona(
        name="probe",
        summary="a plain closed loop: fixed lengths, no reading",
        segments=(ask,),
        output=Distribution.fixed(output_tokens),
        turns=one,
        rounds=one,
        tool_output=one,
        tool_wait_s=Distribution.fixed(0),
        reasoning=Distribution.fixed(0),
        think_s=Distribution.fixed(think_s),
        read_tok_s=None,
        patience_s=None,
        device=Device(),
        target=None,
        group="probe",
        link=None,
        extras=(),
        force_length=True,
        single_request=True,
    )
