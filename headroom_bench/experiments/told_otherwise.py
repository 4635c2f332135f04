"""What was told of a server on the command line or in a file, where it says something else."""

from __future__ import annotations

from headroom_bench.errors import UserError
from headroom_bench.live.probe import TargetFacts
from headroom_bench.redaction import shortened
from headroom_bench.target import Target

_LISTED_LETTERS = 200
_LOOKED_UP = 20
"""Names that the catalogue is asked for, 5 ms each. Who serves more than that is a gateway of many
makers, which wants names as it lists them."""


def told_otherwise(target: Target, facts: TargetFacts) -> list[str]:
    """Warnings, for a server that answers all the same."""
    found = []
    asked, listed = target.model, facts.served
    if asked is not None and listed and not _is_among(asked, listed):
        names = shortened(", ".join(listed), _LISTED_LETTERS)
        found.append(f"the server lists no model {asked!r}, and may answer as another: {names}")
    told, said = target.server.slots, facts.slots
    if told is not None and said is not None and told != said:
        found.append(f"the server has {said} slots, as it says itself, and not {told}")
    return found


def _is_among(asked: str, listed: list[str]) -> bool:
    """Whether one of the names means the same: but for folders, endings and case, or as the
    catalogue knows it."""
    from headroom_bench.catalog.served import bare_name

    plain = bare_name(asked).lower()
    if any(bare_name(name).lower() == plain for name in listed):
        return True
    meant = _model(asked)
    return meant is not None and meant in map(_model, listed[:_LOOKED_UP])


def _model(name: str) -> str | None:
    """What a name means; None where the catalogue does not know it."""
    from headroom_bench.catalog.served import served_model

    try:
        return served_model(name)
    except UserError:
        return None
