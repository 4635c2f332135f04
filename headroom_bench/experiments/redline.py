"""The largest crowd that a target serves well, simulated or live: one search over probes.

A probe lives a crowd's life and hands back its records; what it lives in, a virtual box or a real
server, is all that the two kinds of redline differ in.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.scale import least_people, scaled
from headroom_bench.errors import UserError
from headroom_bench.experiments.box_words import beyond_training
from headroom_bench.experiments.deployment import deployment_of, named_way_s
from headroom_bench.experiments.memory_check import why_it_does_not_fit
from headroom_bench.experiments.prediction import links_of, predict_crowd
from headroom_bench.experiments.redline_trials import (
    Trial,
    first_broken,
    merged_limits,
    phases_of,
    point_of,
    pooled,
)
from headroom_bench.experiments.thinking import reasons, with_thinking
from headroom_bench.judge.limits import limits_of
from headroom_bench.judge.redline import LIKELY, Bracket, Effort, Limits, Ruling, find_redline
from headroom_bench.judge.rulings import ruling_on, seconds_to_judge
from headroom_bench.judge.turns import turns_of
from headroom_bench.judge.verdict import (
    LEAST_TURNS,
    GroupVerdict,
    Load,
    Word,
    judge,
)
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import steady
from headroom_bench.roofline.weights import unlike_any_file
from headroom_bench.simulate.world import Naming
from headroom_bench.target import Target
from headroom_bench.units import people as people_of

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

DEFAULT_DURATION_S = 1800.0
DEFAULT_WARMUP_S = 300.0
DEFAULT_MOST = 4096
DEFAULT_REPEATS = 2
MOST_REPEATS = 10
_EXPLAINED = 60
"""Records of a trial that are kept, to tell what bound it."""
MORE_TO_JUDGE = 6
"""Trials beyond `most_repeats` of a size where some group has too few turns for a verdict."""
LONGEST = 16
"""A trial that is to bring such a group more turns lasts at most so many times as long."""
EFFORT = Effort(least=3000, small=64, probes=10)
"""In requests of the time that counts. A household's search among 64 people is to take less than
two CPU seconds, of which starting takes 0.6 and so many requests one; a crowd of hundreds costs
more than that in a single probe."""
_SEED_STEP = 1_000_003
"""Between the seeds of one size's trials; far from the seeds that people choose."""


@dataclass(frozen=True, slots=True)
class RedlineOptions:
    """Durations in life seconds."""

    target: Target
    crowd: Crowd
    duration_s: float = DEFAULT_DURATION_S
    """Of one probe, its warm-up included."""
    warmup_s: float = DEFAULT_WARMUP_S
    most: int = DEFAULT_MOST
    repeats: int = DEFAULT_REPEATS
    """Seeds that each end rests on."""
    most_repeats: int = MOST_REPEATS
    """Seeds of a size at most, while its ruling is in doubt."""
    effort: Effort = EFFORT
    """Of the default `repeats`; more of them may cost as much more."""
    lengthen: bool = True
    """An end where some group has too few turns for a verdict is probed further, and longer."""
    thinking: bool = False
    """Models that may reason do; those that always reason do anyhow."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What living a crowd's life came to."""

    records: Sequence[RequestRecord]
    load: Load
    ended_s: float


CrowdProbe = Callable[[Crowd, float], Probed]
"""Lives the crowd's life for so many seconds, warm-up included."""


OnTrial = Callable[[Trial, Word], None]


def redline(options: RedlineOptions, on_trial: OnTrial) -> dict[str, Any]:
    """The redline of a crowd on a virtual box.

    Returns the document of `redline --json`; `on_trial` hears of every probe. Raises `UserError`:
    the target does not say what runs there, or nobody in the crowd has a target.
    """
    deployment = deployment_of(options.target)
    crowd = with_thinking(options.crowd, deployment.model, options.thinking)
    head = {
        "target": options.target.name,
        "world": "predicted",
        **named(deployment, options.target),
        "reasons": reasons(deployment.model, options.thinking),
    }
    why = why_it_does_not_fit(deployment, options.target.server)
    if why is not None:
        row = {"limit": "memory", "share": 1.0, "evidence": why}
        return {
            **head,
            **_nobody(crowd, options),
            "limits": [row],
            "broke": {"limit": "memory", "persona": None, "evidence": why},
        }
    probe = simulated_probe(options, deployment)
    found = search(options, crowd, probe, deployment, on_trial)
    if found["redline"]["passes"] is None and found["broke"]:
        for row in found["broke"]["groups"]:
            row["passes_alone"] = _passes_alone(row["persona"], options, crowd, probe, on_trial)
    odd = (
        unlike_any_file(deployment.model, deployment.quant),
        beyond_training(deployment, deployment.ctx),
    )
    warnings = [*(told for told in odd if told), *found["warnings"]]
    return {**head, **found, "warnings": warnings}


