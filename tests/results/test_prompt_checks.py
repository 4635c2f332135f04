"""What a run says of its prompts: cut, not cold, short answers, filler under drafts."""

from __future__ import annotations

from typing import Any

import pytest
from record_makers import failed, record

from headroom_bench.measures import answer_was_cut
from headroom_bench.records import RequestRecord
from headroom_bench.results.prompt_checks import prompt_figures, prompt_warnings


def test_shares_are_of_tokens_not_of_requests() -> None:
    figures = prompt_figures(
        [
            record(prompt_tokens=900, cached_tokens=800, asked_tokens=100, completion_tokens=100),
            record(1, prompt_tokens=100, cached_tokens=0, asked_tokens=100, completion_tokens=20),
        ]
    )
    assert figures == {
        "cached_share": 0.8,
        "answered_share": 0.6,
        "shortfall_share": 0.5,
        "cut_prompts": 0,
        "cut_answers": 0,
    }


def test_unknown_is_null_not_zero() -> None:
    figures = prompt_figures([record(cached_tokens=None, asked_tokens=None)])
    assert figures["cached_share"] is figures["answered_share"] is None
    assert figures["shortfall_share"] is None
    assert prompt_figures([])["cached_share"] is None


def cut(number: int, sent: int, read: int) -> object:
    return record(number, sent_tokens=sent, prompt_tokens=read, prompt_cut=True, reusable_tokens=99)


def test_cut_prompts_are_told_with_the_window() -> None:
    """Ollama's runner leaves num_ctx / 2 + 2 tokens of a message that is too long."""
    records = [cut(0, 9000, 2050), cut(1, 7000, 2050), record(2, reusable_tokens=99)]
    (told,) = prompt_warnings(records, filler=True)  # type: ignore[arg-type]
    assert told.startswith("2 of 3 prompts were cut by the server: of 8,000 tokens sent it counted")
    assert "exactly 2,050: a window of 2,050, or half of one of 4,096" in told


def answer(number: int, made: int, **fields: Any) -> RequestRecord:
    told = {"finish_reason": "length", "tokens_source": "usage", "asked_tokens": 300}
    return record(number, completion_tokens=made, reusable_tokens=99, **(told | fields))


def test_answers_that_the_server_cut_are_told_and_are_no_cut_prompts() -> None:
    records = [answer(n, made) for n, made in enumerate((148, 150, 152, 300, 300))]
    (told,) = prompt_warnings(records, filler=True)
    assert told.startswith(
        "3 of 5 answers were cut by the server: of 300 tokens asked for they have 150 (medians)"
    )
    figures = prompt_figures(records)
    assert (figures["cut_answers"], figures["cut_prompts"]) == (3, 0)


def test_what_only_the_journal_calls_truncated_is_told_as_such() -> None:
    """llama.cpp under --context-shift: the answer has its length."""
    (told,) = prompt_warnings([answer(0, 300, truncated=True), answer(1, 300)], filler=True)
    assert told.startswith("1 of 2 answers went beyond the context")


@pytest.mark.parametrize(
    "whole",
    [
        {"finish_reason": "stop"},
        {"finish_reason": "tool_calls"},
        {"made": 299},
        {"made": 295},  # within 2 %
        {"tokens_source": "events"},  # several tokens may share one
        {"stream_events": 300},  # hidden tokens that the server does not count
        {"reasoning_tokens": 300},
        {"asked_tokens": None},
        {"ok": False},
    ],
)
def test_other_short_answers_were_cut_by_nobody(whole: dict[str, Any]) -> None:
    assert answer_was_cut(answer(0, 148))
    assert not answer_was_cut(answer(0, whole.pop("made", 148), **whole))


def test_a_warm_first_request_is_told() -> None:
    records = [
        record(0, cached_tokens=900, reusable_tokens=8),
        record(1, cached_tokens=24, reusable_tokens=8),
        record(2, turn=1, cached_tokens=900, reusable_tokens=8),
        record(3, extra="title", cached_tokens=900, reusable_tokens=8),
        record(4, cached_tokens=None, reusable_tokens=8),
        failed(cached_tokens=900, reusable_tokens=8),
    ]
    (told,) = prompt_warnings(records, filler=True)
    assert told.startswith("1 of 2 first requests were not cold: the server had 892 tokens")


def test_drafts_on_filler_are_labelled_so() -> None:
    drafted = [record(draft_tokens=10, accepted_tokens=7, reusable_tokens=99)]
    (told,) = prompt_warnings(drafted, filler=True)
    assert told.startswith("drafts were accepted at 70%, but prompts are filler")
    assert prompt_warnings(drafted, filler=False) == []


@pytest.mark.parametrize(
    ("asked", "made", "told"),
    [(24, 900, True), (24, 25, False), (500, 512, False), (500, 520, True)],
)
def test_answers_longer_than_asked_are_told(asked: int, made: int, told: bool) -> None:
    sizes = {"asked_tokens": asked, "completion_tokens": made, "cached_tokens": 0}
    answers = [record(**sizes, tokens_source="usage")] * 3
    found = [line for line in prompt_warnings(answers, filler=True) if "longer than asked" in line]
    assert len(found) == told
    if told:
        assert found[0].startswith(f"3 of 3 answers are longer than asked: of {asked} tokens at")
    assert not prompt_warnings([record(**sizes, tokens_source="events")], filler=True)
