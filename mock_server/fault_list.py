"""Every fault there is: found by its name, and listed for people to read."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from headroom_bench.errors import UserError, unknown_name
from mock_server import broken_faults, request_faults, said_faults, written_faults
from mock_server.faults import CATALOG, Fault, arguments_of

MODULES = (said_faults, written_faults, broken_faults, request_faults)
"""Importing them fills the catalogue."""


def parse_fault(text: str) -> Fault:
    """Raises `UserError` for an unknown name, too many arguments, or one that is no number."""
    name, *given = text.strip().split(":")
    kind = CATALOG.get(name)
    if kind is None:
        raise unknown_name("fault", name, CATALOG, "; `--list-faults` shows them all")
    taken = arguments_of(kind)
    if len(given) > len(taken):
        form = ":".join([name, *(argument.upper() for argument, _ in taken)])
        raise UserError(f"fault {text!r} has too many arguments; it is {form}")
    values: dict[str, Any] = {}
    for (argument, default), word in zip(taken, given, strict=False):
        values[argument] = _number(text, argument, word, type(default))
    return kind(**values)


def parse_faults(texts: Sequence[str]) -> list[Fault]:
    """Each text may hold several, separated by commas. Raises as `parse_fault`."""
    names = [name for text in texts for name in text.split(",") if name.strip()]
    return [parse_fault(name) for name in names]


def _number(text: str, argument: str, word: str, kind: type) -> float | int:
    try:
        value: float | int = kind(word)
    except ValueError:
        wanted = "whole number" if kind is int else "number"
        raise UserError(f"fault {text!r}: {argument} must be a {wanted}, not {word!r}") from None
    if not 0 <= value < 1e9:
        raise UserError(f"fault {text!r}: {argument} must be from 0 to 1e9")
    return value


def form_of(kind: type[Fault]) -> str:
    """Name and arguments with their defaults: `stall:SECONDS=5:TOKENS=4`."""
    arguments = [f"{name.upper()}={default:g}" for name, default in arguments_of(kind)]
    return ":".join([kind.name, *arguments])


def _place(kind: type[Fault]) -> int:
    return [module.__name__ for module in MODULES].index(kind.__module__)


def faults_table() -> str:
    """A Markdown table: what each fault does, and the right reading of it."""
    rows = ["| fault | what the mock does | the right reading |", "|---|---|---|"]
    for kind in sorted(CATALOG.values(), key=_place):
        does = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
        where = " (`--fault` only)" if kind.at_start_only else ""
        rows.append(f"| `{form_of(kind)}`{where} | {does} | {kind.reading} |")
    return "\n".join(rows)