def _passes_alone(
    name: str, options: RedlineOptions, crowd: Crowd, probe: CrowdProbe, on_trial: OnTrial
) -> bool | None:
    """Whether one of a persona passes with nobody beside it; None where that was not judged, or
    where further turns may well say otherwise."""
    (group, *_) = (group for group in crowd.groups if group.persona.name == name)
    alone = dataclasses.replace(crowd, groups=(dataclasses.replace(group, count=1),))
    single = dataclasses.replace(options, most=1)
    document = search(single, alone, probe, None, on_trial)
    found, (point,) = document["redline"], document["curve"]
    return None if found["unjudged"] or point["doubt"] >= LIKELY else found["passes"] == 1


def named(deployment: Deployment, target: Target) -> dict[str, Any]:
    """What is served where, in names."""
    return {
        "hardware": deployment.hardware.id,
        "model": deployment.model.name,
        "quant": deployment.quant.name,
        "runtime": deployment.runtime.id,
        "backend": deployment.backend,
        "slots": target.server.slots,
        "ctx": target.server.ctx,
        "ctx_each": deployment.ctx,
    }


def simulated_probe(options: RedlineOptions, deployment: Deployment) -> CrowdProbe:
    """Lives a crowd's life in virtual time, over its people's own links."""
    naming = Naming("redline", options.target.name, deployment.model.name)
    one_way_s = named_way_s(options.target)

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        outcome, _ = predict_crowd(
            crowd,
            deployment,
            naming,
            duration_s=duration_s,
            warmup_s=options.warmup_s,
            one_way_s=one_way_s,
            server=options.target.server,
            persona_links=True,
            keep_times=False,
        )
        return Probed(outcome.records, outcome.load, duration_s)

    return probe


def search(
    options: RedlineOptions,
    crowd: Crowd,
    probe: CrowdProbe,
    deployment: Deployment | None,
    on_trial: OnTrial,
) -> dict[str, Any]:
    """Searches with any probe. Without a `deployment` nothing tells what bound the phases.

    Raises `UserError` where nobody in the crowd has a target.
    """
    targets = crowd.targets()
    if not any(targets.values()):
        raise UserError(f"crowd {crowd.name}: nobody in it has a [target], so nothing can fail")
    least = least_people(crowd)
    if options.most < least:
        raise UserError(f"--most {options.most} cannot hold one of each of {least} groups")
    began_s = time.monotonic()
    on_radio = _on_radio(crowd)

    def ruled(trials: Sequence[Trial]) -> tuple[Word, dict[str, GroupVerdict]]:
        turns = [turn for trial in trials for turn in trial.turns]
        return judge(turns, targets, pooled(trials))

    def ruling(trials: Sequence[Trial]) -> Ruling:
        return ruling_on(ruled(trials)[1], targets)

    def one(people: int, made: Sequence[Trial]) -> Trial:
        started_s = time.monotonic()
        seed = crowd.seed + len(made) * _SEED_STEP
        window_s = options.duration_s - options.warmup_s
        if len(made) >= options.repeats and options.lengthen:
            lived_s = sum(trial.window_s for trial in made)
            lacking_s = seconds_to_judge(ruled(made)[1], targets, lived_s)
            window_s = max(window_s, min(window_s * LONGEST, lacking_s))
        probed = probe(scaled(crowd, people).with_seed(seed), options.warmup_s + window_s)
        records = steady(probed.records, options.warmup_s, probed.ended_s)
        turns = turns_of(records, targets)
        last = records[-_EXPLAINED:]
        limits = limits_of(records, probed.load, None, on_radio)
        took_s = time.monotonic() - started_s
        trial = Trial(
            people, seed, window_s, len(records), turns, probed.load, last, limits, took_s
        )  # fmt: skip
        on_trial(trial, ruled([trial])[0])
        return trial

    most_repeats = max(options.repeats, options.most_repeats)
    most_to_judge = most_repeats + MORE_TO_JUDGE if options.lengthen else 0
    effort = options.effort.times(max(1.0, options.repeats / DEFAULT_REPEATS))
    looks = Limits(least, options.most, options.repeats, most_repeats, most_to_judge, effort)
    found = find_redline(one, ruling, looks, lambda trial: trial.requests)
    unjudged = [
        size
        for size in (found.passes, found.fails)
        if size is not None and not ruling(found.trials[size]).judged
    ]
    passes = None if found.passes in unjudged else found.passes
    curve = [
        point_of(
            people,
            trials,
            *ruled(trials),
            scaled(crowd, people),
            options.warmup_s,
            ruling(trials).doubt,
        )
        for people, trials in sorted(found.trials.items())
    ]
    ends = [point for point in curve if point["people"] in (found.passes, found.fails)]
    passing = next((point for point in curve if point["people"] == found.passes), None)
    failing = found.trials.get(found.fails or 0, [])
    return {
        "crowd": crowd.name,
        "duration_s": options.duration_s,
        "warmup_s": options.warmup_s,
        "redline": {"passes": passes, "fails": found.fails, "unjudged": unjudged},
        "verdict": _verdict(passing, unjudged),
        "mix": scaled(crowd, passes).counts() if passes else None,
        "broke": first_broken(
            failing, ruled(failing)[1], targets, phases_of(failing, deployment), on_radio
        ),
        "limits": merged_limits(failing or found.trials.get(found.passes or 0, [])),
        "curve": curve,
        "warnings": [
            *_left_open(found, ends, options),
            *_warnings(passing, found.fails, unjudged, options),
        ],
        "probes": sum(len(trials) for trials in found.trials.values()),
        "took_s": time.monotonic() - began_s,
    }


