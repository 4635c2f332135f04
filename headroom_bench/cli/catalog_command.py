"""`headroom-bench catalog`: what is known of models, boxes, formats, servers and networks."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli.consoles import page

KINDS = ("models", "hardware", "quants", "runtimes", "networks", "personas", "crowds", "targets")


def catalog(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(KINDS)}.", metavar="KIND")] = "",
    name: Annotated[
        str | None, typer.Argument(help="One entry: a name or a file of yours.", metavar="[NAME]")
    ] = None,
    search: Annotated[str, typer.Option("--search", help="Entries that hold this text.")] = "",
    where: Annotated[
        list[str] | None,
        typer.Option("--where", help="Such as memory_gb>=96 or family=qwen3; may be repeated."),
    ] = None,
    as_json: flags.Json = False,
) -> int:
    """List a part of the catalogue, or show one entry in words with its sources."""
    if not kind:
        typer.echo(f"headroom-bench catalog KIND [NAME], where KIND is {', '.join(KINDS)}")
        return 0
    from headroom_bench.catalog.listing import list_entries, one_entry
    from headroom_bench.errors import UserError

    if name is not None and (search or where):
        raise UserError("--search and --where filter a list; leave them out with a NAME")
    found = list_entries(kind, search, where or ()) if name is None else one_entry(kind, name)
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    from headroom_bench.report.catalog_page import print_entry, print_list

    if isinstance(found, list):
        print_list(kind, found, page())
    else:
        print_entry(kind, found, page())
    return 0
