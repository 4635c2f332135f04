"""Server runtimes: how they use memory, their defaults, what they do with too long a prompt."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path

from headroom_bench.catalog._entries import (
    Facts,
    Names,
    build,
    own_entry,
    read_data,
    read_toml,
)
from headroom_bench.errors import UserError

DESIGNS = ("split_slots", "unified_slots", "paged", "dynamic_batch")
"""Memory designs; see the Headroom article and each runtime's `memory_design`."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """One server program, at the version that its facts were read from."""

    id: str
    name: str
    design: str
    """One of `DESIGNS`, with the runtime's own defaults."""
    memory_design: str = ""
    backends: tuple[str, ...] = ()
    """What it is built for; empty where that is not told."""
    aliases: tuple[str, ...] = ()
    version: str = ""
    defaults: Facts = field(default_factory=dict, compare=False)
    context_per_slot: str = ""
    scheduling: str = ""
    queueing: str = ""
    prompt_cache: str = ""
    oversize_prompt: str = ""
    streaming: str = ""
    multi_gpu: str = ""
    multi_box: str = ""
    memory_limit: str = ""
    speculation: str = ""
    notes: str = ""
    estimated: bool = False
    source: str = ""

    @property
    def has_slots(self) -> bool:
        """Whether sequences live in slots, which have caches of their own or share one."""
        return self.design in ("split_slots", "unified_slots")


@functools.cache
def runtimes() -> tuple[Runtime, ...]:
    """All shipped runtimes, in the order of the data file."""
    entries = read_data("runtimes.json")["runtimes"]
    return tuple(build(Runtime, entry, f"runtimes.json: {entry['id']}") for entry in entries)


@functools.cache
def _names() -> Names:
    return Names("runtime", {r.id: (r.name, *r.aliases) for r in runtimes()})


@functools.cache
def _by_id() -> dict[str, Runtime]:
    return {runtime.id: runtime for runtime in runtimes()}


def runtime_from_toml(path: Path) -> Runtime:
    """A user's own runtime: a TOML file with the keys of one entry. Raises `UserError`."""
    runtime = build(Runtime, {"source": path.name, **read_toml(path)}, str(path))
    if runtime.design not in DESIGNS:
        raise UserError(f"{path}: design must be one of {', '.join(DESIGNS)}")
    return runtime


def find_runtime(name: str) -> Runtime:
    """The runtime meant by an id, a name or a TOML path. Raises `UserError`."""
    if path := own_entry(name):
        return runtime_from_toml(path)
    return _by_id()[_names().find(name)]