def _on_radio(crowd: Crowd) -> set[str]:
    return {name for name, link in links_of(crowd).items() if link.shared}


def _verdict(passing: Mapping[str, Any] | None, unjudged: Sequence[int]) -> Word:
    if passing is None:
        return "not enough data" if unjudged else "failing"
    word: Word = passing["verdict"]
    return word


def _left_open(
    found: Bracket[Trial], ends: Sequence[Mapping[str, Any]], options: RedlineOptions
) -> list[str]:
    """What a search that was not to cost more leaves to chance."""
    told = []
    if not found.narrow:
        told.append(
            f"between {found.passes} and {people_of(found.fails or 0)} nobody looked closely"
        )
    told += [
        f"what is said of {people_of(end['people'])} may change with more turns (by a chance of "
        f"{end['doubt']:.0%})"
        for end in ends
        if end["doubt"] >= LIKELY
    ]
    if not told:
        return []
    seeds = max(options.repeats, *(end["trials"] for end in ends))
    return [f"{'; '.join(told)}: --repeats {2 * seeds} looks closer"]


def _warnings(
    passing: Mapping[str, Any] | None,
    fails: int | None,
    unjudged: Sequence[int],
    options: RedlineOptions,
) -> list[str]:
    told = []
    if passing is not None:
        thin = sorted(
            name
            for name, group in passing["by_persona"].items()
            if group["verdict"] == "not enough data"
        )
        if thin:
            told.append(
                f"{', '.join(thin)}: under {LEAST_TURNS} turns with "
                f"{people_of(passing['people'])}, so not judged; a longer --duration would bring "
                "more"
            )
    if fails is not None and fails in unjudged:
        told.append(
            f"what fails with {people_of(fails)} rests on under {LEAST_TURNS} turns of whoever "
            "missed; a longer --duration would bring more"
        )
    if fails is None and not unjudged:
        told.append(f"nobody failed with {people_of(options.most)}; --most looks further")
    return told


def _nobody(crowd: Crowd, options: RedlineOptions) -> dict[str, Any]:
    """The document where nothing can be served at all."""
    return {
        "crowd": crowd.name,
        "duration_s": options.duration_s,
        "warmup_s": options.warmup_s,
        "redline": {"passes": None, "fails": least_people(crowd), "unjudged": []},
        "verdict": "failing",
        "mix": None,
        "curve": [],
        "warnings": [],
        "probes": 0,
        "took_s": 0.0,
    }


def with_target(options: RedlineOptions, target: Target) -> RedlineOptions:
    """The same question about another target."""
    return dataclasses.replace(options, target=target)
