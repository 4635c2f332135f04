"""How busy a server was, by its journal, within the window that all figures are of."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from record_makers import failed, record

from headroom_bench.experiments.journal_watch import JournalWatch, mark_truncated
from headroom_bench.experiments.server_clock import fill_queues, load_within
from headroom_bench.journal.tail import JournalTail
from headroom_bench.judge.verdict import Load
from headroom_bench.records import JournalRecord, RequestRecord
from headroom_bench.results.run_folder import RunFolder


def told(
    began_s: float, ended_s: float, request_id: str | None, instance: int = 0
) -> JournalRecord:
    return JournalRecord(
        "log", instance, 0, 0, t_launch_s=began_s, t_server_s=ended_s, request_id=request_id
    )


def test_busy_is_of_the_window_on_the_runs_clock() -> None:
    """The server's clock is 100 s ahead; what it did in the warm-up does not count."""
    asked = [record(user=n, end_s=end_s) for n, end_s in enumerate((8.0, 14.0))]
    journal = [
        told(102.0, 108.0, asked[0].request_id),
        told(110.0, 114.0, asked[1].request_id),
        told(113.0, 115.0, None),  # somebody else's: it kept the server busy too
    ]
    assert load_within(journal, asked, 0.0, 20.0).busy_share == pytest.approx(11 / 20)
    assert load_within(journal, asked, 10.0, 20.0).busy_share == pytest.approx(5 / 10)
    assert load_within(journal, asked, 7.0, 12.0).busy_share == pytest.approx(3 / 5)


def test_slots_are_all_taken_while_as_many_answers_are_under_way() -> None:
    """Ours from 2 to 8 and from 10 to 14, somebody else's from 13 to 15."""
    asked = [record(user=n, end_s=end_s) for n, end_s in enumerate((8.0, 14.0))]
    journal = [
        told(2.0, 8.0, asked[0].request_id),
        told(10.0, 14.0, asked[1].request_id),
        told(13.0, 15.0, None),
    ]
    shares = [
        load_within(journal, asked, 0.0, 20.0, slots).all_slots_share for slots in (1, 2, 3, None)
    ]
    assert shares == [pytest.approx(11 / 20), pytest.approx(1 / 20), 0.0, None]


def test_each_life_of_a_server_has_its_own_clock() -> None:
    asked = [record(user=n, end_s=end_s) for n, end_s in enumerate((4.0, 14.0))]
    journal = [
        told(52.0, 54.0, asked[0].request_id, 0),
        told(1.0, 5.0, asked[1].request_id, 1),
        told(0.0, 99.0, None, 2),
    ]
    assert load_within(journal, asked, 0.0, 20.0).busy_share == pytest.approx(6 / 20)


def test_a_queue_is_from_the_arrival_until_a_slot_took_the_request_up() -> None:
    """The server's clock is 100 s ahead, the way takes 0.2 s each way: sent at 1 and taken up at
    3.2, at once, and at a moment that the clocks' errors put after the reading of the prompt."""
    fields = {"sent_s": 1.0, "server_prefill_s": 0.5, "network_s": 0.4}
    asked = [
        record(user=0, ttft_s=2.9, end_s=8.2, **fields),
        record(user=1, ttft_s=0.9, end_s=9.2, **fields),
        record(user=2, ttft_s=1.0, end_s=7.2, **fields),
        record(user=3, ttft_s=2.0, end_s=6.0, **fields),
    ]
    journal = [
        told(103.2, 108.0, asked[0].request_id),
        told(101.19, 109.0, asked[1].request_id),
        told(101.4, 107.0, asked[2].request_id),
        told(103.0, 106.0, None),  # nobody's: it tells nothing of ours
    ]
    fill_queues(journal, asked, 0.4)
    queues = [each.server_queue_s for each in asked]
    assert queues == [pytest.approx(2.0), 0.0, pytest.approx(0.1), None]


def test_what_is_joined_to_nothing_tells_nothing() -> None:
    assert load_within([told(0.0, 5.0, None)], [record()], 0.0, 10.0) == Load()
    assert load_within([], [record()], 0.0, 10.0) == Load()


def test_what_the_journal_calls_truncated_is_of_the_requests_that_it_was_joined_to() -> None:
    asked = [record(user=user, truncated=False) for user in range(2)]
    whole, cut, others = told(1, 2, asked[0].request_id), told(3, 4, None), told(5, 6, None)
    cut.request_id = asked[1].request_id
    whole.truncated, cut.truncated, others.truncated = False, True, True
    mark_truncated([whole, cut, others], asked)
    assert [one.truncated for one in asked] == [False, True]


@pytest.mark.parametrize(
    ("asked", "warned"), [([record()], True), ([failed("context_exceeded")], False), ([], False)]
)
def test_answers_without_times_are_told_and_failures_are_none(
    asked: list[RequestRecord], warned: bool, tmp_path: Path
) -> None:
    """A server that refused everything has given no answer that could have carried times."""
    watch = JournalWatch(JournalTail(tmp_path / "log", "log"), records=[told(1.0, 2.0, None)])
    folder = RunFolder.create(tmp_path, "box", "demo", datetime(2026, 1, 2))
    warnings: list[str] = []
    watch.conclude(asked, folder, (0.0, 9.0), 2, 0.0, warnings.append)
    assert len(warnings) == warned
    assert all("the journal's 1 answer cannot be told apart" in line for line in warnings)
