"""Settings written as plain data and read again are the same settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal

import pytest
from crowd_people import CROWDS

from headroom_bench.crowd.crowd import Crowd, load_crowd
from headroom_bench.errors import UserError
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.plain import from_plain, to_plain
from headroom_bench.target import ServerSpec


@pytest.mark.parametrize("name", CROWDS)
def test_every_shipped_crowd(name: str) -> None:
    crowd = load_crowd(name)
    written = json.dumps(to_plain(crowd), allow_nan=False)
    assert from_plain(Crowd, json.loads(written), "crowd") == crowd


@pytest.mark.parametrize("value", [Timeouts(), Timeouts(1, 2, 3, 4, 5), ServerSpec(slots=4)])
def test_other_settings(value: object) -> None:
    assert from_plain(type(value), json.loads(json.dumps(to_plain(value))), "x") == value


@dataclass(frozen=True)
class Inside:
    size: int


@dataclass(frozen=True)
class Sample:
    name: str
    kind: Literal["a", "b"] = "a"
    most: float = 1.0
    pairs: tuple[tuple[str, int], ...] = ()
    inside: Inside | None = None
    table: dict[str, Inside] = field(default_factory=dict)


def test_shapes_that_settings_have() -> None:
    sample = Sample("x", "b", float("inf"), (("p", 1), ("q", 2)), Inside(3), {"k": Inside(4)})
    assert from_plain(Sample, json.loads(json.dumps(to_plain(sample))), "s") == sample
    assert from_plain(Sample, {"name": "x", "of_a_later_version": 1}, "s") == Sample("x")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "s: name is missing"),
        ({"name": 3}, r"s\.name: 3 is not what"),
        ({"name": "x", "kind": "c"}, r"s\.kind: 'c'"),
        ({"name": "x", "most": "much"}, r"s\.most: 'much'"),
        ({"name": "x", "most": True}, r"s\.most: True"),
        ({"name": "x", "pairs": [["p", 1], ["q"]]}, r"s\.pairs\[1\]"),
        ({"name": "x", "inside": {"size": 1.5}}, r"s\.inside\.size: 1\.5"),
        ({"name": "x", "inside": {"size": True}}, r"s\.inside\.size: True"),
        ({"name": "x", "table": {"k": []}}, r"s\.table\.k: \[\]"),
        ([], r"s: \[\]"),
    ],
)
def test_what_is_damaged_is_told_with_its_place(value: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        from_plain(Sample, value, "s")
