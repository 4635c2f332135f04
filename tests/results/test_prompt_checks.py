"""What a run says of its prompts: cut, not cold, short answers, filler under drafts."""

from __future__ import annotations

from record_makers import failed, record

from headroom_bench.results.prompt_checks import is_cut, prompt_figures, prompt_warnings


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
    }


def test_unknown_is_null_not_zero() -> None:
    figures = prompt_figures([record(cached_tokens=None, asked_tokens=None)])
    assert figures["cached_share"] is figures["answered_share"] is None
    assert figures["shortfall_share"] is None
    assert prompt_figures([])["cached_share"] is None


def cut(number: int, sent: int, read: int) -> object:
    return record(number, sent_tokens=sent, prompt_tokens=read, truncated=True, reusable_tokens=99)


def test_cut_prompts_are_told_with_the_window() -> None:
    """Ollama's runner leaves num_ctx / 2 + 2 tokens of a message that is too long."""
    records = [cut(0, 9000, 2050), cut(1, 7000, 2050), record(2, reusable_tokens=99)]
    (told,) = prompt_warnings(records, filler=True)  # type: ignore[arg-type]
    assert told.startswith("2 of 3 prompts were cut by the server: of 8,000 tokens sent it counted")
    assert "exactly 2,050: a window of 2,050, or half of one of 4,096" in told


def test_an_answer_cut_at_the_context_is_no_cut_prompt() -> None:
    at_its_end = record(sent_tokens=100, prompt_tokens=100, truncated=True)
    assert not is_cut(at_its_end)
    assert prompt_warnings([record(reusable_tokens=40)], filler=True) == []


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
