"""`headroom-bench run`: the main job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from headroom_bench.cli import options as flags


def run(
    target: flags.TargetName = "mock",
    crowd: flags.CrowdName = None,
    persona: flags.Personas = None,
    users: flags.Users = None,
    prompt_tokens: flags.PromptTokens = None,
    output_tokens: flags.OutputTokens = None,
    think: flags.Think = None,
    duration: flags.Duration = None,
    requests: flags.Requests = None,
    warmup: flags.Warmup = None,
    seed: flags.Seed = None,
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
    time_scale: Annotated[
        float, typer.Option("--time-scale", help="Mock only: so many times faster than life.")
    ] = 1.0,
    connect_timeout: flags.ConnectTimeout = "10s",
    headers_timeout: flags.HeadersTimeout = None,
    first_token_timeout: flags.FirstTokenTimeout = "30m",
    silence_timeout: flags.SilenceTimeout = "5m",
    request_timeout: flags.RequestTimeout = "2h",
    drain: flags.Drain = "2m",
    model: flags.Model = None,
    dialect: flags.Dialect = None,
    api_key_env: flags.ApiKeyEnv = None,
    header: flags.Header = None,
    extra_body: flags.ExtraBody = None,
    ca_file: flags.CaFile = None,
    insecure: flags.Insecure = False,
    proxy: flags.ProxyUrl = None,
    hardware: flags.Hardware = None,
    quant: flags.Quant = None,
    runtime: flags.Runtime = None,
    backend: flags.Backend = None,
    slots: flags.Slots = None,
    ctx: flags.Ctx = None,
    kv_k: flags.KvK = None,
    kv_v: flags.KvV = None,
    ubatch: flags.Ubatch = None,
    kv_unified: flags.KvUnified = None,
    as_json: flags.Json = False,
) -> int:
    """Let a crowd ask TARGET in real time, its prediction beside it; results go to disk.

    Without arguments: the demo crowd against the bundled mock server, half a minute.
    """
    from rich.console import Console

    from headroom_bench.errors import EXIT_INTERRUPTED, EXIT_TARGET, UserError
    from headroom_bench.experiments.run import RunOptions
    from headroom_bench.experiments.run import run as run_experiment
    from headroom_bench.report.progress import Progress
    from headroom_bench.report.terminal import print_summary
    from headroom_bench.units import parse_duration_s

    chosen = flags.resolve_target(
        target, model=model, dialect=dialect, api_key_env=api_key_env,
        headers=header, extra_body=extra_body, ca_file=ca_file, insecure=insecure, proxy=proxy,
        hardware=hardware,
        quant=quant, runtime=runtime, backend=backend, slots=slots, ctx=ctx, kv_k=kv_k,
        kv_v=kv_v, ubatch=ubatch, kv_unified=kv_unified,
    )  # fmt: skip
    duration_s, max_requests = flags.resolve_length(duration, requests)
    if time_scale != 1.0 and not chosen.embedded_mock:
        raise UserError("--time-scale is for the mock only: a real server lives in real time")
    notes = Console(stderr=True)
    outcome = run_experiment(
        RunOptions(
            target=chosen,
            crowd=flags.resolve_crowd(
                crowd, persona, users, prompt_tokens, output_tokens, think, seed
            ).with_prompts(flags.resolve_prompts(prompts)),
            out=out,
            duration_s=duration_s,
            max_requests=max_requests,
            warmup_s=flags.resolve_warmup(warmup, duration_s),
            journal=journal,
            prometheus=flags.resolve_address(prometheus) if prometheus else None,
            max_rps=flags.positive(max_rps, "--max-rps"),
            force_lengths=force_lengths,
            time_scale=flags.positive(time_scale, "--time-scale") or 1.0,
            timeouts=flags.resolve_timeouts(
                connect_timeout,
                headers_timeout,
                first_token_timeout,
                silence_timeout,
                request_timeout,
            ),
            drain_s=parse_duration_s(drain, "--drain"),
        ),
        lambda text: notes.print(text, highlight=False, markup=False, soft_wrap=True),
        lambda goal, now_s: Progress(notes, goal, now_s),
    )
    if as_json:
        typer.echo(json.dumps(outcome.summary, indent=1))
    else:
        print_summary(outcome.summary, Console())
    notes.print(f"results in {outcome.folder}", highlight=False, markup=False, soft_wrap=True)
    if outcome.exit_code == EXIT_TARGET:
        notes.print("headroom-bench: no request succeeded", highlight=False)
    if outcome.exit_code == EXIT_INTERRUPTED:
        notes.print(
            "headroom-bench: interrupted; what was measured is in the folder above",
            highlight=False,
            soft_wrap=True,
        )
    return outcome.exit_code
