"""docs/results.md names everything that stands in a results file."""

from __future__ import annotations

import re
from pathlib import Path

from headroom_bench.judge.turns import Turn
from headroom_bench.records import REQUEST_COLUMNS

PAGE = Path(__file__).parents[2] / "docs" / "results.md"


def named(heading: str) -> set[str]:
    """What stands in backticks in the first column of the table under a heading."""
    _, _, rest = PAGE.read_text().partition(f"## {heading}\n")
    part, _, _ = rest.partition("\n## ")
    firsts = [line.split("|")[1] for line in part.splitlines() if line.startswith("|")]
    return {name for first in firsts for name in re.findall(r"`([a-z0-9_]+)`", first)}


def test_every_column_of_a_request_is_explained_and_no_other() -> None:
    assert named("Columns of a request") == set(REQUEST_COLUMNS)


def test_every_column_of_a_turn_is_explained_and_no_other() -> None:
    turn = Turn(persona="p", wait_s=1.0, rounds=1, used=None, met=None, failed=False)
    assert named("Columns of a turn") == set(turn.as_row())
