"""Options that several commands share as one argument: typer itself takes them one by one only."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any


def grouped(command: Callable[..., int]) -> Callable[..., int]:
    """The command as typer is to see it: in the place of each parameter whose type is a dataclass
    stand that dataclass's fields, from which it is made when the command is called."""
    groups: dict[str, type[Any]] = {}
    seen: list[inspect.Parameter] = []
    for own in inspect.signature(command, eval_str=True).parameters.values():
        if dataclasses.is_dataclass(own.annotation) and isinstance(own.annotation, type):
            groups[own.name] = own.annotation
            seen += inspect.signature(own.annotation, eval_str=True).parameters.values()
        else:
            seen.append(own)

    @functools.wraps(command)
    def called(**given: Any) -> int:
        for name, kind in groups.items():
            fields = dataclasses.fields(kind)
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields})
        return command(**given)

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in seen]
    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return called
