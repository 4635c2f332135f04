"""The parser against journals that real servers wrote."""

from __future__ import annotations

import pytest
from journal_captures import (
    CAPTURES,
    LLAMACPP,
    PARALLEL,
    SUITE,
    by_task,
    final_events,
    only_records,
    parse,
    records_of,
    server_timings,
    timings_of,
    usage_of,
    whole_lines,
)

from headroom_bench.journal.join import join
from headroom_bench.journal.llamacpp import LlamaCppParser
from headroom_bench.records import JournalSample


@pytest.mark.parametrize(
    ("path", "rule", "expected"),
    [
        ("b9713/journal/two-slots.log", "n", {0: (9, 0, 60), 2: (97, 0, 16), 62: (1, 8, 8)}),
        ("b10809/journal/two-slots.log", "n-1", {0: (9, 0, 60), 2: (97, 0, 16), 62: (1, 8, 8)}),
        (
            "b11549/journal/lv3-colors-ansi.log",
            "n-1",
            {0: (39, 0, 40), 2: (101, 0, 12), 42: (1, 38, 6)},
        ),
        (
            "b11549/journal/lv3-prefix-notimestamps.log",
            "n-1",
            {0: (39, 0, 40), 2: (101, 0, 12), 42: (1, 38, 6)},
        ),
        (
            "b11549/journal/lv4-noprefix-notimestamps-ollama-style.log",
            "n-1",
            {0: (39, 0, 40), 2: (101, 0, 12), 42: (1, 38, 6)},
        ),
        (
            "b11549/journal/np2-lv4-cache.log",
            "n-1",
            {0: (39, 0, 110), 2: (451, 0, 30), 112: (1, 38, 8), 121: (13, 24, 8), 130: (1, 38, 8)},
        ),
    ],
)
def test_evaluated_cached_and_generated_tokens(path, rule, expected):
    records = by_task(records_of(path))
    found = {
        task: (record.prompt_eval_tokens, record.cached_tokens, record.gen_tokens)
        for task, record in records.items()
    }
    assert found.items() >= expected.items()
    assert {record.rate_rule for record in records.values()} == {rule}
    assert {record.outcome for record in records.values()} == {"done"}
    assert {record.instance for record in records.values()} == {0}


def test_one_record_in_full():
    record = by_task(records_of(PARALLEL))[4]
    assert record.as_row() == {
        "source": "test",
        "instance": 0,
        "slot": 0,
        "task": 4,
        "t_launch_s": 11.419654,
        "t_server_s": 14.190257,
        "t_wall": None,
        "prompt_eval_tokens": 15,
        "cached_tokens": 24,
        "prompt_ms": 322.03,
        "gen_tokens": 40,
        "eval_ms": 2447.59,
        "rate_rule": "n-1",
        "draft_tokens": None,
        "accepted_tokens": None,
        "truncated": False,
        "outcome": "done",
        "request_id": None,
        "join_method": "none",
        "ambiguous": False,
    }


def test_cancelled_while_generating_in_a_long_prompt_and_in_the_queue():
    records = by_task(records_of(PARALLEL))
    assert len(records) == 9
    cancelled = {task: r for task, r in records.items() if r.outcome == "cancelled"}
    assert set(cancelled) == {153, 198, 203}
    # Gave up while generating: no block was printed.
    assert (cancelled[153].slot, cancelled[153].gen_tokens) == (1, None)
    # Gave up in its prompt: the server finished the pass and printed a block for nobody.
    assert (cancelled[198].prompt_eval_tokens, cancelled[198].gen_tokens) == (1809, 1)
    assert cancelled[198].t_server_s == pytest.approx(87.240574)
    # Gave up in the queue: it never had a slot.
    assert (cancelled[203].slot, cancelled[203].t_launch_s) == (-1, None)
    assert cancelled[203].t_server_s == pytest.approx(48.038702)


def test_a_queued_cancel_is_told_once_the_server_has_moved_on():
    parser = LlamaCppParser("test")
    told = [r.task for line in whole_lines(PARALLEL) for r in only_records(parser.feed(line))]
    assert told.index(203) == told.index(198) - 1
    assert parser.close() == []


def test_in_flight_samples():
    entries = parse(whole_lines(PARALLEL))
    (sample,) = [entry for entry in entries if isinstance(entry, JournalSample)]
    assert sample.as_row() == {
        "source": "test",
        "instance": 0,
        "slot": 1,
        "task": 0,
        "gen_tokens": 100,
        "t_server_s": 14.133991,
        "t_wall": None,
        "tok_s": 9.30,
        "tok_s_3s": 9.39,
    }


def test_the_first_form_of_the_in_flight_line_has_no_window():
    line = "1.02.003.004 I slot print_timing: id  3 | task 7 | n_decoded =    172, tg =  12.00 t/s"
    (sample,) = LlamaCppParser("test").feed(line)
    assert sample == JournalSample("test", 0, 3, 7, 172, 62.003004, None, 12.0, None)


