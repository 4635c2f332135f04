"""Every fault there is, for people to read."""

from __future__ import annotations

import inspect

from mock_server import request_faults, stream_faults
from mock_server.faults import CATALOG, Fault, arguments_of

MODULES = (stream_faults, request_faults)
"""Importing them fills the catalogue."""


def form_of(kind: type[Fault]) -> str:
    """Name and arguments with their defaults: `stall:SECONDS=5:TOKENS=4`."""
    arguments = [f"{name.upper()}={default:g}" for name, default in arguments_of(kind)]
    return ":".join([kind.name, *arguments])


def faults_table() -> str:
    """A Markdown table: what each fault does, and the right reading of it."""
    rows = ["| fault | what the mock does | the right reading |", "|---|---|---|"]
    for kind in CATALOG.values():
        does = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
        where = " (`--fault` only)" if kind.at_start_only else ""
        rows.append(f"| `{form_of(kind)}`{where} | {does} | {kind.reading} |")
    return "\n".join(rows)
