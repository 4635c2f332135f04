"""What was told of a server on the command line or in a file, where it says something else."""

from __future__ import annotations

from headroom_bench.errors import UserError
from headroom_bench.live.probe import TargetFacts
from headroom_bench.redaction import shortened
from headroom_bench.target import Target

_LISTED_LETTERS = 200


def told_otherwise(target: Target, facts: TargetFacts) -> list[str]:
    """Warnings, for a server that answers all the same."""
    found = []
    asked, listed = target.model, facts.served
    if asked is not None and listed and _model(asked) not in map(_model, listed):
        names = shortened(", ".join(listed), _LISTED_LETTERS)
        found.append(f"the server lists no model {asked!r}, and may answer as another: {names}")
    told, said = target.server.slots, facts.slots
    if told is not None and said is not None and told != said:
        found.append(f"the server has {said} slots, as it says itself, and not {told}")
    return found


def _model(name: str) -> str:
    """What a name means, where the catalogue knows it."""
    from headroom_bench.catalog.served import served_model

    try:
        return served_model(name)
    except UserError:
        return name
