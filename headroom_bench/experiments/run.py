"""The main job: a crowd against a live target, its prediction beside it, all of it on disk."""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headroom_bench import __version__
from headroom_bench.crowd.texts import Vocabulary
from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_TARGET, UserError
from headroom_bench.experiments.bounds import faster_than_memory
from headroom_bench.experiments.deployment import Probed, deployment_of, missing_for_prediction
from headroom_bench.experiments.earlier import Earlier
from headroom_bench.experiments.harness import harness_complaints, harness_figures
from headroom_bench.experiments.interrupt import Interrupt
from headroom_bench.experiments.journal_watch import JournalWatch
from headroom_bench.experiments.measuring import Measured, MeasurePlan, Writing, measure
from headroom_bench.experiments.prediction import explain, measured_lengths, predict_crowd
from headroom_bench.experiments.prompt_report import prompt_notes, prompts_row
from headroom_bench.experiments.run_options import RunOptions, as_config
from headroom_bench.experiments.serving import serving
from headroom_bench.judge.verdict import Load
from headroom_bench.live.access import Access, access_to
from headroom_bench.live.clock import RunClock, monotonic_ns
from headroom_bench.live.dialect import can_force_length
from headroom_bench.live.probe import (
    Control,
    TargetFacts,
    probe,
    too_small,
)
from headroom_bench.live.tokenizer import tokenizer_of
from headroom_bench.live.vocabulary import template_of, vocabulary_of
from headroom_bench.records import RequestRecord
from headroom_bench.redaction import redact, redacted, scrub_file
from headroom_bench.report.progress import Progress
from headroom_bench.report.summary import Window, WorldOutcome, build_summary
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.results.statistics import spread, usable
from headroom_bench.simulate.world import Naming
from headroom_bench.telemetry.exporter import COMPARED, RunExporter

Say = Callable[[str], None]


@dataclass(slots=True)
class RunOutcome:
    """What came of it."""

    folder: Path
    summary: dict[str, Any]
    exit_code: int


@dataclass(slots=True)
class _State:
    """What is known so far, kept so that an end at any moment can still be written down."""

    options: RunOptions
    folder: RunFolder
    say: Say
    progress: Callable[[str, Callable[[], float]], Progress]
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


def run(
    options: RunOptions,
    say: Say,
    progress: Callable[[str, Callable[[], float]], Progress],
    folder: RunFolder | None = None,
    earlier: Earlier | None = None,
) -> RunOutcome:
    """Runs it, from making the folder to the summary.

    `folder` is one that is there already, `earlier` what a former part of the run left in it.

    Raises:
        UserError: something in the options is wrong, or results cannot be written.
        TargetError: the target cannot be reached. What there is stays on disk as `failed`.
    """
    interrupt = Interrupt()
    interrupt.install()
    try:
        target, crowd = options.target, options.crowd
        folder = folder or RunFolder.create(options.out, target.name, crowd.name, datetime.now())
        folder.lock()
        clock = RunClock(options.time_scale)
        state = _State(
            options,
            folder,
            lambda text: say(redact(text)),
            progress,
            interrupt,
            clock,
            earlier or Earlier(),
        )
        return _run(state)
    finally:
        if folder is not None:
            folder.unlock()
        interrupt.restore()


def _run(state: _State) -> RunOutcome:
    folder = state.folder
    state.measured.records += state.earlier.records
    folder.write_manifest(_manifest(state, "running"))
    try:
        if state.earlier.left(state.options):
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve_and_measure(state))
        return _conclude(state)
    except BaseException as why:
        try:
            folder.write_manifest(_manifest(state, "failed", str(why)))
        except UserError as unwritten:  # the disk is full, most likely: `why` says so
            state.say(str(unwritten))
        raise
    finally:
        _scrub_log(folder.path / "server.log", state.say)


def _scrub_log(log: Path, say: Say) -> None:
    """Takes our keys out of what a server that we started wrote."""
    try:
        scrub_file(log)
    except OSError as why:
        say(f"{log} cannot be searched for keys: {why.strerror}")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32" or sys.implementation.name != "cpython":
        return None
    import uvloop

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def _serve_and_measure(state: _State) -> None:
    """The live part. Ends quietly when it was interrupted."""
    task = asyncio.current_task()
    assert task is not None

    def abandon_set_up() -> None:
        task.cancel()

    state.interrupt.on_first(abandon_set_up)
    options = state.options
    try:
        async with serving(
            options.target,
            state.folder.path,
            options.time_scale,
            lambda server: setattr(state.interrupt, "on_second", server.kill),
        ) as server:
            access = access_to(options.target, server.url, options.timeouts, os.environ)
            if options.target.proxy is not None and access.proxy is None:
                state.say(f"no proxy on the way to {access.origin.host}: it is not used for it")
            writing = await _get_to_know(state, access)
            state.journal = JournalWatch.open(
                options.journal or options.target.journal,
                server.log,
                state.warn,
                state.earlier.journal,
            )
            exporter = _exporter(state)
            try:
                await _measured(state, access, writing, exporter)
            finally:
                if exporter is not None:
                    exporter.stop()
                if state.journal is not None:
                    expected = sum(1 for r in state.measured.records if r.ok)
                    await asyncio.to_thread(state.journal.close, expected)
    except asyncio.CancelledError:
        if not state.interrupt.happened:
            raise


