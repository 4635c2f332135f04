"""Secrets of this process, and every text that leaves it without them.

Keys come from the environment, header values and passwords in URLs. Whoever reads one tells `hide`;
whatever is written, shown or raised goes through `redact`. Process-wide, because a traceback is.
"""

from __future__ import annotations

import json
from base64 import b64encode
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

MASK = "***"

SHORTEST = 4
"""A shorter text stands in too many others to be masked; we never write it ourselves."""

_hidden: set[str] = set()
_hidden_in_json: set[bytes] = set()
"""The same as they stand within a text of a JSON document in UTF-8."""


def hide(secret: str) -> None:
    """From now on `redact` masks this text, also where a server quotes it encoded."""
    for form in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], escape(secret)}:
        if len(form) >= SHORTEST:
            _hidden.add(form)
            written = json.dumps(form, ensure_ascii=False)[1:-1]
            _hidden_in_json.add(written.encode())


def hide_basic(user: str, password: str) -> str:
    """Hides a password in all its forms; returns the value of a `Basic` authorization header."""
    token = b64encode(f"{user}:{password}".encode()).decode()
    for secret in (password, token):
        hide(secret)
    return f"Basic {token}"


def redact(text: str) -> str:
    """The text with every hidden secret masked."""
    for secret in sorted(_hidden, key=len, reverse=True):  # a secret may hold another
        if secret in text:
            text = text.replace(secret, MASK)
    return text


def shortened(text: str, length: int) -> str:
    """The redacted text cut to a length: cut first, half a key would stay."""
    return redact(text)[:length]


def redacted(value: Any) -> Any:
    """Plain data (as for JSON) with every text in it redacted; keys stay."""
    if not _hidden:
        return value
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: redacted(inside) for key, inside in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inside) for inside in value]
    return value


def holds_secret(document: bytes) -> bool:
    """Whether a JSON document in UTF-8, which escapes no more than it must, may hold a secret: in a
    text, or where `redacted` would leave it alone."""
    if not _hidden_in_json:
        return False
    return any(secret in document for secret in tuple(_hidden_in_json))


def scrub_file(path: Path) -> None:
    """Masks hidden secrets in a file that another program wrote; it is left alone without any.

    Raises:
        OSError: it cannot be read or written.
    """
    secrets = [secret.encode() for secret in sorted(_hidden, key=len, reverse=True)]
    data = path.read_bytes() if secrets and path.is_file() else b""
    if any(secret in data for secret in secrets):
        for secret in secrets:
            data = data.replace(secret, MASK.encode())
        path.write_bytes(data)


def forget() -> None:
    """Empties the list of secrets (between tests)."""
    _hidden.clear()
    _hidden_in_json.clear()
