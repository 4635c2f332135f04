"""The main job: a crowd against a live target, its prediction beside it, all of it on disk."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headroom_bench.errors import TargetError, UserError
from headroom_bench.experiments.beside import why_not
from headroom_bench.experiments.conclude import RunOutcome, conclude
from headroom_bench.experiments.deployment import check_names
from headroom_bench.experiments.earlier import Earlier
from headroom_bench.experiments.get_to_know import get_to_know, model_asked
from headroom_bench.experiments.harness import slip_complaint
from headroom_bench.experiments.interrupt import Interrupt
from headroom_bench.experiments.journal_watch import JournalWatch
from headroom_bench.experiments.measuring import MeasurePlan, Writing, measure
from headroom_bench.experiments.prediction import predict_crowd
from headroom_bench.experiments.run_options import RunOptions
from headroom_bench.experiments.run_state import (
    RunState,
    Say,
    deployment_for,
    manifest,
    naming,
    one_way_s,
    round_trip_s,
    server_told,
)
from headroom_bench.experiments.serving import check_access, serving
from headroom_bench.live.access import Access, access_to
from headroom_bench.live.clock import RunClock
from headroom_bench.live.lifecycle import ManagedServer
from headroom_bench.live.probe import Control
from headroom_bench.redaction import redact, scrub_file
from headroom_bench.report.progress import Goal, Progress
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.results.statistics import spread, usable
from headroom_bench.target import as_mock_names_it
from headroom_bench.telemetry.exporter import COMPARED, RunExporter

if TYPE_CHECKING:
    from headroom_bench.roofline.deployment import Deployment


def run(
    options: RunOptions,
    say: Say,
    progress: Callable[[Goal, Callable[[], float]], Progress],
    folder: RunFolder | None = None,
    earlier: Earlier | None = None,
) -> RunOutcome:
    """Runs it, from making the folder to the summary.

    `folder` is one that is there already, `earlier` what a former part of the run left in it.

    Raises:
        UserError: something in the options is wrong (names too), or results cannot be written.
        TargetError: the target cannot be reached. What there is stays on disk as `failed`.
    """
    interrupt = Interrupt()
    interrupt.install()
    try:
        options = replace(options, target=as_mock_names_it(options.target))
        target, crowd = options.target, options.crowd
        check_access(target, options.timeouts)
        if earlier is None:  # what stands on disk is concluded whatever it is called
            check_names(target)
        folder = folder or RunFolder.create(options.out, target.name, crowd.name, datetime.now())
        folder.lock()
        clock = RunClock(options.time_scale)
        state = RunState(
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


def _run(state: RunState) -> RunOutcome:
    folder = state.folder
    earlier = state.earlier
    for record in earlier.records:
        state.measured.take_over(record)
    state.measured.ended_s = earlier.ended_s
    state.measured.harness = earlier.harness
    state.facts = earlier.facts  # until it is asked anew
    folder.write_manifest(manifest(state, "running"))
    try:
        if earlier.left(state.options):
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(_serve_and_measure(state))
        return conclude(state)
    except BaseException as why:
        try:
            folder.write_manifest(manifest(state, "failed", str(why)))
        except UserError as unwritten:  # the disk is full, most likely: `why` says so
            if folder.path.exists():  # else `why` says that too
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


async def _serve_and_measure(state: RunState) -> None:
    """The live part. Ends quietly when it was interrupted."""
    task = asyncio.current_task()
    assert task is not None

    def abandon_set_up() -> None:
        task.cancel()

    state.interrupt.on_first(abandon_set_up)
    state.interrupt.on_second = lambda: _give_up(state, None)
    options = state.options
    try:
        async with serving(
            options.target,
            state.folder.path,
            options.time_scale,
            lambda server: setattr(state.interrupt, "on_second", lambda: _give_up(state, server)),
        ) as server:
            access = access_to(options.target, server.url, options.timeouts, os.environ)
            if options.target.proxy is not None and access.proxy is None:
                state.say(f"no proxy on the way to {access.origin.host}: it is not used for it")
            writing = await get_to_know(state, access)
            state.journal = JournalWatch.open(
                options.journal or options.target.journal,
                server.log,
                state.warn,
                state.earlier.journal,
            )
            exporter = _exporter(state)
            try:
                await _measured(state, access, writing, exporter)
                if options.target.embedded_mock:
                    await _ask_for_slip(state, access)
            finally:
                if exporter is not None:
                    exporter.stop()
                if state.journal is not None:
                    expected = sum(1 for r in state.measured.records if r.ok)
                    await asyncio.to_thread(state.journal.close, expected)
    except asyncio.CancelledError:
        if not state.interrupt.happened:
            raise


def _give_up(state: RunState, server: ManagedServer | None) -> None:
    """Ctrl-C for the second time, in the signal handler: nothing is waited for. `server`: one that
    the run started."""
    if server is not None:
        server.kill()
    state.folder.write_manifest(manifest(state, "interrupted"))
    state.say(f"ended at once; to go on: headroom-bench run --resume {state.folder.whole}")


async def _ask_for_slip(state: RunState, access: Access) -> None:
    """How much later than its own times the bundled mock was: no fault of the box's."""
    control = Control(access)
    try:
        told = (await control.get("/truth?id=none")).json()  # the one route of every dialect
    except (TargetError, ValueError) as why:
        state.warn(f"the mock server does not say how late it was: {why}")
        return
    finally:
        await control.close()
    slip_s = float(told["mock"]["slip_s"])
    complaint = slip_complaint(slip_s, state.measured.records)
    if complaint is not None:
        state.warn(complaint)


async def _measured(
    state: RunState,
    access: Access,
    writing: Writing,
    exporter: RunExporter | None,
) -> None:
    options, facts = state.options, state.facts
    assert facts is not None
    goal = Goal(options.duration_s, options.max_requests)
    plan = MeasurePlan(
        crowd=options.crowd,
        access=access,
        body=options.target.body,
        writing=writing,
        run_id=state.folder.run_id,
        target=options.target.name,
        model=model_asked(state),
        dialect=facts.dialect,
        salt=secrets.token_hex(8),
        duration_s=options.duration_s,
        max_requests=options.max_requests,
        max_rps=options.max_rps,
        force_lengths=options.force_lengths,
        round_trip_s=round_trip_s(state),
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


def _exporter(state: RunState) -> RunExporter | None:
    options = state.options
    if options.prometheus is None:
        return None
    state.forecast = _forecast(state)
    exporter = RunExporter(options.target.name, state.forecast)
    host, port = options.prometheus
    state.say(f"metrics on http://{host}:{exporter.start(host, port)}/metrics")
    return exporter


def _forecast(state: RunState) -> dict[str, float]:
    """Predicted medians before the run, with drawn lengths: what live ratios are held against."""
    try:
        return _forecast_by(state, deployment_for(state))
    except Exception as why:  # noqa: BLE001 - a prediction never costs a measurement
        state.say(f"no live ratios: no prediction{why_not(why)}")
        return {}


def _forecast_by(state: RunState, deployment: Deployment) -> dict[str, float]:
    options = state.options
    outcome, _ = predict_crowd(
        options.crowd,
        deployment,
        naming(state),
        duration_s=options.duration_s,
        max_requests=options.max_requests,
        max_rps=options.max_rps,
        server=server_told(state, deployment),
        one_way_s=one_way_s(state),
    )
    medians = {
        name: spread(getattr(record, column) for record in usable(outcome.records))["p50"]
        for name, column in COMPARED.items()
    }
    return {name: value for name, value in medians.items() if value}
