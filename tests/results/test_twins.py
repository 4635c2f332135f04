"""What is predicted of the requests that were measured."""

from __future__ import annotations

from dataclasses import replace

from record_makers import failed, record

from headroom_bench.judge.turns import turns_of
from headroom_bench.results.pooling import Repeat, pooled
from headroom_bench.results.twins import twins

MEASURED = [record(user=user, turn_rounds=1) for user in range(4)]
PREDICTED = [replace(one, world="predicted", ttft_s=0.4) for one in MEASURED]


def test_where_nothing_was_left_out_all_are_beside_each_other() -> None:
    assert twins(PREDICTED, MEASURED) == PREDICTED


def test_what_was_not_measured_has_no_twin() -> None:
    assert twins(PREDICTED, MEASURED[1:]) == PREDICTED[1:]


def test_what_the_harness_spoilt_is_valid_in_neither_world() -> None:
    measured = [replace(MEASURED[0], valid=False), *MEASURED[1:]]
    found = twins(PREDICTED, measured)
    assert [one.valid for one in found] == [False, True, True, True]
    assert all(one.valid for one in PREDICTED), "those on disk stay as they were"


def test_a_copied_failure_costs_itself_and_its_turn_not_the_rounds_before_it() -> None:
    measured = [
        record(turn=0, step=0, turn_rounds=2),
        failed(turn=0, step=1, turn_rounds=2),
        record(turn=1, turn_rounds=1),
    ]
    predicted = [
        measured[0],
        failed("as_measured", turn=0, step=1, turn_rounds=2),
        measured[2],
        failed("context_exceeded", turn=2),
    ]
    found = twins(predicted, measured)
    assert found == [measured[0], measured[2]], "the failure of a turn that was not asked neither"
    assert [turn.turn for turn in turns_of(found, {})] == [1]


def test_repeats_are_pooled_with_the_twins_of_what_each_measured() -> None:
    """One that the model has begin after the run ended is a twin all the same."""
    late = [replace(one, started_at_s=500.0) for one in PREDICTED]
    spoilt = [replace(MEASURED[0], valid=False), *MEASURED[1:3]]
    repeats = [
        Repeat(number, {"warmup_s": 0.0, "duration_s": 30.0}, spoilt, late) for number in (1, 2)
    ]
    ours, theirs = (pooled(repeats, world)[0] for world in ("measured", "predicted"))
    assert [one.request_id for one in theirs] == [one.request_id for one in ours]
    assert [one.valid for one in theirs] == [False, True, True] * 2
