"""A crowd on a target in virtual time: the same records and summary as a live run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headroom_bench import __version__
from headroom_bench.crowd.crowd import Crowd
from headroom_bench.errors import UserError
from headroom_bench.experiments.box_words import beyond_training, in_words, memory_complaint
from headroom_bench.experiments.deployment import deployment_of, named_way_s
from headroom_bench.experiments.memory_check import why_it_does_not_fit
from headroom_bench.experiments.prediction import predict_crowd
from headroom_bench.experiments.prompt_report import prompts_head
from headroom_bench.experiments.thinking import with_thinking
from headroom_bench.experiments.too_few import too_few
from headroom_bench.experiments.warm_up import left_nothing
from headroom_bench.judge.causes import limit_row
from headroom_bench.judge.turns import turns_of
from headroom_bench.records import RequestRecord
from headroom_bench.report.summary import Window, WorldOutcome, build_summary
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.roofline.weights import unlike_any_file
from headroom_bench.simulate.world import Naming
from headroom_bench.target import MOCK, Target

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


@dataclass(frozen=True, slots=True)
class SimulateOptions:
    """What to simulate. Durations in virtual seconds."""

    target: Target
    crowd: Crowd
    out: Path
    duration_s: float | None
    max_requests: int | None
    warmup_s: float
    thinking: bool = False
    """Models that may reason do; those that always reason do anyhow."""


class NotSavedError(UserError):
    """What was simulated could not be written; its summary is here."""

    def __init__(self, why: str, summary: dict[str, Any]) -> None:
        super().__init__(why)
        self.summary = summary


def simulate(options: SimulateOptions) -> tuple[Path, dict[str, Any]]:
    """Runs it and writes it to disk: requests.jsonl holds the predicted records.

    Raises:
        UserError: the target does not say what runs there, or there cannot be a folder.
        NotSavedError: the folder cannot hold the results.
    """
    deployment = deployment_of(options.target)
    RunFolder.try_below(options.out)
    target = options.target
    crowd = with_thinking(options.crowd, deployment.model, options.thinking)
    naming = Naming("", target.name, deployment.model.name)
    outcome, token_times = predict_crowd(
        crowd,
        deployment,
        naming,
        duration_s=options.duration_s,
        warmup_s=options.warmup_s,
        max_requests=options.max_requests,
        one_way_s=named_way_s(target),
        server=target.server,
        persona_links=True,
    )
    where = deployment.hardware.id if target.name == MOCK else target.name
    folder = RunFolder.create(options.out, f"{where}-simulated", crowd.name, datetime.now())
    for record in outcome.records:
        record.run_id = folder.run_id
    summary = _summary(options, crowd, deployment, _with_memory(outcome, deployment, target))
    summary["run_id"] = folder.run_id
    enough = options.max_requests is not None and len(outcome.records) >= options.max_requests
    duration_s = None if enough else options.duration_s
    summary["notes"] = too_few(crowd, summary, duration_s, options.warmup_s)
    targets = crowd.targets()
    try:
        folder.write_rows("requests.jsonl", outcome.records)
        folder.write_token_times(token_times.items())
        folder.write_rows("turns.jsonl", turns_of(outcome.records, targets))
        folder.write_json("summary.json", summary)
        folder.write_manifest(_manifest(options, crowd, deployment) | {"run_id": folder.run_id})
    except UserError as why:
        raise NotSavedError(str(why), summary) from None
    return folder.path, summary


def _with_memory(outcome: WorldOutcome, deployment: Deployment, target: Target) -> WorldOutcome:
    """Memory comes before all other limits where it is too small."""
    why = why_it_does_not_fit(deployment, target.server)
    if why is None:
        return outcome
    return replace(outcome, limits=[limit_row("memory", 1.0, why), *outcome.limits])


def _summary(
    options: SimulateOptions, crowd: Crowd, deployment: Deployment, outcome: WorldOutcome
) -> dict[str, Any]:
    target = options.target
    head: dict[str, Any] = {
        "run_id": None,
        "target": target.name,
        "crowd": crowd.name,
        "model": deployment.model.name,
        "box": in_words(deployment, target.server),
        "world": "predicted",
        "status": "complete",
    }
    if crowd.prompts.kind != "distinct":
        head["prompts"] = prompts_head(crowd, "exact")
    return build_summary(
        head,
        outcome,
        None,
        crowd.targets(),
        crowd.counts(),
        Window(options.warmup_s, outcome.ended_s or 0.0),
        {"lag_p99_ms": None, "cpu_share": None, "valid": True},
        [
            *_warnings(deployment, target, outcome),
            *left_nothing(outcome.records, options.warmup_s),
        ],
    )


def _warnings(deployment: Deployment, target: Target, outcome: WorldOutcome) -> list[str]:
    complaints = (
        memory_complaint(deployment, target.server),
        unlike_any_file(deployment.model, deployment.quant),
        beyond_training(deployment, _longest_context(outcome.records)),
    )
    told = [complaint for complaint in complaints if complaint is not None]
    if outcome.records and not any(record.ok for record in outcome.records):
        told.append("no request succeeded")
    return told


def _longest_context(records: Sequence[RequestRecord]) -> int:
    lengths = ((r.prompt_tokens or 0) + (r.completion_tokens or 0) for r in records if r.ok)
    return max(lengths, default=0)


def _manifest(options: SimulateOptions, crowd: Crowd, deployment: Deployment) -> dict[str, Any]:
    return {
        "run_id": None,
        "status": "complete",
        "world": "predicted",
        "headroom_bench": __version__,
        "seed": crowd.seed,
        "config": {
            "target": options.target.name,
            "hardware": deployment.hardware.name,
            "model": deployment.model.name,
            "quant": deployment.quant.name,
            "runtime": deployment.runtime.name,
            "backend": deployment.backend,
            "slots": deployment.slots,
            "ctx_per_slot": deployment.ctx,
            "crowd": {"name": crowd.name, "counts": crowd.counts()},
            "duration_s": options.duration_s,
            "max_requests": options.max_requests,
            "warmup_s": options.warmup_s,
            "prompts": prompts_head(crowd, "exact"),
        },
    }
