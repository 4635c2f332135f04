"""`headroom-bench redline`: the largest crowd that still passes, and what-if grids of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli import resolve
from headroom_bench.cli.consoles import notes, page, progress_on, say_on
from headroom_bench.cli.files import check_writable, write_text
from headroom_bench.cli.given import refuse
from headroom_bench.cli.groups import grouped
from headroom_bench.errors import EXIT_INTERRUPTED, UserError, unknown_name
from headroom_bench.units import MOST_PEOPLE, MOST_REPEATS, counted, parse_duration_s, people

if TYPE_CHECKING:
    from headroom_bench.crowd.crowd import Crowd
    from headroom_bench.experiments.redline import RedlineOptions
    from headroom_bench.experiments.redline_trials import Trial

_DEFAULT_CROWD = "household"
_LIVE_DURATION, _LIVE_WARMUP = "5m", "1m"
_LIVE_ONLY = {"time_scale", "out", "api_key_env"}
"""What says how a real server is asked, and where its runs go."""
_STDOUT = Path("-")


@grouped
def redline(
    *,
    context: typer.Context,
    target: flags.TargetName = "mock",
    crowd: flags.CrowdName = None,
    persona: flags.Personas = None,
    without: Annotated[
        list[str] | None,
        typer.Option("--without", help="Leave a persona out of the crowd.", metavar="NAME"),
    ] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", help="Of one probe; default 30m, live 5m.")
    ] = None,
    warmup: Annotated[
        str | None, typer.Option("--warmup", help="Left out of it; default 5m, live 1m.")
    ] = None,
    most: Annotated[
        int, typer.Option("--most", help="Most people to look at.", min=1, max=MOST_PEOPLE)
    ] = 4096,
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats",
            help="Seeds that each end rests on; default 2, live 1.",
            min=1,
            max=MOST_REPEATS,
        ),
    ] = None,
    seed: flags.Seed = None,
    vs: Annotated[
        list[str] | None,
        typer.Option(
            "--vs",
            help="Beside another box, or what else differs; may be repeated.",
            metavar="NAME|KEY=VALUE,…",
        ),
    ] = None,
    over: Annotated[
        list[str] | None,
        typer.Option(
            "--over",
            help="A grid: a redline for every value; may be repeated.",
            metavar="KEY=V1,V2,…",
        ),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write the grid's rows here (- for stdout).", metavar="FILE"),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Ask the real server: every probe is a run.")
    ] = False,
    time_scale: Annotated[
        float, typer.Option("--time-scale", help="--live on the mock only: so many times faster.")
    ] = 1.0,
    out: flags.Out = Path("results"),
    prompts: flags.PromptsOption = "distinct",
    thinking: flags.Thinking = False,
    model: flags.Model = None,
    dialect: flags.Dialect = None,
    api_key_env: flags.ApiKeyEnv = None,
    box: flags.BoxFlags,
    as_json: flags.Json = False,
) -> int:
    """Find the largest crowd that TARGET serves well; simulated, or --live."""
    from headroom_bench.experiments import redline as search

    if live:
        refuse(context, {"vs", "over"}, "--live asks one server")
    else:
        refuse(context, _LIVE_ONLY, "without --live no server is asked")
    if over:
        refuse(context, {"vs"}, "with --over every value stands beside the others")
    else:
        refuse(context, {"csv"}, "without --over there are no rows of a grid")
    if csv == _STDOUT:
        refuse(context, {"as_json"}, "--csv - has stdout to itself")
    if not (crowd or persona):
        crowd = _DEFAULT_CROWD
    who = resolve.crowd_named(flags.CrowdFlags(crowd=crowd, persona=persona, seed=seed))
    options = search.RedlineOptions(
        target=resolve.target_of(
            target, box, model=model, dialect=dialect, api_key_env=api_key_env
        ),
        crowd=_without(who, without or []).with_prompts(resolve.prompts_of(prompts)),
        duration_s=parse_duration_s(duration or (_LIVE_DURATION if live else "30m"), "--duration"),
        warmup_s=parse_duration_s(warmup or (_LIVE_WARMUP if live else "5m"), "--warmup"),
        most=most,
        repeats=repeats or (1 if live else search.DEFAULT_REPEATS),
        most_repeats=(repeats or 1) if live else search.MOST_REPEATS,
        lengthen=not live,
        thinking=thinking,
    )
    if options.warmup_s >= options.duration_s:
        usual = "" if warmup else ", which it is where --warmup is not given,"
        raise UserError(
            f"a warm-up of {options.warmup_s:g} s{usual} leaves nothing of a probe of "
            f"{options.duration_s:g} s (--duration)"
        )
    if over:
        return _grid(options, over, csv, as_json)
    if live:
        document = _live(options, out, time_scale, resolve.prompts_source(prompts))
    else:
        document = _simulated(options, vs or [])
    _show(document, as_json)
    return 0


def _without(crowd: Crowd, names: list[str]) -> Crowd:
    """The crowd without some personas. Raises `UserError`: it has no such, or has no others."""
    known = list(crowd.personas())
    for name in names:
        if name not in known:
            raise unknown_name(f"persona of crowd {crowd.name}", name, known)
    groups = tuple(group for group in crowd.groups if group.persona.name not in names)
    if not groups:
        raise UserError("--without leaves nobody")
    return dataclasses.replace(crowd, groups=groups)


def _simulated(options: RedlineOptions, vs: list[str]) -> dict[str, Any]:
    from headroom_bench.experiments.differences import differences
    from headroom_bench.experiments.redline import redline as find
    from headroom_bench.experiments.whatif import AXES, changed, versus

    for text in vs:  # a wrong name is told before the first search, not after it
        changed(options.target, differences(text, AXES))
    with _Progress() as progress:
        try:
            document = find(options, progress.on_trial)
            if vs:
                document["vs"] = list(versus(options, vs, progress.on_trial))
        except KeyboardInterrupt:
            raise _StoppedError("interrupted; nothing is kept of a simulated search") from None
    return document


def _live(
    options: RedlineOptions, out: Path, time_scale: float, prompts_from: str
) -> dict[str, Any]:
    from headroom_bench.experiments.redline_live import live_redline
    from headroom_bench.experiments.run_options import RunOptions

    base = RunOptions(
        target=options.target,
        crowd=options.crowd,
        out=out,
        duration_s=options.duration_s,
        thinking=options.thinking,
        prompts_from=prompts_from,
        time_scale=resolve.time_scale_of(options.target, time_scale),
    )
    console = notes()
    say = say_on(console)
    return live_redline(
        options, base, say, progress_on(console), lambda trial, word: say(_told(trial, word))
    )


def _grid(options: RedlineOptions, over: list[str], csv: Path | None, as_json: bool) -> int:
    from headroom_bench.experiments.whatif import as_csv, axes_of, grid
    from headroom_bench.report.redline_page import one_line, print_grid

    rows: list[dict[str, Any]] = []
    code = 0
    file = None if csv == _STDOUT else csv
    with _Progress() as progress:
        number, found = grid(options, axes_of(over), progress.on_trial)
        if file is not None:
            check_writable(file, "--csv")
        try:
            for row in found:
                rows.append(row)
                progress.say(f"{len(rows)} of {number}: {one_line(row)}")
        except KeyboardInterrupt:
            progress.say(f"interrupted: {len(rows)} of {number} rows follow")
            code = EXIT_INTERRUPTED
    if as_json:
        typer.echo(json.dumps(rows, indent=1))
    elif csv == _STDOUT:
        typer.echo(as_csv(rows), nl=False)
    else:
        print_grid(rows, page())
    if file is not None:
        write_text(file, "--csv", as_csv(rows))
    return code


def _show(document: dict[str, Any], as_json: bool) -> None:
    from headroom_bench.report.redline_page import print_redline

    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return
    console = page()
    print_redline(document, console)
    for other in document.get("vs", []):
        console.print()
        print_redline(other, console)


def _told(trial: Trial, word: str) -> str:
    asked = counted(trial.requests, "request")
    return f"{people(trial.people)}: {word} ({asked} in {trial.took_s:.2f} s)"


class _StoppedError(UserError):
    exit_code = EXIT_INTERRUPTED


class _Progress:
    """A line that changes in place on a terminal; elsewhere only what is `said`."""

    def __init__(self) -> None:
        self._notes = notes()
        self.say = say_on(self._notes)
        self._status = self._notes.status("looking")

    def __enter__(self) -> _Progress:
        if self._notes.is_terminal:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def on_trial(self, trial: Trial, word: str) -> None:
        self._status.update(_told(trial, word))
