"""Taking up a run that was interrupted, killed, or ended by a full disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headroom_bench import __version__
from headroom_bench.crowd.script import Prompts
from headroom_bench.errors import UserError
from headroom_bench.experiments.earlier import (
    Earlier,
    Resumption,
    first_talks,
    unfinished_talks,
)
from headroom_bench.experiments.harness import Harness, harness_told
from headroom_bench.experiments.journal_watch import EarlierJournal
from headroom_bench.experiments.run_options import RunOptions, options_of
from headroom_bench.live.probe import TargetFacts
from headroom_bench.plain import from_plain
from headroom_bench.results.reading import read_manifest
from headroom_bench.results.resumption import (
    REQUESTS,
    all_set_aside,
    latest_s,
    mend,
    set_aside,
    without_twins,
)
from headroom_bench.results.run_folder import RunFolder
from headroom_bench.units import MOST_REPEATS, MOST_S


def take_up(
    path: Path,
    headers: Mapping[str, str],
    prompts_of: Callable[[str], Prompts],
    source: str | None,
) -> tuple[RunOptions, RunFolder, Earlier]:
    """What `run` needs to go on with the run in `path`: with its seed and settings, from where its
    clock stood, each person in the first conversation that had not ended.

    `headers` are values that stand in no manifest; `source` is the target that was named with it,
    which must be the run's own. The folder is mended: a torn last line is cut off, records of
    unfinished conversations move to `requests.unfinished.jsonl`, for these are held again.

    Raises:
        UserError: no run, one that is complete or still goes on, or one against another target.
    """
    _check_files(path)
    manifest = read_manifest(path)
    options = _options(path, manifest, headers, prompts_of, source)
    folder = RunFolder(path, str(manifest.get("run_id", path.name)).rpartition("/")[0])
    folder.lock()
    try:
        return options, folder, _what_is_there(folder, options, manifest)
    finally:
        folder.unlock()


def repeats_in(
    path: Path,
    headers: Mapping[str, str],
    prompts_of: Callable[[str], Prompts],
    source: str | None,
) -> tuple[RunOptions, RunFolder, int] | None:
    """The options, folder and number of an unfinished series of repeats; None for a single run.

    Raises:
        UserError: as `take_up` does.
    """
    _check_files(path)
    manifest = read_manifest(path)
    times = manifest.get("repeats")
    if times is None:
        return None
    options = _options(path, manifest, headers, prompts_of, source)
    where = f"{path / 'manifest.json'}: repeats"
    many = from_plain(int, times, where)
    if not 1 <= many <= MOST_REPEATS:
        raise UserError(f"{where}: {many} is not what a run writes there")
    return options, RunFolder(path), many


def _check_files(path: Path) -> None:
    """Raises `UserError` for what no run writes: a pipe would keep us waiting for ever."""
    for each in path.iterdir() if path.is_dir() else ():
        if not each.is_file() and (each.suffix or not each.is_dir()):
            raise UserError(f"{each} is no file, which a run would have written there")


def _options(
    path: Path,
    manifest: dict[str, Any],
    headers: Mapping[str, str],
    prompts_of: Callable[[str], Prompts],
    source: str | None,
) -> RunOptions:
    if manifest.get("world") == "predicted":
        raise UserError(f"{path} was simulated; simulate it again")
    if manifest.get("status") == "complete":
        raise UserError(f"{path} is complete: there is nothing to resume")
    config = manifest.get("config")
    if not isinstance(config, dict):
        raise UserError(f"{path / 'manifest.json'} holds no config")
    options = options_of(config, path, headers, prompts_of)
    if source is not None and source != options.target.source:
        raise UserError(f"{path} is a run against {options.target.source}, not {source}")
    return options


def _what_is_there(folder: RunFolder, options: RunOptions, manifest: dict[str, Any]) -> Earlier:
    found = mend(folder)
    records = without_twins(folder, found)
    facts, where = manifest.get("target_facts"), folder.path / "manifest.json"
    harness = manifest.get("harness")
    told = manifest.get("resumptions", [])
    resumptions = from_plain(list[Resumption], told, f"{where}: resumptions")
    former_s = resumptions[-1].clock_s if resumptions else 0.0
    ended_s = max(latest_s(records), former_s)
    if ended_s > MOST_S * options.time_scale:
        raise UserError(
            f"{folder.path}: its last record ends at {ended_s:g} s: no run lasts so long"
        )
    earlier = Earlier(
        records,
        journal=EarlierJournal.of(folder.path),
        ended_s=ended_s,
        harness=Harness() if harness is None else harness_told(harness, f"{where}: harness"),
        facts=None if facts is None else from_plain(TargetFacts, facts, f"{where}: target_facts"),
    )
    left = earlier.left(options)
    try:
        unfinished = unfinished_talks(records, options.crowd) if left else set()
        first = first_talks(records, unfinished)
    except UserError as why:
        raise UserError(f"{folder.path / REQUESTS}: {why}; it was changed") from None
    kept = set_aside(folder, records, unfinished)
    aside = all_set_aside(folder, kept)
    status = manifest.get("status")
    resumption = Resumption(
        at=datetime.now(UTC).isoformat(),
        status_before=status if isinstance(status, str) else None,
        clock_s=earlier.ended_s,
        kept_requests=len(kept),
        held_again=sorted(talk for _, _, talk in unfinished),
        headroom_bench=__version__,
        twice=len(found) - len(records),
    )
    return replace(
        earlier,
        records=kept,
        aside=aside,
        first_talks=first,
        resumptions=[*resumptions, resumption] if left or resumption.twice else resumptions,
    )
