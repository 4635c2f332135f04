"""The prediction beside a measured run, or why there is none: what was measured stands anyhow."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headroom_bench.errors import UserError
from headroom_bench.experiments.bounds import faster_than_memory
from headroom_bench.experiments.box_words import in_words, memory_complaint
from headroom_bench.experiments.deployment import assumed
from headroom_bench.experiments.prediction import (
    explain,
    measured_lengths,
    predict_crowd,
)
from headroom_bench.experiments.run_state import (
    RunState,
    deployment_for,
    naming,
    one_way_s,
    server_told,
    told_target,
)
from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.report.summary import WorldOutcome
from headroom_bench.results.twins import twins
from headroom_bench.roofline.weights import unlike_any_file
from headroom_bench.units import counted as counted_of

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


@dataclass(slots=True)
class Beside:
    """Both worlds of a run, as far as they are known."""

    ours: WorldOutcome
    theirs: WorldOutcome | None = None
    box: str | None = None
    """What runs where, in words."""
    warnings: list[str] = field(default_factory=list)
    marked: bool = False
    """Records say more than when they were written."""


def set_beside(state: RunState, load: Load, counted: Sequence[RequestRecord]) -> Beside:
    """The measured run, what bound it, and its prediction. `load` is what the journal told,
    `counted` the records of which it is asked what bound them.

    Raises nothing that a prediction can raise: it becomes a warning.
    """
    records = state.measured.records
    found = Beside(WorldOutcome(records, load, *explain(counted, load, None)))
    try:
        _fill(found, state, counted)
    except Exception as why:  # noqa: BLE001 - a defect here must not cost what was measured
        found.warnings.append(f"no prediction{why_not(why)}")
    return found


def _fill(found: Beside, state: RunState, counted: Sequence[RequestRecord]) -> None:
    records = state.measured.records
    if state.facts is None and state.interrupt.happened:
        found.warnings.append("interrupted before anything was measured")
        return
    if not records:
        raise UserError(f"nobody asked anything in the {state.measured.ended_s:.0f} s of the run")
    deployment = deployment_for(state)
    server = server_told(state, deployment)
    found.box = in_words(deployment, server)
    notes = (
        memory_complaint(deployment, server),
        unlike_any_file(deployment.model, deployment.quant),
        assumed(told_target(state), server, deployment),
        _drafts_unpredicted(records, deployment),
    )
    found.warnings += [note for note in notes if note is not None]
    found.marked = _mark_too_fast(records, deployment)
    load = found.ours.load
    found.ours = WorldOutcome(records, load, *explain(counted, load, deployment))
    if not any(record.ok for record in records):
        raise UserError("no request succeeded, so no lengths are known")
    found.theirs = _predicted(state, deployment, counted)


def _mark_too_fast(records: Sequence[RequestRecord], deployment: Deployment) -> bool:
    """Whether some answers cannot be so fast on that box; they say so from now on."""
    impossible = faster_than_memory(records, deployment.pricer())
    for record in impossible:
        record.suspect = record.suspect or (
            f"decoded faster than {deployment.hardware.name} can read {deployment.model.name} at "
            f"{deployment.quant.name} from its memory (is that what runs there, or does it draft?)"
        )
    return bool(impossible)


def _drafts_unpredicted(records: Sequence[RequestRecord], deployment: Deployment) -> str | None:
    """The server drafts, and nobody told the prediction with what."""
    drafting = sum(1 for record in records if record.draft_tokens)
    if not drafting or deployment.drafter is not None:
        return None
    answers = counted_of(drafting, "answer")
    return (
        f"the server drafted in {answers}, and the prediction is of one that does not: decoding "
        "cannot be compared; name its drafter in a target file ([server] draft)"
    )


def _predicted(
    state: RunState, deployment: Deployment, counted: Sequence[RequestRecord]
) -> WorldOutcome:
    """The same people with the lengths that were really measured; what bound them is told of the
    requests that were measured."""
    outcome, _ = predict_crowd(
        state.options.crowd,
        deployment,
        naming(state),
        warmup_s=state.options.warmup_s,
        max_rps=state.options.max_rps,
        lengths=measured_lengths(state.measured.records),
        server=server_told(state, deployment),
        one_way_s=one_way_s(state),
        keep_times=False,
    )
    state.folder.write_rows("predicted.jsonl", outcome.records)
    same = twins(outcome.records, counted)
    limits, phases = explain(same, outcome.load, deployment)
    return replace(outcome, limits=limits, phases=phases)


def why_not(why: Exception) -> str:
    """Why there is no prediction, to follow these words; a defect with where it is."""
    if isinstance(why, UserError):
        return f": {why}"
    frame = traceback.extract_tb(why.__traceback__)[-1]
    module = frame.filename.rpartition("headroom_bench")[2].strip("/\\") or frame.filename
    told = f"{type(why).__name__}: {why} ({module}, line {frame.lineno})"
    return f", by a defect that is ours: {told}"
