"""Where the personas, crowds and targets that come with the package lie."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from headroom_bench.errors import UserError, unknown_name
from headroom_bench.paths import is_there, typed_path

_PACKAGE = Path(__file__).resolve().parent


def shipped_dir(kind: Literal["personas", "targets"]) -> Path:
    """The folder in a source checkout, else the copy inside the installed package."""
    checkout = _PACKAGE.parent / kind
    if (_PACKAGE.parent / "pyproject.toml").is_file() and checkout.is_dir():
        return checkout
    return _PACKAGE / "shipped" / kind


def names_in(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def find_file(what: str, name: str, folder: Path) -> Path:
    """A user's own file by its path, else a shipped one by its name.

    Raises:
        UserError: neither exists; the nearest shipped names are offered.
    """
    if "@" in name and not is_there(name):  # a URL cut short, perhaps, with a key before it
        raise UserError(f"…@{name.rpartition('@')[2]} is no {what}; for a server write http://HOST")
    if name.endswith(".toml") or "/" in name:
        own = typed_path(name)
        if own.is_file():
            return own
        raise UserError(f"{what} file {name!r} does not exist")
    if name in names_in(folder):
        return folder / f"{name}.toml"
    hint = "; or give the path of a .toml file"
    if ":" in name:
        hint = f"; for a server write http://{name}"
    raise unknown_name(what, name, names_in(folder), hint=hint)
