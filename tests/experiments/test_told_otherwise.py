"""What is told of a server, and what it says and does."""

from __future__ import annotations

import pytest

from headroom_bench.catalog import served
from headroom_bench.experiments.told_otherwise import told_otherwise
from headroom_bench.live.probe import TargetFacts
from headroom_bench.target import ServerSpec, Target


@pytest.mark.parametrize(
    ("asked", "listed", "told"),
    [
        (None, ["any"], False),
        ("gpt-oss-20b", ["gpt-oss-20b-MXFP4.gguf"], False),
        ("mine", ["mine", "other"], False),
        ("mine", [], False),
        ("mine", ["mine:latest"], False),
        ("Mine", ["folder/mine.gguf"], False),
        ("nonsense", ["gpt-oss-20b-MXFP4.gguf"], True),
        ("gpt-oss-20b", ["gpt-oss-120b"], True),
    ],
)
def test_a_model_that_is_not_listed(asked: str | None, listed: list[str], told: bool) -> None:
    facts = TargetFacts("openai", served=listed)
    found = told_otherwise(Target("t", "", model=asked), facts)
    assert len(found) == told
    assert all(f"lists no model {asked!r}" in line and listed[0] in line for line in found)


def test_of_a_long_list_few_names_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five thousand took half a minute of the event loop."""
    asked_for = []
    monkeypatch.setattr(served, "served_model", lambda name: asked_for.append(name) or name)
    facts = TargetFacts("openai", served=[f"maker-{n}/model-{n}" for n in range(5000)])
    assert told_otherwise(Target("t", "", model="mine"), facts)
    assert len(asked_for) <= 21
    assert not told_otherwise(Target("t", "", model="model-4999"), facts)


@pytest.mark.parametrize(("told", "said"), [(4, 2), (None, 2), (4, None), (2, 2)])
def test_slots_that_a_server_does_not_have(told: int | None, said: int | None) -> None:
    target = Target("t", "", server=ServerSpec(slots=told))
    found = told_otherwise(target, TargetFacts("llamacpp", slots=said))
    assert found == (["the server has 2 slots, as it says itself, and not 4"] if told == 4 and said
                     else [])  # fmt: skip
