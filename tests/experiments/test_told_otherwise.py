"""What is told of a server, and what it says and does."""

from __future__ import annotations

import pytest

from headroom_bench.experiments.told_otherwise import told_otherwise
from headroom_bench.live.probe import TargetFacts
from headroom_bench.target import ServerSpec, Target


@pytest.mark.parametrize(
    ("asked", "served", "told"),
    [
        (None, ["any"], False),
        ("gpt-oss-20b", ["gpt-oss-20b-MXFP4.gguf"], False),
        ("mine", ["mine", "other"], False),
        ("mine", [], False),
        ("nonsense", ["gpt-oss-20b-MXFP4.gguf"], True),
        ("gpt-oss-20b", ["gpt-oss-120b"], True),
    ],
)
def test_a_model_that_is_not_listed(asked: str | None, served: list[str], told: bool) -> None:
    facts = TargetFacts("openai", served=served)
    found = told_otherwise(Target("t", "", model=asked), facts)
    assert len(found) == told
    assert all(f"lists no model {asked!r}" in line and served[0] in line for line in found)


@pytest.mark.parametrize(("told", "said"), [(4, 2), (None, 2), (4, None), (2, 2)])
def test_slots_that_a_server_does_not_have(told: int | None, said: int | None) -> None:
    target = Target("t", "", server=ServerSpec(slots=told))
    found = told_otherwise(target, TargetFacts("llamacpp", slots=said))
    assert found == (["the server has 2 slots, as it says itself, and not 4"] if told == 4 and said
                     else [])  # fmt: skip
