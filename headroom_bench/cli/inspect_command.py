"""`headroom-bench inspect`: what a model file or a catalogue entry is made of."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli.consoles import page
from headroom_bench.units import MOST_SLOTS


def inspect(
    model: Annotated[
        str, typer.Argument(help="A .gguf, config.json or .toml file, or a name.", metavar="MODEL")
    ],
    context: Annotated[
        str | None, typer.Option("--context", help="Tokens of context of each slot (32k).")
    ] = None,
    slots: Annotated[
        int, typer.Option("--slots", help="Sequences at once.", min=1, max=MOST_SLOTS)
    ] = 1,
    hardware: Annotated[
        str | None, typer.Option("--hardware", help="Box: does it fit, and if not, what would?")
    ] = None,
    quant: Annotated[
        str | None, typer.Option("--quant", help="Weight format, where the file does not say.")
    ] = None,
    runtime: Annotated[str, typer.Option("--runtime", help="Server program.")] = "llama.cpp",
    kv_k: flags.KvK = None,
    kv_v: flags.KvV = None,
    swa_full: Annotated[
        bool, typer.Option("--swa-full", help="Window layers keep everything.")
    ] = False,
    vs: Annotated[
        str | None, typer.Option("--vs", help="Another file or model, to compare with.")
    ] = None,
    as_json: flags.Json = False,
) -> int:
    """Show a model's shape, weights by part and type, bytes a pass, cache and memory."""
    from headroom_bench.experiments.inspect import InspectOptions
    from headroom_bench.experiments.inspect import inspect as inspect_model
    from headroom_bench.units import parse_size

    document = inspect_model(
        InspectOptions(
            name=model,
            context=parse_size(context, "--context") if context is not None else None,
            slots=slots,
            kv_k=kv_k or "f16",
            kv_v=kv_v or "f16",
            quant=quant,
            hardware=hardware,
            runtime=runtime,
            swa_full=swa_full,
            other=vs,
        )
    )
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return 0
    from headroom_bench.report.inspect_page import print_inspection

    print_inspection(document, page())
    return 0
