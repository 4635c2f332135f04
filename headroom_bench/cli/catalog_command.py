"""`headroom-bench catalog`: what is known of models, boxes, formats, servers and networks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli.consoles import page
from headroom_bench.errors import UserError
from headroom_bench.redaction import redacted

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
    from headroom_bench.catalog.listing import list_entries

    if name is not None and (search or where):
        raise UserError("--search and --where filter a list; leave them out with a NAME")
    found = list_entries(kind, search, where or ()) if name is None else _entry(kind, name)
    if as_json:
        typer.echo(json.dumps(found, indent=1, ensure_ascii=False))
        return 0
    from headroom_bench.report.catalog_page import print_entry, print_list

    if isinstance(found, list):
        print_list(kind, found, page())
    else:
        print_entry(kind, found, page())
    return 0


def _entry(kind: str, name: str) -> Any:
    """The facts of one entry, without its secrets. Raises `UserError`, also for a file of the
    user's own that no other command would take."""
    from headroom_bench.catalog.listing import one_entry
    from headroom_bench.crowd.crowd import load_crowd
    from headroom_bench.crowd.persona import load_persona
    from headroom_bench.target import load_target

    load: dict[str, Callable[[str], object]] = {
        "personas": load_persona, "crowds": load_crowd, "targets": load_target,
    }  # fmt: skip
    facts = one_entry(kind, name)
    if kind in load:
        load[kind](name)  # what it holds of secrets is hidden from then on
    return redacted(facts)