def test_context_exhausted_in_a_shared_cache():
    path = LLAMACPP / "b11549/journal/lv3-kv-unified-exhausted.log"
    entries = parse(whole_lines(path))
    records = by_task(only_records(entries))
    # The clients' cancels come after the releases and make no record of their own.
    assert {t: r.outcome for t, r in records.items()} == {0: "error", 2: "error", 230: "done"}
    assert records[0].gen_tokens is None
    assert records[230].truncated is True
    assert (records[230].cached_tokens, records[230].gen_tokens) == (0, 480)
    assert len(entries) - len(records) == 9


def test_speculation_tells_drafts_and_the_exact_cache():
    records = by_task(records_of("b11549/journal/spec-draft-simple-lv4.log"))
    drafts = {t: (r.draft_tokens, r.accepted_tokens) for t, r in records.items()}
    assert drafts == {0: (8, 8), 4: (31, 31)}
    # The release line alone would say 1: the drafted end of text is in the slot.
    assert records[0].cached_tokens == 0
    assert records_of("b11549/journal/spec-ngram-simple-lv4.log")[0].draft_tokens is None


def test_a_ghost_block_of_an_empty_prompt_is_no_record():
    assert 125 not in by_task(records_of("b9713/journal/suite-np2.log"))
    assert 363 not in by_task(records_of("b11549/journal/suite-np2-lv3.log"))


def test_rates_of_one_token_tell_no_rule():
    for path, task in (
        ("b9713/journal/suite-np2.log", 63),  # prints 1000000.00 tokens per second
        ("b11549/journal/suite-np2-lv3.log", 147),  # prints 0.00
    ):
        record = by_task(records_of(path))[task]
        assert (record.gen_tokens, record.eval_ms, record.rate_rule) == (1, 0.0, None)


def test_a_second_life_in_one_file_raises_the_instance():
    records = records_of("b11549/journal/reasoning-tools-ping.log")
    keys = [(record.instance, record.task) for record in records]
    assert keys == [(0, 0), (0, 9), (0, 27), (1, 0), (1, 75)]


def test_windows_line_ends():
    crlf = CAPTURES / "derived-from-real-lines/windows-crlf.log"
    with crlf.open("rb") as file:
        raw = [line.decode() for line in file]
    assert raw[0].endswith("\r\n")
    assert parse(raw) == parse(whole_lines(crlf)) == parse(whole_lines(PARALLEL))


@pytest.mark.parametrize(
    ("build", "journal", "names", "matched"),
    [
        ("b11549", "suite-np2-lv3", SUITE, 23),
        (
            "b9713",
            "suite-np2",
            [
                "chat_max_tokens_1",
                "chat_stream",
                "chat_stream_timings_per_token",
                "chat_stream_tools",
                "chat_stream_usage",
                "native_completion_stream",
                "oai_completion_stream_usage",
            ],
            7,
        ),
        (
            "b11549",
            "spec-draft-simple-lv4",
            ["chat_stream_spec_draft", "native_stream_spec_draft"],
            2,
        ),
        (
            "b11549",
            "spec-ngram-simple-lv4",
            ["chat_stream_spec_ngram", "native_stream_spec_ngram"],
            2,
        ),
        ("b11549", "lv3-kv-unified-exhausted", ["chat_stream_ctx_full"], 1),
        (
            "b11549",
            "reasoning-tools-ping",
            [
                "chat_stream_ping_1s",
                "chat_stream_reasoning_content",
                "chat_stream_reasoning_none",
                "chat_stream_reasoning_then_content",
                "chat_stream_tool_calls",
            ],
            5,
        ),
    ],
)
def test_every_response_finds_its_record(build, journal, names, matched):
    records = records_of(f"{build}/journal/{journal}.log")
    report = join(records, server_timings(build, names))
    assert (report.matched, report.requests, report.ambiguous) == (matched, matched, 0)
    assert report.unmatched_requests == ()
    assert report.may_print_server_rates
    checked = 0
    for name in names:
        for event in final_events(LLAMACPP / build / "http" / f"{name}.resp"):
            checked += _tokens_agree(records, event, name)
    assert checked >= matched // 2


def _tokens_agree(records, event, name) -> bool:
    """cached + evaluated = the prompt, generated = the completion, as the response counts."""
    timings = timings_of(event, name)
    (record,) = [
        record
        for record in records
        if record.request_id == name and f"{timings.prompt_ms:.2f}" == f"{record.prompt_ms:.2f}"
    ]
    assert record.outcome == "done"
    assert record.cached_tokens == timings.cache_n
    usage = usage_of(event)
    if usage is None:
        return False
    assert (record.cached_tokens + record.prompt_eval_tokens, record.gen_tokens) == usage
    return True
