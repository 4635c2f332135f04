"""Which duration would give a verdict, where a run was too short for one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.loop import first_ask_s
from headroom_bench.crowd.persona import Persona
from headroom_bench.judge.verdict import LEAST_TURNS
from headroom_bench.results.statistics import mostly_left_out
from headroom_bench.units import in_words

SPARE = 1.5
"""Times the estimate: turns do not come evenly."""
_TELLING_TURNS = 5
"""From so many on the pace at which turns came says when the rest will have come."""


def too_few(
    crowd: Crowd,
    summary: Mapping[str, Any],
    duration_s: float | None,
    warmup_s: float,
    repeats: int = 1,
) -> list[str]:
    """A note where people had fewer turns than a verdict needs: who, why, and which `--duration`
    should do. None where a number of requests ended the run, or where most of what is missing
    was left out. `summary`: of the run, or of all `repeats` of it together; `duration_s` and
    `warmup_s` are those of each."""
    figures = summary["by_persona"]
    short = [
        name
        for name, row in figures.items()
        if row["verdict"] == "not enough data" and row["turns"] < LEAST_TURNS
    ]
    if not summary["requests"]:  # people without a target are missed too
        short = list(figures)
    short = [
        name
        for name in short
        if not mostly_left_out(figures[name]["left_out"], figures[name]["requests"])
    ]
    if duration_s is None or not short or crowd.prompts.sessions:
        return []
    personas = crowd.personas()
    lived_s = (summary["duration_s"] - summary["warmup_s"]) / repeats
    needed_s = warmup_s + SPARE * max(
        _needed_s(crowd, personas[name], figures[name], lived_s, repeats) for name in short
    )
    if needed_s <= duration_s:  # something else kept them from asking: it is told elsewhere
        return []
    many = ", ".join(f"{name} {figures[name]['turns']}" for name in short)
    told = f"too few turns for a verdict, which needs {LEAST_TURNS} of each persona: {many}"
    if repeats > 1:
        told += f" in {repeats} repeats"
    if not summary["requests"]:
        told = f"nobody asked anything in {in_words(duration_s)}"
    why = _first_asks(crowd, short, duration_s)
    return [f"{told}{why}; --duration {_flag(needed_s)} should do"]


def _first_asks(crowd: Crowd, names: list[str], duration_s: float) -> str:
    """Whose first asks come late, by how long they think."""
    users = [user for user in crowd.users() if user.persona.name in names]
    late = sum(first_ask_s(user) > duration_s / 2 for user in users)
    if not late:
        return ""
    first_s, last_s = min(map(first_ask_s, users)), max(map(first_ask_s, users))
    when = in_words(first_s)
    if last_s - first_s >= 1:
        when += f" to {in_words(last_s)}"
    return f" (people come within their first think_s: here their first asks are at {when})"


def _needed_s(
    crowd: Crowd, persona: Persona, figures: Mapping[str, Any], lived_s: float, repeats: int
) -> float:
    """Seconds, of each repeat, in which a persona's people should have had the turns of a verdict
    in all of them together. `lived_s`: how long each was."""
    users = [user for user in crowd.users() if user.persona.name == persona.name]
    each = math.ceil(LEAST_TURNS / (len(users) * repeats))
    by_pauses_s = max(map(first_ask_s, users)) + each * _turn_s(persona, figures)
    if figures["turns"] < _TELLING_TURNS:
        return by_pauses_s
    return max(by_pauses_s, lived_s * LEAST_TURNS / float(figures["turns"]))


def _turn_s(persona: Persona, figures: Mapping[str, Any]) -> float:
    """From one ask to the next in the mean, with the wait as it was measured, if one was."""
    reading_s = _mean(persona.output) / persona.read_tok_s if persona.read_tok_s else 0.0
    tools_s = (_mean(persona.rounds) - 1) * _mean(persona.tool_wait_s)
    pause_s = _mean(persona.think_s) + persona.device.before_s
    return pause_s + tools_s + reading_s + (figures["turn_s"]["mean"] or 0.0)


def _mean(distribution: Distribution) -> float:
    """By its quantiles: a lognormal one may be cut."""
    return statistics.fmean(distribution.draw((place + 0.5) / 50) for place in range(50))


def _flag(seconds: float) -> str:
    """A duration as `--duration` takes it, rounded up."""
    if seconds <= 90:
        return f"{math.ceil(seconds / 10) * 10}s"
    return f"{math.ceil(seconds / 60)}m"
