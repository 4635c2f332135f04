"""What a run knows so far, and what follows from it at any moment of its life."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headroom_bench import __version__
from headroom_bench.crowd.texts import Vocabulary
from headroom_bench.errors import UserError
from headroom_bench.experiments.deployment import (
    Told,
    deployment_of,
    missing_for_prediction,
    named_way_s,
    settings,
)
from headroom_bench.experiments.earlier import Earlier
from headroom_bench.experiments.harness import harness_figures
from headroom_bench.experiments.interrupt import Interrupt
from headroom_bench.experiments.journal_watch import JournalWatch
from headroom_bench.experiments.measuring import Measured
from headroom_bench.experiments.run_options import RunOptions, as_config
from headroom_bench.live.clock import RunClock
from headroom_bench.live.probe import TargetFacts
from headroom_bench.plain import to_plain
from headroom_bench.report.progress import Goal, Progress
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.simulate.world import Naming
from headroom_bench.target import ServerSpec, Target

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment

Say = Callable[[str], None]


@dataclass(slots=True)
class RunState:
    """What is known so far, kept so that an end at any moment can still be written down."""

    options: RunOptions
    folder: RunFolder
    say: Say
    progress: Callable[[Goal, Callable[[], float]], Progress]
    interrupt: Interrupt
    clock: RunClock
    earlier: Earlier = field(default_factory=Earlier)
    facts: TargetFacts | None = None
    vocabulary: Vocabulary | None = None
    measured: Measured = field(default_factory=Measured)
    journal: JournalWatch | None = None
    warnings: list[str] = field(default_factory=list)
    forecast: dict[str, float] = field(default_factory=dict)

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.say(f"warning: {text}")


def one_way_s(state: RunState) -> float:
    """Half of the measured round trip, in life time; where none was, by the link that the target's
    file names."""
    trip_ms = state.facts.round_trip_ms if state.facts else None
    if trip_ms is None:
        return named_way_s(state.options.target)
    return trip_ms / 2e3 * state.options.time_scale


def round_trip_s(state: RunState) -> float | None:
    """What is known of the way, life time; None where it is not."""
    return 2 * one_way_s(state) or None


def slots_of(state: RunState) -> int | None:
    """How many requests the server works on at a time, by itself or by the target's file."""
    told = state.facts.slots if state.facts else None
    return told or state.options.target.server.slots


def told_target(state: RunState) -> Target:
    """The target with what the server told of itself; where it was never reached, as it was
    given."""
    target, facts = state.options.target, state.facts
    if facts is None:
        return target
    return replace(target, model=target.model or facts.model, dialect=facts.dialect)


def deployment_for(state: RunState) -> Deployment:
    """The box for the prediction. Raises `UserError` where it is not known well enough."""
    target = told_target(state)
    missing = missing_for_prediction(target.server, target.model)
    if missing:
        raise UserError(f"{', '.join(missing)} not given")
    return deployment_of(target, _told(state))


def server_told(state: RunState, deployment: Deployment) -> ServerSpec:
    """What is known of the server's settings, what it told of itself first."""
    return settings(state.options.target.server, _told(state), deployment.runtime)


def _told(state: RunState) -> Told:
    facts = state.facts
    return Told() if facts is None else Told(facts.slots, facts.ctx_per_slot)


def naming(state: RunState) -> Naming:
    model = state.options.target.model or (state.facts.model if state.facts else None)
    return Naming(state.folder.run_id, state.options.target.name, model)


def harness_of(state: RunState) -> dict[str, Any]:
    measured = state.measured
    return harness_figures(measured.harness, measured.records, state.options.time_scale)


def manifest(state: RunState, status: str, error: str | None = None) -> dict[str, Any]:
    options = state.options
    return {
        "run_id": state.folder.run_id,
        "status": status,
        "error": error,
        "headroom_bench": __version__,
        "python": platform.python_version(),
        "host": {
            "system": platform.system(),
            "machine": platform.machine(),
            "cpus": os.cpu_count(),
        },
        "seed": options.crowd.seed,
        "began_at": datetime.fromtimestamp(state.clock.began_unix_s, UTC).isoformat(),
        "time_scale": options.time_scale,
        "resumptions": to_plain(state.earlier.resumptions),
        "config": as_config(options),
        "target_facts": state.facts.as_row() if state.facts else None,
        "prediction_lengths": "as measured, by request_id",
        "harness": harness_of(state),
    }
