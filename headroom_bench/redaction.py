"""Secrets of this process, and every text that leaves it without them.

Keys come from the environment, header values and passwords in URLs. Whoever reads one tells `hide`;
whatever is written, shown or raised goes through `redact`. Process-wide, because a traceback is.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

MASK = "***"

_SHORTEST = 4
"""A shorter text stands in too many others to be masked; we never write it ourselves."""
_SHORTEST_PLAIN = 8
"""The same for the value of a header whose name does not sound secret."""
_SOUNDS_SECRET = re.compile(
    r"auth|key|token|secret|cookie|passw|credential|signature|session", re.IGNORECASE
)
_ASSIGNED = re.compile(r"(--?[\w-]+|\w+)=(.*)", re.DOTALL)

_hidden: set[str] = set()
_hidden_in_json: set[bytes] = set()
"""The same as they stand within a text of a JSON document in UTF-8."""


def hide(secret: str) -> None:
    """From now on `redact` masks this text, also where a server quotes it encoded."""
    for form in {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], escape(secret)}:
        if len(form) >= _SHORTEST:
            _hidden.add(form)
            written = json.dumps(form, ensure_ascii=False)[1:-1]
            _hidden_in_json.add(written.encode())


def hide_header(name: str, value: str) -> None:
    """Hides a header's value, and what follows its scheme (`Bearer …`)."""
    if not _SOUNDS_SECRET.search(name) and len(value) < _SHORTEST_PLAIN:
        return
    hide(value)
    if (inside := value.partition(" ")[2].strip()) and _SOUNDS_SECRET.search(name):
        hide(inside)


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


def shown_words(words: Sequence[str]) -> list[str]:
    """A command's words with the values of options and variables that sound secret masked; these
    are hidden from then on."""
    shown: list[str] = []
    masks_next = False
    for word in words:
        assigned = _ASSIGNED.fullmatch(word)
        if masks_next and not word.startswith("-"):
            hide(word)
            shown.append(MASK)
        elif assigned and _SOUNDS_SECRET.search(assigned[1]):
            hide(assigned[2])
            shown.append(f"{assigned[1]}={MASK}")
        else:
            shown.append(word)
        masks_next = bool(word.startswith("-") and "=" not in word and _SOUNDS_SECRET.search(word))
    return shown


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
