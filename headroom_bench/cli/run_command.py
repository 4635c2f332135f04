"""`headroom-bench run`: the main job."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom_bench.cli import consoles, resolve
from headroom_bench.cli import options as flags
from headroom_bench.cli.consoles import progress_on, say_on
from headroom_bench.cli.given import given, refuse
from headroom_bench.cli.groups import grouped
from headroom_bench.cli.show_config import print_config
from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_TARGET
from headroom_bench.target import load_target
from headroom_bench.units import MOST_REPEATS, parse_duration_s

if TYPE_CHECKING:
    from rich.console import Console

    from headroom_bench.experiments.conclude import RunOutcome
    from headroom_bench.experiments.earlier import Earlier
    from headroom_bench.experiments.run_options import RunOptions
    from headroom_bench.results.run_folder import RunFolder


@grouped
def run(
    *,
    context: typer.Context,
    target: flags.TargetName = "mock",
    who: flags.CrowdFlags,
    length: flags.LengthFlags,
    out: flags.Out = Path("results"),
    journal: Annotated[
        str | None,
        typer.Option("--journal", help="The server's log file, read along.", metavar="SOURCE"),
    ] = None,
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", help="Serve the run's metrics.", metavar="[HOST:]PORT"),
    ] = None,
    max_rps: Annotated[
        float | None, typer.Option("--max-rps", help="At most so many request starts a second.")
    ] = None,
    force_lengths: Annotated[
        bool, typer.Option("--force-lengths", help="Make the server write every answer in full.")
    ] = False,
    prompts: flags.PromptsOption = "distinct",
    thinking: flags.Thinking = False,
    time_scale: Annotated[
        float, typer.Option("--time-scale", help="Mock only: so many times faster than life.")
    ] = 1.0,
    connect_timeout: flags.ConnectTimeout = "10s",
    headers_timeout: flags.HeadersTimeout = None,
    first_token_timeout: flags.FirstTokenTimeout = "30m",
    silence_timeout: flags.SilenceTimeout = "5m",
    request_timeout: flags.RequestTimeout = "2h",
    drain: flags.Drain = "2m",
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat", help="So many times, with new text each time.", min=1, max=MOST_REPEATS
        ),
    ] = 1,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Go on with an unfinished run, as it was.", metavar="DIR"),
    ] = None,
    model: flags.Model = None,
    dialect: flags.Dialect = None,
    api_key_env: flags.ApiKeyEnv = None,
    access: flags.AccessFlags,
    box: flags.BoxFlags,
    show_config: Annotated[
        bool,
        typer.Option("--show-config", help="Only show every setting and where it came from."),
    ] = False,
    as_json: flags.Json = False,
) -> int:
    """Let a crowd ask TARGET in real time, its prediction beside it; results go to disk.

    Without arguments: the demo crowd against the bundled mock server, half a minute.
    """
    from headroom_bench.experiments.run_options import RunOptions
    from headroom_bench.experiments.serving import check_url

    notes = consoles.notes()
    if resume is not None:
        return _show(_resumed(context, resume, target, access.header, notes), notes, as_json)
    chosen = resolve.target_of(
        target, box, model=model, dialect=dialect, api_key_env=api_key_env, access=access
    )
    duration_s, max_requests, warmup_s = resolve.length_of(length)
    options = RunOptions(
        target=chosen,
        crowd=resolve.crowd_named(who).with_prompts(resolve.prompts_of(prompts)),
        out=out,
        duration_s=duration_s,
        max_requests=max_requests,
        warmup_s=warmup_s,
        journal=journal,
        prometheus=resolve.address_of(prometheus) if prometheus else None,
        max_rps=None if max_rps is None else resolve.positive(max_rps, "--max-rps"),
        force_lengths=force_lengths,
        thinking=thinking,
        time_scale=resolve.time_scale_of(chosen, time_scale),
        timeouts=resolve.timeouts_of(
            connect_timeout, headers_timeout, first_token_timeout, silence_timeout, request_timeout
        ),
        drain_s=parse_duration_s(drain, "--drain"),
        prompts_from=resolve.prompts_source(prompts),
    )
    if show_config:
        check_url(chosen)
        print_config(context, options, as_json)
        return 0
    return _show(_begun(options, repeat, notes), notes, as_json)


def _begun(options: RunOptions, times: int, notes: Console) -> RunOutcome:
    from headroom_bench.experiments.repeat import repeat as repeat_experiment
    from headroom_bench.experiments.run import run as run_experiment

    if times == 1:
        return run_experiment(options, say_on(notes), progress_on(notes))
    return repeat_experiment(options, times, say_on(notes), progress_on(notes))


_WITH_RESUME = {"resume", "target", "header", "as_json"}
"""What may stand beside `--resume`: the run's own settings hold for the rest."""


def _resumed(
    context: typer.Context, path: Path, target: str, headers: list[str] | None, notes: Console
) -> RunOutcome:
    """Goes on with the run in `path`, which may be one of repeats.

    Raises:
        UserError: settings beside it, or what `take_up` finds wrong.
    """
    from headroom_bench.experiments.repeat import repeat as repeat_experiment
    from headroom_bench.experiments.resume import repeats_in, take_up
    from headroom_bench.experiments.run import run as run_experiment

    refuse(context, context.params.keys() - _WITH_RESUME, "--resume keeps the run's own settings")
    source = load_target(target).source if "target" in given(context) else None
    anew = resolve.headers_of(headers)

    def up(inside: Path) -> tuple[RunOptions, RunFolder, Earlier]:
        return take_up(inside, anew, resolve.prompts_of, source)

    repeats = repeats_in(path, anew, resolve.prompts_of, source)
    if repeats is None:
        options, folder, earlier = up(path)
        return run_experiment(options, say_on(notes), progress_on(notes), folder, earlier)
    options, folder, times = repeats
    return repeat_experiment(options, times, say_on(notes), progress_on(notes), (folder, up))


def _show(outcome: RunOutcome, notes: Console, as_json: bool) -> int:
    from rich.console import Console

    from headroom_bench.report.terminal import print_summary

    if as_json:
        typer.echo(json.dumps(outcome.summary, indent=1))
    else:
        print_summary(outcome.summary, Console())
    say = say_on(notes)
    say(f"results in {outcome.folder}")
    if outcome.exit_code == EXIT_TARGET:
        say("headroom-bench: no request succeeded")
    if outcome.exit_code == EXIT_INTERRUPTED:
        resume = f"to go on: headroom-bench run --resume {shlex.quote(str(outcome.folder))}"
        more = resume if outcome.left else "nothing was left to ask"
        say(f"headroom-bench: interrupted; what was measured is saved; {more}")
    return outcome.exit_code
