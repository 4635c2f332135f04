"""How many of each persona: a crowd, and the single users in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headroom_bench.crowd.persona import Persona, Target, load_persona, read_persona
from headroom_bench.crowd.script import DISTINCT, Prompts
from headroom_bench.errors import UserError
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import Check, Table, read_toml
from headroom_bench.units import MOST_PEOPLE, parse_whole, shown


@dataclass(frozen=True, slots=True)
class Group:
    persona: Persona
    count: int


@dataclass(frozen=True, slots=True)
class User:
    """One simulated person."""

    persona: Persona
    index: int
    """0-based among the users of this persona."""
    seed: int
    prompts: Prompts = DISTINCT
    seat: int = 0
    """0-based among the whole crowd: decides which recorded session is whose."""
    people: int = 1
    """How many the whole crowd has."""


@dataclass(frozen=True, slots=True)
class Crowd:
    name: str
    seed: int
    groups: tuple[Group, ...]
    prompts: Prompts = DISTINCT

    def __post_init__(self) -> None:
        """Raises `UserError` for more people than can be lived side by side."""
        many = sum(group.count for group in self.groups)
        if many > MOST_PEOPLE:
            raise UserError(
                f"crowd {self.name[:80]}: {many:,} people; there may be {MOST_PEOPLE:,}"
            )

    def users(self) -> list[User]:
        """Every person, in a fixed order; indexes go on across groups of the same persona."""
        next_index: Counter[str] = Counter()
        many = sum(group.count for group in self.groups)
        people: list[User] = []
        for group in self.groups:
            for _ in range(group.count):
                index = next_index[group.persona.name]
                next_index[group.persona.name] += 1
                seat = len(people)
                people.append(User(group.persona, index, self.seed, self.prompts, seat, many))
        return people

    def personas(self) -> dict[str, Persona]:
        return {group.persona.name: group.persona for group in self.groups}

    def targets(self) -> dict[str, Target | None]:
        """What each persona calls a good answer; None for those that call none so."""
        return {group.persona.name: group.persona.target for group in self.groups}

    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for group in self.groups:
            counts[group.persona.name] += group.count
        return dict(counts)

    def kinds(self) -> set[str]:
        """The kinds of text that its people send."""
        return {plan.kind for group in self.groups for plan in group.persona.segments}

    def with_prompts(self, prompts: Prompts) -> Crowd:
        return replace(self, prompts=prompts)

    def with_seed(self, seed: int | None) -> Crowd:
        return self if seed is None else replace(self, seed=seed)


def load_crowd(name: str, check_link: Check | None = None) -> Crowd:
    """A crowd by its shipped name or by the path of a user's own file. `check_link` looks up the
    name of a link.

    Raises:
        UserError: unknown name, or the file is wrong (file, line and field are named).
    """
    table = read_toml(find_file("crowd", name, shipped_dir("personas") / "crowds"))
    return read_crowd(table, check_link)


def read_crowd(table: Table, check_link: Check | None = None) -> Crowd:
    """The crowd that a table describes."""
    name = table.text("name", table.path.stem)
    seed = table.whole("seed", 1)
    table.raw("summary")
    groups = tuple(_read_group(item, check_link) for item in table.tables("group"))
    table.done()
    if not groups:
        raise table.error("group", "is missing; add a [[group]] with a persona and a count")
    namesake = _namesake(groups)
    if namesake is not None:
        raise table.error("group", f"{namesake}; give one another name in its overrides")
    return Crowd(name, seed, groups)


def _read_group(table: Table, check_link: Check | None) -> Group:
    name = table.text("persona")
    count = table.whole("count", least=1, most=MOST_PEOPLE)
    link = table.name("link", check_link)
    overrides = table.table("overrides")
    table.done()
    path = _persona_path(name, table)
    persona = read_toml(path)
    if overrides is not None:
        persona = persona.overlaid(overrides, deep=("device", "target"))
    read = read_persona(persona, check_link)
    return Group(replace(read, link=link) if link else read, count)


def _persona_path(name: str, table: Table) -> Path:
    """A persona's file: beside the crowd's, the user's own, or a shipped one."""
    beside = table.path.parent / name
    if name.endswith(".toml") and beside.is_file():
        return beside
    return table.told("persona", lambda: find_file("persona", name, shipped_dir("personas")))


def _namesake(groups: Sequence[Group]) -> str | None:
    """What is wrong where two different personas share a name, and so would share request ids."""
    seen: dict[str, Persona] = {}
    for group in groups:
        if seen.setdefault(group.persona.name, group.persona) != group.persona:
            return f"two different personas are both named {group.persona.name!r}"
    return None


def crowd_of(personas: Sequence[str], seed: int, check_link: Check | None = None) -> Crowd:
    """A crowd from command-line words such as `chat-reader:5`. `check_link` looks up the name of a
    link.

    Raises:
        UserError: a word is not NAME:N, or two different personas share a name.
    """
    groups = []
    for word in personas:
        name, separator, count = word.rpartition(":")
        if not separator or not count.isdecimal():
            raise UserError(f"--persona {shown(word)} is not NAME:N; write chat-reader:5")
        many = parse_whole(count, f"--persona {name[:80]}: the number of people", MOST_PEOPLE)
        groups.append(Group(load_persona(name, check_link), many))
    namesake = _namesake(groups)
    if namesake is not None:
        raise UserError(f"--persona: {namesake}; give one another name in its file")
    label = "+".join(f"{group.persona.name}x{group.count}" for group in groups)
    return Crowd(label, seed, tuple(groups))


def plain_crowd(persona: Persona, users: int, seed: int) -> Crowd:
    """`users` of one persona."""
    if users < 1:
        raise UserError("--users must be at least 1")
    return Crowd(f"{persona.name}x{users}", seed, (Group(persona, users),))
