"""The redline of a real server: the same search, each probe a run."""

from __future__ import annotations

from collections.abc import Callable
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
    there. Raises `UserError` (`TargetError` where the server cannot be reached).
    """
    target = options.target
    missing = missing_for_prediction(target.server, target.model)
    deployment = None if missing else deployment_of(target)
    runs: list[str] = []

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
    return {**head, **found, "runs": runs}
