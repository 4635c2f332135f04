"""Which options a command line gave, for those that do not go together."""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING

from headroom_bench.errors import UserError

if TYPE_CHECKING:
    import typer


def given(context: typer.Context) -> dict[str, str]:
    """The parameters that were not left at their defaults, in the order of the help, and what each
    is called there."""
    return {
        each.name: each.opts[0]
        for each in context.command.params
        if each.name is not None and _was_given(context, each.name)
    }


def refuse(context: typer.Context, parameters: Container[str], why: str) -> None:
    """Raises `UserError` where any of these was given: it would do nothing."""
    useless = [flag for name, flag in given(context).items() if name in parameters]
    if useless:
        raise UserError(f"{why}: leave out {', '.join(useless)}")


def _was_given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP")
