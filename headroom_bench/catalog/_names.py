"""From what a user types to one entry of the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headroom_bench.errors import UserError, unknown_name

_VENDOR_WORDS = re.compile(r"\b(nvidia|geforce|amd|apple|intel|meta)\b")
_OWNER = re.compile(r"^[\w.-]+/")
_PARTS = {"hardware": "hardware", "quantization": "quants"}
"""What `headroom-bench catalog` calls them, where it is not the plain plural."""
_CHAT_SUFFIX = re.compile(r"(instruct|chat|it|gguf)$")
_LEAST_PART = 3
"""Letters and digits of a part that stands for a name: fewer are in too many to mean one."""


def squash(name: str) -> str:
    """A name without case, punctuation, spaces, vendor words and the `owner/` in front."""
    short = _without_owner(name)
    plain = re.sub(r"[^a-z0-9]", "", _VENDOR_WORDS.sub("", short))
    return plain or re.sub(r"[^a-z0-9]", "", short)


def _without_owner(name: str) -> str:
    return _OWNER.sub("", name.lower().strip())


def slug(name: str) -> str:
    """The form that is offered to a user: lower case, words joined by hyphens."""
    return re.sub(r"[^a-z0-9.+_]+", "-", name.lower()).strip("-")


class Names:
    """Finds one entry by any of its names, or by whole words of a name that only one entry has:
    `4090` and `llama-4-scout`, but not `nan` for a Jetson Orin Nano."""

    def __init__(self, what: str, names: Mapping[str, Iterable[str]]) -> None:
        """`names`: for each entry's id the other names that it goes by."""
        self._what = what
        self._exact: dict[str, str] = {}
        stripped: dict[str, str] = {}
        for key, others in names.items():
            for name in (key, *others):
                plain = squash(name)
                self._exact.setdefault(plain, key)
                stripped.setdefault(_CHAT_SUFFIX.sub("", plain), key)
        self._exact = {**stripped, **self._exact}
        self._names = {
            key: [_VENDOR_WORDS.sub("", _without_owner(name)) for name in (key, *others)]
            for key, others in names.items()
        }

    def find(self, name: str) -> str:
        """The id of the entry meant. Raises `UserError` for no entry or several."""
        wanted = squash(name)
        for form in (wanted, _CHAT_SUFFIX.sub("", wanted)):
            if form in self._exact:
                return self._exact[form]
        fits = self._with_words(wanted)
        if len(fits) == 1:
            return fits[0]
        if fits:
            offer = ", ".join(sorted(fits)[:8])
            raise UserError(f"{self._what} {name!r} fits several; name one of {offer}")
        part = _PARTS.get(self._what, f"{self._what}s")
        hint = f" (headroom-bench catalog {part} lists them)"
        raise unknown_name(self._what, name, self._names, hint)

    def _with_words(self, wanted: str) -> list[str]:
        """The entries that have a name in which whole words, one after another, make up `wanted`,
        however they are joined."""
        if not _LEAST_PART <= len(wanted) <= max(map(len, self._exact), default=0):
            return []
        joined = "[^a-z0-9]*".join(wanted)
        words = re.compile(f"(?<![a-z0-9]){joined}(?![a-z0-9])")
        return [key for key, names in self._names.items() if any(map(words.search, names))]
