"""The redline of a real server: the same search, each probe a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.errors import EXIT_INTERRUPTED, UserError
from headroom_bench.experiments.deployment import deployment_of, missing_for_prediction
from headroom_bench.experiments.redline import (
    OnTrial,
    Probed,
    RedlineOptions,
    named,
    search,
)
from headroom_bench.experiments.run import run
from headroom_bench.experiments.run_options import RunOptions
from headroom_bench.judge.redline import Effort
from headroom_bench.judge.verdict import Load
from headroom_bench.report.progress import Goal, Progress
from headroom_bench.results.reading import read_requests
from headroom_bench.results.statistics import mostly_left_out


class SearchInterruptedError(UserError):
    """Somebody ended the search; the runs so far are on disk."""

    exit_code = EXIT_INTERRUPTED


def live_redline(
    options: RedlineOptions,
    run_options: RunOptions,
    say: Callable[[str], None],
    progress: Callable[[Goal, Callable[[], float]], Progress],
    on_trial: OnTrial,
) -> dict[str, Any]:
    """The redline of a crowd on a real server, as a document like the simulated one's.

    Every probe is a run with its own folder below `run_options.out`; its target, crowd, duration
    and warm-up are those of `options`. What bound a wait is told where the target says what runs
    there. A size of the curve also holds `left_out`: how many of its requests the harness spoilt.
    Raises `UserError` (`TargetError` where the server cannot be reached).
    """
    target = options.target
    missing = missing_for_prediction(target.server, target.model)
    deployment = None if missing else deployment_of(target)
    runs: list[str] = []
    left_out: Counter[int] = Counter()

    def probe(crowd: Crowd, duration_s: float) -> Probed:
        asked = replace(
            run_options,
            target=target,
            crowd=crowd,
            duration_s=duration_s,
            warmup_s=options.warmup_s,
        )
        outcome = run(asked, say, progress)
        runs.append(str(outcome.folder))
        if outcome.exit_code == EXIT_INTERRUPTED:
            raise SearchInterruptedError(
                f"interrupted after {len(runs)} runs; they are saved, the last in {outcome.folder}"
            )
        left_out[len(crowd.users())] += outcome.summary["left_out"]
        figures = outcome.summary["totals"]
        names = ("busy_share", "all_slots_share", "preempted", "killed", "slots")
        load = Load(**{name: figures[name] for name in names})
        return Probed(read_requests(outcome.folder), load, outcome.summary["duration_s"])

    head = {
        "target": target.name,
        "world": "measured",
        **(named(deployment, target) if deployment else {"model": target.model}),
    }
    unlimited = replace(options, effort=Effort())  # each size is one run, whatever it costs
    found = search(unlimited, options.crowd, probe, deployment, on_trial)
    curve = [{**point, "left_out": left_out[point["people"]]} for point in found["curve"]]
    warnings = [*found["warnings"], *_mostly_spoilt(curve)]
    return {**head, **found, "curve": curve, "warnings": warnings, "runs": runs}


def _mostly_spoilt(curve: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning of the sizes at which the harness spoilt more than it measured."""
    sizes = [
        f"{point['people']:,}"
        for point in curve
        if mostly_left_out(point["left_out"], point["requests"])
    ]
    if not sizes:
        return []
    return [
        f"with {', '.join(sizes)} people this machine was too late to measure most requests, which "
        "are left out: what is said of such a crowd rests on the others"
    ]
