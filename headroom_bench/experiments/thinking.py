"""How long a model thinks before it answers: measured medians by how hard the question is."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headroom_bench.crowd.crowd import Crowd, Group
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import Difficulty, Persona
from headroom_bench.errors import UserError
from headroom_bench.records import RequestRecord

if TYPE_CHECKING:
    from headroom_bench.catalog import Model

_COLUMNS: dict[Difficulty, str] = {
    "trivial": "trivial_sum",
    "knowledge": "knowledge_question",
    "logic": "logic_puzzle",
}
"""Columns of the catalogue's `hidden_tokens_measured` (LRMTokenEconomy, July to August 2025)."""
USUAL_SPREAD = 2.0
"""p90 / p50 where only the median was measured: estimated. Logic puzzles have 3 to 5."""
_MOST = 4.0
"""Longest thought as a multiple of the 90th percentile: estimated."""


def with_thinking(crowd: Crowd, model: Model, optional: bool = False) -> Crowd:
    """The crowd as it is answered by this model, which may think first.

    A model that always reasons does; one that can is taken to have it turned off, unless
    `optional`. A persona whose file sets `reasoning`, be it to 0, keeps it; one whose answers have
    a forced length (the plain crowd's) gets that length and no more, thought included.
    """
    if not reasons(model, optional):
        return crowd
    groups = tuple(Group(_thinking(g.persona, model), g.count) for g in crowd.groups)
    return replace(crowd, groups=groups)


def with_thinking_of(crowd: Crowd, name: str | None, optional: bool = False) -> Crowd:
    """The same for a model of which only the name is known, as servers tell it (a file's, say); the
    crowd as it is where the catalogue does not know it."""
    from headroom_bench.catalog.models import find_model
    from headroom_bench.catalog.served import served_model

    try:
        model = find_model(served_model(name)) if name else None
    except UserError:
        model = None
    return crowd if model is None else with_thinking(crowd, model, optional)


def cut_in_thought(records: Iterable[RequestRecord]) -> list[str]:
    """A warning where answers reached their length before the model had thought to the end."""
    good = [record for record in records if record.ok and record.reasoning_tokens]
    cut = [r for r in good if r.finish_reason == "length" and not r.visible_tokens]
    if not cut:
        return []
    return [
        f"{len(cut)} of {len(good)} answers of a model that thinks first were cut before its "
        "thought had ended, so nothing of them could be shown: give the persona more `reasoning`"
    ]


def reasons(model: Model, optional: bool = False) -> bool:
    """Whether the model thinks before it answers."""
    mode = model.reasoning.get("mode")
    return mode == "always" or (optional and mode == "optional")


def thinking_tokens(model: Model, difficulty: Difficulty) -> Distribution:
    """Hidden tokens of a model that reasons, as measured; where it was not, as models do that were
    (their median, an estimate)."""
    column = _COLUMNS[difficulty]
    rows = list(_measured(model.reasoning)) or list(_others())
    p50 = statistics.median(row[column] for row in rows)
    spreads = [row[f"{column}_p90"] / row[column] for row in rows if f"{column}_p90" in row]
    p90 = p50 * (statistics.median(spreads) if spreads else USUAL_SPREAD)
    return Distribution.lognormal(p50, p90, _MOST * p90)


def _thinking(persona: Persona, model: Model) -> Persona:
    if persona.reasoning is not None or persona.force_length:
        return persona
    return replace(persona, reasoning=thinking_tokens(model, persona.difficulty))


def _measured(reasoning: Mapping[str, Any]) -> Iterator[Mapping[str, float]]:
    yield from reasoning.get("hidden_tokens_measured", ())


def _others() -> Iterator[Mapping[str, float]]:
    """All that was measured but the gpt-oss models, which think far less than others."""
    from headroom_bench.catalog.models import models

    for model in models():
        if model.family != "gpt-oss":
            yield from _measured(model.reasoning)