async def _measured(
    state: _State,
    access: Access,
    writing: Writing,
    exporter: RunExporter | None,
) -> None:
    options, facts = state.options, state.facts
    assert facts is not None
    goal = f"{options.duration_s:g} s" if options.duration_s else f"{options.max_requests} requests"
    plan = MeasurePlan(
        crowd=options.crowd,
        access=access,
        body=options.target.body,
        writing=writing,
        run_id=state.folder.run_id,
        target=options.target.name,
        model=options.target.model or facts.model or "default",
        dialect=facts.dialect,
        salt=secrets.token_hex(8),
        duration_s=options.duration_s,
        max_requests=options.max_requests,
        max_rps=options.max_rps,
        force_lengths=options.force_lengths,
        round_trip_s=2 * _one_way_s(state) or None,
        begin_s=state.earlier.ended_s,
        first_talks=state.earlier.first_talks,
        drain_s=options.drain_s,
    )
    observers = (exporter,) if exporter is not None else ()
    with state.progress(goal, state.clock.now) as progress:
        await measure(
            plan,
            state.clock,
            state.folder,
            state.measured,
            progress,
            observers,
            state.interrupt.on_first,
            state.say,
        )


async def _get_to_know(state: _State, access: Access) -> Writing:
    """Probes the target, warns of what will go wrong; returns what to write prompts with."""
    options = state.options
    control = Control(access)
    try:
        state.facts = facts = await probe(
            control, options.target.dialect, lambda: monotonic_ns() / 1e6
        )
        model = options.target.model or facts.model
        tokenizer = await tokenizer_of(control, facts.dialect, model)
        state.vocabulary = await vocabulary_of(tokenizer, options.crowd.kinds())
        template = await template_of(tokenizer)
    finally:
        await control.close()
    state.earlier.check_model(facts.model)
    for note in facts.notes:
        state.warn(note)
    personas = options.crowd.personas().values()
    needs = [(p.name, p.typical_first_context, p.largest_context) for p in personas]
    for warning in too_small(facts, needs):
        state.warn(warning)
    forced = options.force_lengths or any(persona.force_length for persona in personas)
    if forced and not can_force_length(facts.dialect):
        state.warn(
            f"the {facts.dialect} dialect has no way to make a server write a given number of "
            "tokens: answers may be shorter than asked"
        )
    state.folder.write_manifest(_manifest(state, "running"))
    return Writing(state.vocabulary, template)


def _exporter(state: _State) -> RunExporter | None:
    options = state.options
    if options.prometheus is None:
        return None
    state.forecast = _forecast(state)
    exporter = RunExporter(options.target.name, state.forecast)
    host, port = options.prometheus
    state.say(f"metrics on http://{host}:{exporter.start(host, port)}/metrics")
    return exporter


def _forecast(state: _State) -> dict[str, float]:
    """Predicted medians before the run, with drawn lengths: what live ratios are held against."""
    deployment = _deployment(state)
    if deployment is None:
        return {}
    options = state.options
    outcome, _ = predict_crowd(
        options.crowd,
        deployment,
        _naming(state),
        duration_s=options.duration_s,
        max_requests=options.max_requests,
        one_way_s=_one_way_s(state),
    )
    medians = {
        name: spread(getattr(record, column) for record in usable(outcome.records))["p50"]
        for name, column in COMPARED.items()
    }
    return {name: value for name, value in medians.items() if value}


# --- after the run ------------------------------------------------------------------------------


