"""What can go wrong in a way that a user can mend: one line, one exit code, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

EXIT_WRONG_INPUT = 2
EXIT_TARGET = 3
EXIT_INTERRUPTED = 4

_SHOWN = 200
"""Letters of a name that are shown; no name is longer."""
_FEW = 16
"""So many names may stand in one line."""


class UserError(Exception):
    """Shown as one line on stderr."""

    exit_code = EXIT_WRONG_INPUT


class TargetError(UserError):
    """The target could not be reached, or refused us."""

    exit_code = EXIT_TARGET


_BLANKS = "\n\r\t\u00a0"
"""Not printable by Python's rule, and in texts all the same."""


def unshowable(text: str) -> str | None:
    """The first character that a terminal would obey instead of showing it; None where none is."""
    if text.isprintable():
        return None
    return next((mark for mark in text if not mark.isprintable() and mark not in _BLANKS), None)


def written_out(text: str) -> str:
    """The text in one line, with what a terminal would obey as escapes (`\\x1b`)."""
    if text.isprintable():
        return text
    return "".join(mark if mark.isprintable() else ascii(mark)[1:-1] for mark in text)


def unknown_name(what: str, name: str, known: Iterable[str], hint: str = "") -> UserError:
    """A `UserError` for a name that does not exist, with the nearest ones that do; where none is
    near, with all of them if they are few."""
    names = sorted(known)
    near = difflib.get_close_matches(name[:_SHOWN].lower(), names, n=3, cutoff=0.5)
    offer = f"; did you mean {', '.join(near)}?" if near else ""
    if not near and 0 < len(names) <= _FEW:
        offer = f"; known are {', '.join(names)}"
    return UserError(f"unknown {what} {name[:_SHOWN]!r}{offer}{hint}")
