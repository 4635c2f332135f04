"""How many of each persona: a crowd, and the single users in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headroom_bench.crowd.persona import Persona, load_persona, read_persona
from headroom_bench.errors import UserError
from headroom_bench.shipped import find_file, names_in, shipped_dir
from headroom_bench.toml_table import Table, read_toml


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


@dataclass(frozen=True, slots=True)
class Crowd:
    name: str
    seed: int
    groups: tuple[Group, ...]

    def users(self) -> list[User]:
        """Every person, in a fixed order; indexes go on across groups of the same persona."""
        next_index: Counter[str] = Counter()
        people = []
        for group in self.groups:
            for _ in range(group.count):
                index = next_index[group.persona.name]
                next_index[group.persona.name] += 1
                people.append(User(group.persona, index, self.seed))
        return people

    def personas(self) -> dict[str, Persona]:
        return {group.persona.name: group.persona for group in self.groups}

    def counts(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for group in self.groups:
            counts[group.persona.name] += group.count
        return dict(counts)

    def with_seed(self, seed: int | None) -> Crowd:
        return self if seed is None else replace(self, seed=seed)


def crowd_names() -> list[str]:
    """The shipped crowds' names."""
    return names_in(shipped_dir("personas") / "crowds")


def load_crowd(name: str) -> Crowd:
    """A crowd by its shipped name or by the path of a user's own file.

    Raises:
        UserError: unknown name, or the file is wrong (file, line and field are named).
    """
    return read_crowd(read_toml(find_file("crowd", name, shipped_dir("personas") / "crowds")))


def read_crowd(table: Table) -> Crowd:
    """The crowd that a table describes."""
    name = table.text("name", table.path.stem)
    seed = table.whole("seed", 1)
    table.raw("summary")
    groups = tuple(_read_group(item) for item in table.tables("group"))
    table.done()
    if not groups:
        raise table.error("group", "is missing; add a [[group]] with a persona and a count")
    _refuse_namesakes(table, groups)
    return Crowd(name, seed, groups)


def _read_group(table: Table) -> Group:
    name = table.text("persona")
    count = table.whole("count", least=1)
    link = table.text("link", None)
    overrides = table.table("overrides")
    table.done()
    try:
        persona = _overridden(name, table, overrides)
    except UserError as why:
        raise table.error("persona", str(why)) from None
    return Group(replace(persona, link=link) if link else persona, count)


def _overridden(name: str, table: Table, overrides: Table | None) -> Persona:
    beside = table.path.parent / name
    path = find_file(
        "persona",
        str(beside) if name.endswith(".toml") and beside.is_file() else name,
        shipped_dir("personas"),
    )
    if overrides is None:
        return load_persona(str(path))
    original = read_toml(path)
    merged = _merge(original.as_dict(), overrides.as_dict())
    merged.setdefault("name", path.stem)
    return read_persona(Table(merged, path, original.source_text))


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `over` replace those of `base`; the tables `device` and `target` are merged."""
    merged = dict(base)
    for field, value in over.items():
        nested = field in ("device", "target") and isinstance(value, dict)
        merged[field] = {**merged.get(field, {}), **value} if nested else value
    return merged


def _refuse_namesakes(table: Table, groups: Sequence[Group]) -> None:
    seen: dict[str, Persona] = {}
    for group in groups:
        known = seen.setdefault(group.persona.name, group.persona)
        if known != group.persona:
            raise table.error(
                "group",
                f"two different personas are both named {known.name!r}; "
                "give one another name in its overrides",
            )


def crowd_of(personas: Sequence[str], seed: int) -> Crowd:
    """A crowd from command-line words such as `chat-reader:5`.

    Raises:
        UserError: a word is not NAME:N.
    """
    groups = []
    for word in personas:
        name, separator, count = word.rpartition(":")
        if not separator or not count.isdigit() or int(count) < 1:
            raise UserError(f"--persona {word!r} is not NAME:N; write chat-reader:5")
        groups.append(Group(load_persona(name), int(count)))
    label = "+".join(f"{group.persona.name}x{group.count}" for group in groups)
    return Crowd(label, seed, tuple(groups))


def plain_crowd(persona: Persona, users: int, seed: int) -> Crowd:
    """`users` of one persona."""
    if users < 1:
        raise UserError("--users must be at least 1")
    return Crowd(f"{persona.name}x{users}", seed, (Group(persona, users),))
