"""Where commands write: pages to stdout, notes to stderr. Rich is imported when first written."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from headroom_bench.report.progress import Goal, Progress

_PIPE_WIDTH = 160
"""Columns where there is no terminal to ask."""


def page() -> Console:
    """For what a command answers."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def notes() -> Console:
    """For what is said beside the answer."""
    from rich.console import Console

    return Console(stderr=True)


def say_on(console: Console) -> Callable[[str], None]:
    """Says a line as it is, whatever stands in it."""
    return lambda text: console.print(text, highlight=False, markup=False, soft_wrap=True)


def progress_on(console: Console) -> Callable[[Goal, Callable[[], float]], Progress]:
    """Shows how a run gets on."""
    from headroom_bench.report.progress import Progress

    return lambda goal, now_s: Progress(console, goal, now_s)
