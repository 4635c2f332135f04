"""Secrets in what users hand over: names that promise one, values that look like one.

Commands, bodies of requests, headers and names of variables are searched as soon as they are read;
what is found is hidden from then on (`redaction`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from headroom_bench.redaction import MASK, SHORTEST, hide, redact

_SHORTEST_PLAIN = 8
"""A shorter value of a header whose name does not sound secret is none."""
_SHORTEST_NUMBER = 6
"""Digits; fewer stand in too many texts that are no secret."""
_NAME = (
    r"(?:auth|key|token(?!s\b|s[_-]|i[sz]|_?ids?\b)|secret|cookie|pass(?:w|phrase|\b)|\bpwd?\b"
    r"|bearer|credential|signature|session)"
)
_SOUNDS_SECRET = re.compile(_NAME, re.IGNORECASE)
_ASSIGNED = re.compile(r"(--?[\w-]+|\w+)=(.*)", re.DOTALL)
_HEADER = re.compile(r"([\w-]+)\s*:\s*(.*)", re.DOTALL)
_LOOSE = re.compile(
    rf"[\w-]*{_NAME}[\w-]*[\"']?\s*[:=]\s*[\"']?(?:(?:Bearer|Basic)\s+)?([^\s\"',;(){{}}\[\]]+)",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"://[^\s/@:]*:([^\s/@]+)@")
_LOOKS_SECRET = re.compile(
    r"(?<![A-Za-z0-9])(?:[spr]k[-_][\w-]{6,}|hf_\w{16,}|gh[oprsu]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{12,}|xox[abeprs]-[\w-]{10,}|nvapi-[\w-]{16,}|(?:gsk|csk|tgp)_\w{16,}"
    r"|(?:xai|pplx)-\w{16,}|AIza[\w-]{30,}|AKIA[A-Z0-9]{16}|eyJ[\w-]{10,}\.[\w-]+\.[\w-]*)"
)
"""Keys as the services mint them: each has its prefix."""
_PLACEHOLDERS = frozenset(("none", "null", "true", "false", "auto", "default", "empty", "dummy"))
"""What stands for no key where one is wanted: masked everywhere, it would hide words of our own."""
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)


def hide_header(name: str, value: str) -> None:
    """Hides a header's value, and what follows its scheme (`Bearer …`)."""
    if not _SOUNDS_SECRET.search(name) and len(value) < _SHORTEST_PLAIN:
        return
    hide(value)
    if (inside := value.partition(" ")[2].strip()) and _SOUNDS_SECRET.search(name):
        hide(inside)


def is_variable(name: str) -> bool:
    """Whether this is surely the name of an environment variable, not a key put in its place."""
    return bool(_VARIABLE.fullmatch(name)) and not _LOOKS_SECRET.search(name)


def shown_words(words: Sequence[str]) -> list[str]:
    """A command's words with their secrets masked, which are hidden from then on: values of options
    and variables that sound secret, also within a text for a shell, and what looks like a key."""
    return [_shown(word, list(found)) for word, found in _searched(words)]


def shown_fields(value: Any, secret: bool = False) -> Any:
    """Plain data (as for JSON) with its secrets masked, which are hidden from then on: what stands
    under names that sound secret, at any depth, and what looks like a key."""
    if isinstance(value, dict):
        return {
            name: shown_fields(inside, secret or bool(_SOUNDS_SECRET.search(str(name))))
            for name, inside in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [shown_fields(inside, secret) for inside in value]
    if isinstance(value, str) and not secret:
        return _shown(value, _LOOKS_SECRET.findall(value))
    if not secret or value is None or isinstance(value, bool) or value == "":
        return value
    _hide(str(value))
    return MASK


def holds_mask(value: Any) -> bool:
    """Whether a secret was masked somewhere in plain data."""
    if isinstance(value, dict):
        return any(map(holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(holds_mask, value))
    return isinstance(value, str) and MASK in value


def _hide(found: str) -> None:
    if found.casefold() in _PLACEHOLDERS:
        return
    if not found.isdecimal() or len(found) >= _SHORTEST_NUMBER:
        hide(found)


def _shown(text: str, secrets: Sequence[str]) -> str:
    shown = text
    for secret in sorted(secrets, key=len, reverse=True):
        _hide(secret)
        within = (
            rf"(?<!\w){re.escape(secret)}(?!\w)" if len(secret) < SHORTEST else re.escape(secret)
        )
        shown = re.sub(within, MASK, shown)
    spelt_otherwise = any(secret not in text for secret in secrets)  # in the shell's own ways
    return MASK if spelt_otherwise else redact(shown)


def _searched(words: Sequence[str]) -> Iterator[tuple[str, Iterator[str]]]:
    """Every word with the secrets in it."""
    value_of_secret = False
    for word in words:
        taken = value_of_secret and not word.startswith("-")
        yield word, iter([word] if word else []) if taken else _in_word(word)
        value_of_secret = bool(
            word.startswith("-")
            and "=" not in word
            and not any(map(str.isspace, word))
            and _SOUNDS_SECRET.search(word)
        )


def _in_word(word: str) -> Iterator[str]:
    yield from _LOOKS_SECRET.findall(word)
    yield from _LOGIN.findall(word)
    for pair in (_ASSIGNED.fullmatch(word), _HEADER.fullmatch(word)):
        if pair and pair[2] and _SOUNDS_SECRET.search(pair[1]):
            yield pair[2]
    inside = _shell_words(word)
    if inside != [word]:
        yield from _LOOSE.findall(word)
        for _, found in _searched(inside):
            yield from found


def _shell_words(text: str) -> list[str]:
    """The words that a shell would make of a text."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:  # a quote that nobody closes
        return [word.strip("\"'") for word in text.split()]
