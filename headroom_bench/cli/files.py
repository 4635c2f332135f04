"""Files that an option names and that are written at the end, after a long computation."""

from __future__ import annotations

from pathlib import Path

from headroom_bench.errors import UserError


def check_writable(path: Path, flag: str) -> None:
    """Opens the file as it will be written, and leaves what it holds. Raises `UserError`."""
    _write(path, flag, "a", "")


def write_text(path: Path, flag: str, text: str) -> None:
    """The whole file, in UTF-8. Raises `UserError`."""
    _write(path, flag, "w", text)


def _write(path: Path, flag: str, mode: str, text: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as why:
        raise UserError(f"{flag} {path} cannot be written: {why.strerror}") from None