def _conclude(state: _State) -> RunOutcome:
    """Prediction, journal join, summary: everything that needs no server."""
    folder, measured = state.folder, state.measured
    records = measured.records
    journal_load = Load()
    if state.journal is not None:
        journal_load = state.journal.conclude(records, folder, measured.ended_s, state.warn)
    deployment = _deployment(state) if records else None
    ours = WorldOutcome(records, journal_load, explain(records, journal_load, deployment))
    theirs = _predict_beside(state, deployment) if deployment is not None else None
    if state.facts is None and state.interrupt.happened:
        state.warnings.append("interrupted before anything was measured")
    elif deployment is None and records:
        state.warnings.append(_why_no_prediction(state))
    if deployment is not None:
        impossible = faster_than_memory(records, deployment.pricer())
        if impossible:
            state.warnings.append(
                f"{impossible} answers came faster than {deployment.hardware.name} can read "
                f"{deployment.model.name} at {deployment.quant.name} from its memory: is that what "
                "runs there, or does it draft?"
            )
    window = Window(state.options.warmup_s, measured.ended_s)
    harness = _harness(state)
    summary = build_summary(
        _head(state),
        ours,
        theirs,
        {name: persona.target for name, persona in state.options.crowd.personas().items()},
        window,
        harness,
        [
            *state.warnings,
            *_cut_off(state),
            *harness_complaints(harness, records),
            *_complaints(records),
            *prompt_notes(state.options.crowd, records),
        ],
    )
    status = "interrupted" if state.interrupt.happened else "complete"
    summary["status"] = status
    folder.write_json("summary.json", summary)
    folder.write_manifest(_manifest(state, status))
    return RunOutcome(folder.path, redacted(summary), _exit_code(state))


def _exit_code(state: _State) -> int:
    if state.interrupt.happened:
        return EXIT_INTERRUPTED
    records = state.measured.records
    return 0 if any(record.ok for record in records) else EXIT_TARGET


def _predict_beside(state: _State, deployment: Any) -> WorldOutcome:
    """The same people with the lengths that were really measured."""
    records = state.measured.records
    outcome, _ = predict_crowd(
        state.options.crowd,
        deployment,
        _naming(state),
        lengths=measured_lengths(records),
        one_way_s=_one_way_s(state),
    )
    state.folder.write_rows("predicted.jsonl", outcome.records)
    return outcome


def _one_way_s(state: _State) -> float:
    """Half of the measured round trip, in life time."""
    trip_ms = state.facts.round_trip_ms if state.facts else None
    return (trip_ms or 0.0) / 2e3 * state.options.time_scale


def _deployment(state: _State) -> Any:
    """The box for the prediction; None where the target does not say what it is."""
    target, facts = state.options.target, state.facts
    if facts is None or missing_for_prediction(target.server, target.model or facts.model):
        return None
    named = target if target.server.model or target.model else replace(target, model=facts.model)
    return deployment_of(named, Probed(facts.slots, facts.ctx_per_slot))


def _why_no_prediction(state: _State) -> str:
    target, facts = state.options.target, state.facts
    missing = missing_for_prediction(
        target.server, target.model or (facts.model if facts else None)
    )
    return f"no prediction: {', '.join(missing)} not given"


def _naming(state: _State) -> Naming:
    model = state.options.target.model or (state.facts.model if state.facts else None)
    return Naming(state.folder.run_id, state.options.target.name, model)


def _cut_off(state: _State) -> list[str]:
    count, limit_s = state.measured.cut_off, state.options.drain_s
    return [f"{count} answers were cut off {limit_s:g} s after the end (--drain)"] if count else []


def _complaints(records: list[RequestRecord]) -> list[str]:
    """What the reader has to know before believing the figures."""
    found = []
    estimated = sum(1 for r in records if r.ok and r.tokens_source == "events")
    if estimated:
        found.append(f"{estimated} answers came without usage: their tokens are counted by events")
    buffered = sum(1 for r in records if r.ok and r.buffered)
    if buffered:
        found.append(
            f"{buffered} answers came all at once: something on the way buffers the stream, and "
            "their TTFT is not a first token's"
        )
    if any(record.error_kind == "unauthorized" for record in records):
        found.append("the server wants an API key: name its variable with --api-key-env VAR")
    if records and not any(record.ok for record in records):
        found.append("no request succeeded")
    return found


def _harness(state: _State) -> dict[str, Any]:
    measured = state.measured
    return harness_figures(measured.harness, measured.records, state.options.time_scale)


def _head(state: _State) -> dict[str, Any]:
    options = state.options
    return {
        "run_id": state.folder.run_id,
        "target": options.target.name,
        "crowd": options.crowd.name,
        "model": options.target.model or (state.facts.model if state.facts else None),
        "prompts": prompts_row(options.crowd, state.vocabulary, state.measured.new_text),
    }


def _manifest(state: _State, status: str, error: str | None = None) -> dict[str, Any]:
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
        "resumptions": state.earlier.resumptions,
        "config": as_config(options),
        "target_facts": state.facts.as_row() if state.facts else None,
        "prediction_lengths": "as measured, by request_id",
        "harness": _harness(state),
    }
