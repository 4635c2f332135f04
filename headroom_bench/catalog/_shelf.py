"""One kind of entry: all that are shipped, and the one that a user means."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from headroom_bench.catalog._entries import build, read_data
from headroom_bench.catalog._names import Names
from headroom_bench.errors import UserError
from headroom_bench.paths import typed_path
from headroom_bench.toml_table import read_toml

T = TypeVar("T")


class Shelf(Generic[T]):
    """The entries of a data file, read once, when the first is looked up."""

    def __init__(
        self,
        what: str,
        kind: type[T],
        data: str,
        names: Callable[[T], Iterable[str]],
        check: Callable[[T, str], None] | None = None,
    ) -> None:
        """`what` it is to a user; `data`: the file's name, and its list's; `names`: an entry's id
        and what else it goes by; `check` raises `UserError` for a user's own entry that cannot be,
        naming where it stands."""
        self._what = what
        self._kind = kind
        self._data = data
        self._names = names
        self._check = check

    @functools.cached_property
    def entries(self) -> tuple[T, ...]:
        """In the order of the data file."""
        file = f"{self._data}.json"
        return tuple(
            build(self._kind, facts, f"{file}: {facts.get('id', facts['name'])}")
            for facts in read_data(file)[self._data]
        )

    def find(self, name: str) -> T:
        """The entry meant by an id, a name, words that only it has, or a TOML path. Raises
        `UserError`: nothing or several things fit, or the file is wrong."""
        if not name.lower().endswith(".toml"):
            return self.named(name)
        path = typed_path(name)
        if not path.is_file():
            raise UserError(f"{self._what} file {name!r} does not exist")
        return self.own(path)

    def named(self, name: str) -> T:
        """The shipped entry meant. Raises `UserError`."""
        return self._by_id[self._by_name.find(name)]

    def own(self, path: Path) -> T:
        """A user's own: a TOML file with the keys of one entry. Raises `UserError`."""
        entry = build(self._kind, {"source": path.name, **read_toml(path).as_dict()}, str(path))
        if self._check is not None:
            self._check(entry, str(path))
        return entry

    @functools.cached_property
    def _by_id(self) -> dict[str, T]:
        return dict(zip(self._all_names, self.entries, strict=True))

    @functools.cached_property
    def _by_name(self) -> Names:
        return Names(self._what, self._all_names)

    @functools.cached_property
    def _all_names(self) -> dict[str, list[str]]:
        """By id, in the entries' order, what else each goes by."""
        return {id_: more for id_, *more in map(self._names, self.entries)}
