"""Published measurements: what others measured of models on boxes, each row with its source.

The file is read when the first row is asked for, and of it only the rows of the box and model that
are asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from headroom_bench.catalog._entries import read_data

DECODE, PREFILL, SERVED = "decode", "prefill", "served"
_FILE = "published.json"
_KINDS = {"d": DECODE, "p": PREFILL, "s": SERVED}


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One published rate. Sizes are tokens; names are the catalogue's."""

    id: str
    """Series and number, as on the accuracy page."""
    hardware: str
    model: str
    quant: str
    runtime: str
    backend: str
    driver: str
    """radv, amdvlk, rocm 7.2 …; empty where it was not told or there is only one."""
    build: str
    """A llama.cpp build (b7941), another runtime's version; empty where it was not told."""
    date: str
    kv_k: str
    kv_v: str
    ubatch: int | None
    """None: the runtime's own."""
    kind: str
    """decode, prefill, or served: what users of a loaded server decode at, while it reads others'
    prompts in between."""
    users: int
    """Sequences that decode together."""
    prompt_tokens: int
    """Read in the timed span; 0 for decoding."""
    depth_tokens: int
    """In each sequence's cache when the timed span begins."""
    generated_tokens: int
    """By each sequence in the timed span; 0 for prefill."""
    tok_s: float
    """Of all users together."""

    @property
    def series(self) -> str:
        """What was measured in one go, by one hand."""
        return self.id.rsplit("-", 1)[0]

    @property
    def context_tokens(self) -> float:
        """The mean cache of a sequence while its tokens were timed."""
        return self.depth_tokens + self.generated_tokens / 2


@functools.lru_cache(maxsize=64)
def published_rows(hardware: str, model: str) -> tuple[PublishedRow, ...]:
    """All rows of a model on a box, by their ids. Empty where nobody published any."""
    setups = read_data(_FILE)["rows"].get(f"{hardware}|{model}", {})
    return tuple(
        _row(hardware, model, setup, cells.split(" "))
        for setup, rows in setups.items()
        for cells in rows.split("; ")
    )


def all_published() -> Iterator[PublishedRow]:
    """Every row, box by box and model by model."""
    for key in read_data(_FILE)["rows"]:
        hardware, _, model = key.partition("|")
        yield from published_rows(hardware, model)


def series_source(series: str) -> str:
    """Where a series was published."""
    return str(read_data(_FILE)["series"][series]["source"])


def series_trust(series: str) -> str:
    """A: stated build, repeats, raw output of a tool; B: careful, less stated; C: shape only."""
    return str(read_data(_FILE)["series"][series]["trust"])


def _row(hardware: str, model: str, setup: str, cells: list[str]) -> PublishedRow:
    quant, runtime, backend, driver, build, date, cache, ubatch = setup.split("|")
    kv_k, _, kv_v = cache.partition("/")
    name, kind, users, prompt, depth, generated, rate = cells
    return PublishedRow(
        id=name,
        hardware=hardware,
        model=model,
        quant=quant,
        runtime=runtime,
        backend=backend,
        driver=driver,
        build=build,
        date=date,
        kv_k=kv_k,
        kv_v=kv_v or kv_k,
        ubatch=int(ubatch) if ubatch else None,
        kind=_KINDS[kind],
        users=int(users),
        prompt_tokens=_count(prompt),
        depth_tokens=_count(depth),
        generated_tokens=_count(generated),
        tok_s=float(rate),
    )


def _count(cell: str) -> int:
    return 0 if cell == "-" else int(cell)
