"""`--repeat N`: the same run several times, each with new text, and what they come to together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from headroom_bench import __version__
from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_TARGET, UserError
from headroom_bench.experiments.conclude import RunOutcome
from headroom_bench.experiments.earlier import Earlier
from headroom_bench.experiments.run import run
from headroom_bench.experiments.run_options import RunOptions, as_config
from headroom_bench.experiments.serving import check_access
from headroom_bench.experiments.too_few import too_few
from headroom_bench.judge.limits import limits_of, time_by_bound_in
from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.redaction import redacted
from headroom_bench.report.progress import Goal, Progress
from headroom_bench.report.ratios import RATIOS
from headroom_bench.report.summary import Window, WorldOutcome, build_summary
from headroom_bench.results.pooling import Repeat, between, mean_over_windows, mean_totals, pooled
from headroom_bench.results.reading import read_json, read_manifest, read_requests
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.results.statistics import spread, steady, usable

Say = Callable[[str], None]
ShowProgress = Callable[[Goal, Callable[[], float]], Progress]
TakeUp = Callable[[Path], tuple[RunOptions, RunFolder, Earlier]]


def repeat(
    options: RunOptions,
    times: int,
    say: Say,
    progress: ShowProgress,
    taken_up: tuple[RunFolder, TakeUp] | None = None,
) -> RunOutcome:
    """Runs it `times` times into subfolders `repeat-1`, … and writes the pooled summary above them.

    Every repeat has the same seed, so the same lengths, and texts of its own. With `taken_up` (the
    folder and what takes up one repeat in it) those that are complete stay as they are.

    Raises:
        UserError: as `run` does; repeats that ended before stay on disk.
    """
    if taken_up is None:
        target, crowd = options.target, options.crowd
        check_access(target, options.timeouts)
        folder = RunFolder.create(options.out, target.name, crowd.name, datetime.now())
    else:
        folder = taken_up[0]
    folder.lock()
    code = 0
    try:
        _write_manifest(folder, options, times, "running")
        for number in range(1, times + 1):
            say(f"repeat {number} of {times}")
            code = _one(options, folder, number, say, progress, taken_up)
            if code == EXIT_INTERRUPTED:
                break
        summary = _summary(folder, options, times)
        folder.write_json("summary.json", summary)
        status = "interrupted" if code == EXIT_INTERRUPTED else "complete"
        _write_manifest(folder, options, times, status)
    except UserError as why:
        _write_manifest(folder, options, times, "failed", str(why))
        raise
    finally:
        folder.unlock()
    if code != EXIT_INTERRUPTED:
        failed = summary["errors"] and summary["errors"] == summary["requests"]
        code = EXIT_TARGET if failed else 0
    return RunOutcome(folder.path, redacted(summary), code)


def _one(
    options: RunOptions,
    folder: RunFolder,
    number: int,
    say: Say,
    progress: ShowProgress,
    taken_up: tuple[RunFolder, TakeUp] | None,
) -> int:
    path = folder.path / f"repeat-{number}"
    if taken_up is not None and (path / "manifest.json").exists():
        if read_manifest(path).get("status") == "complete":
            return 0
        own, inside, earlier = taken_up[1](path)
        return run(own, say, progress, inside, earlier).exit_code
    return run(options, say, progress, RunFolder.made(path, folder.run_id)).exit_code


def _summary(folder: RunFolder, options: RunOptions, times: int) -> dict[str, Any]:
    repeats = _read(folder, times)
    worlds = {}
    for world in ("measured", "predicted"):
        records, ended_s = pooled(repeats, world)
        sides = [r.summary if world == "measured" else r.summary.get("predicted") for r in repeats]
        known = [side for side in sides if side is not None]
        worlds[world] = _outcome(records, known), ended_s
    ours, ended_s = worlds["measured"]
    summary = build_summary(
        {
            "run_id": folder.run_id,
            "target": options.target.name,
            "crowd": options.crowd.name,
            **_told(repeats),
        },
        ours,
        worlds["predicted"][0] if worlds["predicted"][0].records else None,
        options.crowd.targets(),
        options.crowd.counts(),
        Window(0.0, ended_s),
        _harness([repeat.summary["harness"] for repeat in repeats]),
        [f"repeat {each.number}: {text}" for each in repeats for text in each.summary["warnings"]],
    )
    duration_s = _ended_by_s(options, times, repeats)
    summary["notes"] = too_few(options.crowd, summary, duration_s, options.warmup_s, times)
    summary["repeats"] = {
        "asked": times,
        "done": len(repeats),
        "folders": [f"repeat-{each.number}" for each in repeats],
        "between": {
            name: between(_figure(each, metric, percentile) for each in repeats)
            for name, (metric, percentile) in RATIOS.items()
        },
    }
    return summary


def _ended_by_s(options: RunOptions, times: int, repeats: Sequence[Repeat]) -> float | None:
    """The `--duration` that ended all repeats; None where something else ended one."""
    most = options.max_requests
    enough = most is not None and any(len(each.measured) >= most for each in repeats)
    whole = len(repeats) == times and all(r.summary["status"] == "complete" for r in repeats)
    return options.duration_s if whole and not enough else None


def _read(folder: RunFolder, times: int) -> list[Repeat]:
    found = []
    for number in range(1, times + 1):
        path = folder.path / f"repeat-{number}"
        if not (path / "summary.json").exists():
            continue
        beside = (path / "predicted.jsonl").exists()
        found.append(
            Repeat(
                number,
                read_json(path / "summary.json"),
                read_requests(path) if (path / "requests.jsonl").exists() else [],
                read_requests(path, "predicted") if beside else [],
            )
        )
    return found


def _figure(repeat: Repeat, metric: str, percentile: str) -> float | None:
    records = usable(steady(repeat.measured, *repeat.window_s))
    return spread(getattr(record, metric) for record in records)[percentile]


def _load(sides: Sequence[Mapping[str, Any]]) -> Load:
    """How busy the box was, where all repeats know it."""
    totals = [side["totals"] for side in sides]
    return Load(
        busy_share=mean_over_windows(totals, "busy_share"),
        all_slots_share=mean_over_windows(totals, "all_slots_share"),
        preempted=sum(row.get("preempted", 0) for row in totals),
        killed=sum(row.get("killed", 0) for row in totals),
        one_pool=any(row.get("one_pool") for row in totals),
        slots=next((row["slots"] for row in totals if row.get("slots") is not None), None),
    )


def _outcome(records: list[RequestRecord], sides: Sequence[Mapping[str, Any]]) -> WorldOutcome:
    """What all measured windows came to together, with limits from all of their records.

    What needs a box to tell (how its time was bound) is the mean over the repeats that know it.
    """
    load = _load(sides)
    names = [{row["limit"] for row in side["limits"]} for side in sides]
    rows = [
        {**row, "repeats": sum(row["limit"] in shown for shown in names)}
        for row in limits_of(records, load, _time_by_bound(sides))
    ]
    phases: dict[str, str] = next(
        (side["bound_by_phase"] for side in sides if side.get("bound_by_phase")), {}
    )
    whole = mean_totals([side["totals"] for side in sides])
    return WorldOutcome(records, load, rows, phases, totals=whole)


def _time_by_bound(sides: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Shares of the box's time, each repeat's by how long its window was."""
    found = [(time_by_bound_in(side["limits"]), side["totals"]["window_s"]) for side in sides]
    known = [(shares, length_s) for shares, length_s in found if shares]
    means = {}
    for bound in sorted({bound for shares, _ in known for bound in shares}):
        rows = [{bound: shares.get(bound, 0.0), "window_s": s} for shares, s in known]
        mean = mean_over_windows(rows, bound)
        if mean is not None:
            means[bound] = mean
    return means


def _told(repeats: Sequence[Repeat]) -> dict[str, Any]:
    """What is the same in all of them, or nearly so: the first that knows it tells."""
    known = [repeat.summary for repeat in repeats]
    return {
        name: next((row[name] for row in known if row.get(name) is not None), None)
        for name in ("model", "box", "prompts")
    }


def _harness(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The worst of each figure."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    worst: dict[str, Any] = {}
    for name in names:
        known = [row[name] for row in rows if row.get(name) is not None]
        smallest = name in ("headroom_times", "valid_share", "valid")
        if not known or isinstance(known[0], str):
            worst[name] = known[0] if known else None
        else:
            worst[name] = min(known) if smallest else max(known)
    return {"lag_p99_ms": None, "cpu_share": None, "valid": True, **worst}


def _write_manifest(
    folder: RunFolder, options: RunOptions, times: int, status: str, error: str | None = None
) -> None:
    folder.write_manifest(
        {
            "run_id": folder.run_id,
            "status": status,
            "error": error,
            "repeats": times,
            "headroom_bench": __version__,
            "seed": options.crowd.seed,
            "config": as_config(options),
        }
    )
