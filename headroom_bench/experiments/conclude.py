"""After a run: the prediction beside it, the journal's join, the summary. Needs no server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_TARGET
from headroom_bench.experiments.beside import set_beside
from headroom_bench.experiments.complaints import complaints, first_failures
from headroom_bench.experiments.harness import harness_complaints
from headroom_bench.experiments.prompt_report import prompt_notes, prompts_row
from headroom_bench.experiments.run_state import (
    RunState,
    harness_of,
    manifest,
    round_trip_s,
    slots_of,
)
from headroom_bench.experiments.thinking import cut_in_thought
from headroom_bench.experiments.too_few import too_few
from headroom_bench.experiments.warm_up import left_nothing
from headroom_bench.judge.turns import turns_of
from headroom_bench.judge.verdict import Load
from headroom_bench.redaction import redacted
from headroom_bench.report.summary import Window, build_summary
from headroom_bench.results.statistics import steady
from headroom_bench.results.throughput import totals


@dataclass(slots=True)
class RunOutcome:
    """What came of it."""

    folder: Path
    summary: dict[str, Any]
    exit_code: int
    left: bool = True
    """Whether going on would ask anything more, where it was interrupted."""


def conclude(state: RunState) -> RunOutcome:
    """Prediction, journal join, summary: everything that needs no server."""
    folder, measured = state.folder, state.measured
    records = measured.records
    worked_on = [*records, *state.earlier.aside]
    window = Window(state.options.warmup_s, measured.ended_s)
    journal_load = Load(slots=slots_of(state))
    if state.journal is not None:
        journal_load = state.journal.conclude(
            worked_on,
            folder,
            (window.warmup_s, window.ended_s),
            slots_of(state),
            round_trip_s(state) or 0.0,
            state.warn,
        )
    counting = steady(records, window.warmup_s, window.ended_s)
    beside = set_beside(state, journal_load, counting)
    if state.journal is not None or beside.marked:
        folder.write_rows("requests.jsonl", records)  # with what was not known when they ended
    rates = totals(worked_on, window.warmup_s, window.ended_s)
    targets = state.options.crowd.targets()
    folder.write_rows("turns.jsonl", turns_of(records, targets))
    harness = harness_of(state)
    summary = build_summary(
        {**_head(state), "box": beside.box},
        replace(beside.ours, totals=rates),
        beside.theirs,
        targets,
        state.options.crowd.counts(),
        window,
        harness,
        [
            *state.warnings,
            *beside.warnings,
            *state.earlier.notes(),
            *_cut_off(state),
            *harness_complaints(harness, counting),
            *complaints(records),
            *first_failures(records),
            *left_nothing(records, window.warmup_s),
            *prompt_notes(state.options.crowd, records),
            *cut_in_thought(records),
        ],
    )
    status = "interrupted" if state.interrupt.happened else "complete"
    summary["status"] = status
    summary["notes"] = too_few(state.options.crowd, summary, _ended_by_s(state), window.warmup_s)
    folder.write_json("summary.json", summary)
    folder.write_manifest(manifest(state, status))
    left = state.options.leaves(measured.ended_s, len(records))
    return RunOutcome(folder.path, redacted(summary), _exit_code(state), left)


def _ended_by_s(state: RunState) -> float | None:
    """The `--duration` that ended the run; None where something else did."""
    most = state.options.max_requests
    enough = most is not None and len(state.measured.records) >= most
    return None if state.interrupt.happened or enough else state.options.duration_s


def _exit_code(state: RunState) -> int:
    if state.interrupt.happened:
        return EXIT_INTERRUPTED
    records = state.measured.records
    failed = records and not any(record.ok for record in records)
    return EXIT_TARGET if failed else 0


def _cut_off(state: RunState) -> list[str]:
    count, limit_s = state.measured.cut_off, state.options.drain_s
    return [f"{count} answers were cut off {limit_s:g} s after the end (--drain)"] if count else []


def _head(state: RunState) -> dict[str, Any]:
    options = state.options
    return {
        "run_id": state.folder.run_id,
        "target": options.target.name,
        "crowd": options.crowd.name,
        "model": options.target.model or (state.facts.model if state.facts else None),
        "prompts": prompts_row(options.crowd, state.vocabulary, state.measured.new_text),
    }
