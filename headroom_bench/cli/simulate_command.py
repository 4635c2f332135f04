"""`headroom-bench simulate`: a crowd on a target in virtual time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli import resolve
from headroom_bench.cli.groups import grouped
from headroom_bench.errors import EXIT_TARGET


@grouped
def simulate(
    *,
    target: flags.TargetName = "mock",
    who: flags.CrowdFlags,
    length: flags.LengthFlags,
    out: flags.Out = Path("results"),
    model: flags.Model = None,
    box: flags.BoxFlags,
    prompts: flags.PromptsOption = "distinct",
    thinking: flags.Thinking = False,
    as_json: flags.Json = False,
) -> int:
    """Run the same crowd against a virtual box in virtual time; same records and summary."""
    from rich.console import Console

    from headroom_bench.experiments.simulate import NotSavedError, SimulateOptions
    from headroom_bench.experiments.simulate import simulate as simulate_experiment
    from headroom_bench.report.terminal import print_summary

    duration_s, max_requests, warmup_s = resolve.length_of(length)
    options = SimulateOptions(
        target=resolve.target_of(target, box, model=model),
        crowd=resolve.crowd_named(who).with_prompts(resolve.prompts_of(prompts)),
        out=out,
        duration_s=duration_s,
        max_requests=max_requests,
        warmup_s=warmup_s,
        thinking=thinking,
    )

    def show(summary: dict[str, Any]) -> None:
        if as_json:
            typer.echo(json.dumps(summary, indent=1))
        else:
            print_summary(summary, Console())

    try:
        folder, summary = simulate_experiment(options)
    except NotSavedError as why:
        show(why.summary)
        raise
    show(summary)
    typer.echo(f"results in {folder}", err=True)
    nothing = summary["requests"] > 0 and summary["requests"] == summary["errors"]
    return EXIT_TARGET if nothing else 0
