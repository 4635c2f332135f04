from __future__ import annotations

import pytest
from journal_captures import SUITE, records_of, server_timings

from headroom_bench.journal.join import ServerTimings, join
from headroom_bench.records import JournalRecord


def record(task: int, prompt_ms: float = 10.0, eval_ms: float = 60.0, **more) -> JournalRecord:
    return JournalRecord(
        "test",
        0,
        0,
        task,
        prompt_eval_tokens=5,
        prompt_ms=prompt_ms,
        gen_tokens=3,
        eval_ms=eval_ms,
        outcome="done",
        **more,
    )


def request(name: str, prompt_ms: float = 10.0, eval_ms: float = 60.0) -> ServerTimings:
    return ServerTimings(name, 5, 7, prompt_ms, 3, eval_ms)


def ids(records):
    return [r.request_id for r in records]


def test_foreign_traffic_is_counted():
    records = records_of("b11549/journal/suite-np2-lv3.log")
    report = join(records, server_timings("b11549", SUITE[:10]))
    assert report.matched_share == 1
    assert report.matched == 11  # one response has two choices
    assert (report.records, report.unmatched_records) == (25, 14)
    foreign = [r for r in records if r.join_method == "none"]
    tokens = [(r.prompt_eval_tokens or 0) + (r.gen_tokens or 0) for r in foreign]
    total = sum((r.prompt_eval_tokens or 0) + (r.gen_tokens or 0) for r in records)
    assert report.unmatched_token_share == pytest.approx(sum(tokens) / total)


def test_a_ghost_of_an_empty_prompt_takes_nobodys_record():
    records = records_of("b9713/journal/suite-np2.log")
    names = ["native_completion_stream", "err_empty_prompt"]
    report = join(records, server_timings("b9713", names))
    assert report.unmatched_requests == ("err_empty_prompt",)
    assert not report.may_print_server_rates


def test_microseconds_are_rounded_as_the_server_prints_them():
    records = [record(1, 8509.85, 54239.52)]
    report = join(records, [request("a", 8509.853, 54239.516)])
    assert (ids(records), records[0].join_method) == (["a"], "exact")
    assert report.ambiguous == 0


def test_lockstep_is_paired_in_order_and_flagged():
    records = [record(1), record(2), record(3, 11.0)]
    report = join(records, [request("c", 11.0), request("a"), request("b")])
    assert ids(records) == ["a", "b", "c"]
    assert [r.ambiguous for r in records] == [True, True, False]
    assert (report.matched, report.ambiguous) == (3, 2)


@pytest.mark.parametrize("spare", ["record", "request"])
def test_equal_keys_in_unequal_number_are_left_alone(spare):
    records = [record(1), record(2)] if spare == "record" else [record(1)]
    requests = [request("a")] if spare == "record" else [request("a"), request("b")]
    report = join(records, requests)
    assert all(r.request_id is None and r.ambiguous for r in records)
    assert report.matched == 0
    assert report.ambiguous == len(requests) == len(report.unmatched_requests)
    assert not report.may_print_server_rates


def test_a_hundredth_off_is_forgiven_only_when_unique():
    near = [record(1, 10.01, 59.99)]
    assert join(near, [request("a")]).matched == 1
    assert join([record(1, 10.02)], [request("a")]).matched == 0
    assert join([record(1, 10.01), record(2, 9.99)], [request("a")]).matched == 0
    assert join([record(1, 10.01)], [request("a"), request("b", 10.02)]).matched == 0


def test_joining_again_starts_afresh():
    records = [record(1), record(2)]
    join(records, [request("a"), request("b")])
    report = join(records, [])
    assert ids(records) == [None, None]
    assert not any(r.ambiguous for r in records)
    assert report.matched_share is None
    assert not report.may_print_server_rates


def test_records_without_a_block_match_nothing():
    empty = JournalRecord("test", 0, 0, 1, outcome="cancelled")
    report = join([empty], [request("a")])
    assert (report.matched, report.unmatched_token_share) == (0, None)


def test_without_a_request_to_find_nobody_else_is_found_either():
    record = JournalRecord("test", 0, 0, 1, outcome="done", prompt_eval_tokens=5, gen_tokens=9)
    report = join([record], [])
    assert (report.unmatched_records, report.unmatched_token_share) == (1, None)


def test_the_response_corrects_the_cache_of_a_speculating_record():
    drafted = record(1, draft_tokens=8, accepted_tokens=8, cached_tokens=8)
    plain = record(2, 11.0, cached_tokens=8)
    join([drafted, plain], [request("a"), request("b", 11.0)])
    assert (drafted.cached_tokens, plain.cached_tokens) == (7, 8)
