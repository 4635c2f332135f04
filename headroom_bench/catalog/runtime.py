"""Server runtimes: how they use memory, their defaults, what they do with too long a prompt."""

from __future__ import annotations

from dataclasses import dataclass, field

from headroom_bench.catalog._entries import Facts
from headroom_bench.catalog._shelf import Shelf
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


def _check(runtime: Runtime, where: str) -> None:
    if runtime.design not in DESIGNS:
        raise UserError(f"{where}: design must be one of {', '.join(DESIGNS)}")


_SHELF = Shelf("runtime", Runtime, "runtimes", lambda r: (r.id, r.name, *r.aliases), _check)


def runtimes() -> tuple[Runtime, ...]:
    """All shipped runtimes, in the order of the data file."""
    return _SHELF.entries


def find_runtime(name: str) -> Runtime:
    """The runtime meant by an id, a name or a TOML path. Raises `UserError`."""
    return _SHELF.find(name)
