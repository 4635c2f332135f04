"""Paths as a user types them, and names that might be one."""

from __future__ import annotations

from pathlib import Path

from headroom_bench.errors import UserError

_LETTERS = 100
"""Of what cannot be a path, so many are shown."""


def typed_path(text: str) -> Path:
    """The path that a text means, `~` at its very start being a home. Raises `UserError` where it
    can be none: too long a name, nobody's home, a folder that may not be looked into."""
    try:
        path = Path(text)
        if text.startswith("~"):  # a Path forgets the `./` that tells a file of that name
            path = path.expanduser()
        path.exists()
    except OSError as why:
        raise UserError(f"{text[:_LETTERS]!r} cannot be a path: {why.strerror}") from None
    except (RuntimeError, ValueError) as why:  # no such home; a null byte in older Pythons
        raise UserError(f"{text[:_LETTERS]!r} cannot be a path: {why}") from None
    return path


def is_there(text: str) -> bool:
    """Whether a text is the path of a file or folder."""
    try:
        return typed_path(text).exists()
    except UserError:
        return False
