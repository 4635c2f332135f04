"""`headroom-bench simulate`: a crowd on a target in virtual time."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from headroom_bench.cli import options as flags
from headroom_bench.errors import EXIT_TARGET


def simulate(
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
    model: flags.Model = None,
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
    prompts: flags.PromptsOption = "distinct",
    thinking: flags.Thinking = False,
    as_json: flags.Json = False,
) -> int:
    """Run the same crowd against a virtual box in virtual time; same records and summary."""
    from rich.console import Console

    from headroom_bench.experiments.simulate import SimulateOptions
    from headroom_bench.experiments.simulate import simulate as simulate_experiment
    from headroom_bench.report.terminal import print_summary

    chosen = flags.resolve_target(
        target, model=model, hardware=hardware, quant=quant, runtime=runtime, backend=backend,
        slots=slots, ctx=ctx, kv_k=kv_k, kv_v=kv_v, ubatch=ubatch, kv_unified=kv_unified,
    )  # fmt: skip
    duration_s, max_requests = flags.resolve_length(duration, requests)
    who = flags.resolve_crowd(crowd, persona, users, prompt_tokens, output_tokens, think, seed)
    options = SimulateOptions(
        target=chosen,
        crowd=who.with_prompts(flags.resolve_prompts(prompts)),
        out=out,
        duration_s=duration_s,
        max_requests=max_requests,
        warmup_s=flags.resolve_warmup(warmup, duration_s),
        thinking=thinking,
    )
    folder, summary = simulate_experiment(options)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
    else:
        print_summary(summary, Console())
    typer.echo(f"results in {folder}", err=True)
    nothing = summary["requests"] > 0 and summary["requests"] == summary["errors"]
    return EXIT_TARGET if nothing else 0
