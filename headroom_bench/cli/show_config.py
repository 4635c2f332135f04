"""`--show-config`: the whole resolved configuration of a run, with where each value came from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from headroom_bench.cli.given import given
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import read_toml

if TYPE_CHECKING:
    from headroom_bench.experiments.run_options import RunOptions
    from headroom_bench.target import Target

_DEFAULT = "default"
_PARAMETERS = {
    "max_requests": ("requests",),
    "prompts_from": ("prompts",),
    "target.headers": ("header",),
    "target.model": ("served_model", "model"),
    "target.body": ("extra_body",),
    "crowd": ("crowd", "persona", "users", "prompt_tokens", "output_tokens", "think"),
}
"""The parameters that decide a value, where they are not called as it is."""


def print_config(context: typer.Context, options: RunOptions, as_json: bool) -> None:
    """Prints every value on a line of its own, or all as one JSON object."""
    from headroom_bench.experiments.run_options import as_config

    config = as_config(options)
    del config["prompts"], config["prompts_digest"], config["target"]["source"]
    config |= {"crowd": options.crowd.counts(), "seed": options.crowd.seed}
    config["target"]["server"]["runtime"] = options.target.runtime
    config |= {"out": str(options.out), "prometheus": options.prometheus}
    in_file = _keys_in_file(options.target)
    flags = given(context)
    rows = {
        path: {"value": value, "from": _origin(flags, path, value, in_file)}
        for path, value in _flat(config, "")
    }
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    width = max(map(len, rows))
    for path, row in rows.items():
        value = json.dumps(row["value"], ensure_ascii=False)
        typer.echo(f"{path:{width}}  {value}  ({row['from']})")


def _flat(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
    """Every value with its dotted path; what users fill in freely stays whole."""
    for name, value in table.items():
        path = f"{before}{name}"
        if isinstance(value, Mapping) and path not in ("target.body", "crowd"):
            yield from _flat(value, f"{path}.")
        else:
            yield path, value


def _origin(flags: Mapping[str, str], path: str, value: Any, in_file: Mapping[str, str]) -> str:
    if value is None:
        return _DEFAULT
    for parameter in _parameters(path):
        if parameter in flags:
            return flags[parameter]
    return in_file.get(path, _DEFAULT)


def _parameters(path: str) -> tuple[str, ...]:
    if path in _PARAMETERS:
        return _PARAMETERS[path]
    name = path.rpartition(".")[2].removesuffix("_s")
    if path.startswith("timeouts."):
        return (f"{name}_timeout",)
    return (name,)


def _keys_in_file(target: Target) -> dict[str, str]:
    """The paths that the target's file, or its URL, decided, and what it is called."""
    if "://" in target.source:
        return dict.fromkeys(("target.name", "target.url"), "TARGET")
    path = find_file("target", target.source, shipped_dir("targets"))
    shown = str(path) if path.parent != shipped_dir("targets") else f"targets/{path.name}"
    table = read_toml(path).as_dict()
    found = {f"target.{key}": shown for key, _ in _flat(table, "")}
    return found | {f"target.{name}": shown for name in ("headers", "body") if name in table}
