"""Whether prompts were what they were meant to be: cut, warmed by a cache, or only filler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from headroom_bench.measures import answer_was_cut, quantile
from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import is_extra

_OVER_SHARE, _OVER_TOKENS = 0.02, 4
CACHE_SLACK_TOKENS = 16
"""Cached tokens beyond what was sent before that say nothing: a block of a paged cache."""


def prompt_figures(records: Sequence[RequestRecord]) -> dict[str, Any]:
    """Shares over the successes of one persona; None where the server does not tell.

    cached_share: of their prompt tokens, those that the server did not have to read.
    answered_share: tokens of the answers over tokens that were asked for. shortfall_share: answers
    that ended before they had as many as asked for. cut_prompts and cut_answers: how many of each
    the server cut.
    """
    told = [r for r in records if r.cached_tokens is not None and r.prompt_tokens]
    read = sum(r.prompt_tokens or 0 for r in told)
    counted = [r for r in records if r.completion_tokens is not None and r.asked_tokens]
    asked = sum(r.asked_tokens or 0 for r in counted)
    short = sum((r.completion_tokens or 0) < (r.asked_tokens or 0) for r in counted)
    return {
        "cached_share": sum(r.cached_tokens or 0 for r in told) / read if read else None,
        "answered_share": sum(r.completion_tokens or 0 for r in counted) / asked if asked else None,
        "shortfall_share": short / len(counted) if counted else None,
        "cut_prompts": sum(record.prompt_cut is True for record in records),
        "cut_answers": sum(answer_was_cut(record) for record in records),
    }


def prompt_warnings(records: Sequence[RequestRecord], filler: bool) -> list[str]:
    """What the reader has to know of the prompts before believing the figures."""
    good = [record for record in records if record.ok]
    return [
        *_cut(good),
        *_cut_answers(good),
        *_unbounded(good),
        *_warm(good),
        *(_filler_drafts(good) if filler else []),
    ]


def _cut(records: Sequence[RequestRecord]) -> list[str]:
    cut = [record for record in records if record.prompt_cut]
    if not cut:
        return []
    sent = quantile(sorted(r.sent_tokens or 0 for r in cut), 0.5)
    counts = Counter(r.prompt_tokens or 0 for r in cut)
    read = quantile(sorted(counts.elements()), 0.5)
    usual, times = counts.most_common(1)[0]
    told = (
        f"{len(cut)} of {len(records)} prompts were cut by the server: of {sent:,.0f} tokens sent "
        f"it counted {read:,.0f} (medians)"
    )
    if times > 1 and times >= len(cut) / 2:
        # Ollama's runner keeps num_ctx / 2 + 2 tokens of a message that is too long; its chat
        # route drops old messages until the rest fits.
        window = 2 * (usual - 2)
        told += f"; often exactly {usual:,}: a window of {usual:,}, or half of one of {window:,}"
    return [f"{told}. Give the server a larger context, or send less"]


def _cut_answers(records: Sequence[RequestRecord]) -> list[str]:
    cut = [record for record in records if answer_was_cut(record)]
    # What a journal alone knows: the answer went on, over what stood first in the context.
    shifted = [r for r in records if r.truncated and not r.prompt_cut and not answer_was_cut(r)]
    found = []
    if cut:
        asked = quantile(sorted(r.asked_tokens or 0 for r in cut), 0.5)
        made = quantile(sorted(r.completion_tokens or 0 for r in cut), 0.5)
        found.append(
            f"{len(cut)} of {len(records)} answers were cut by the server: of {asked:,.0f} tokens "
            f"asked for they have {made:,.0f} (medians). Its context was full, or it has a limit "
            "of its own: give it a larger context, or ask for less"
        )
    if shifted:
        found.append(
            f"{len(shifted)} of {len(records)} answers went beyond the context: by its journal the "
            "server threw away what stood first in it"
        )
    return found


def _unbounded(records: Sequence[RequestRecord]) -> list[str]:
    """Answers longer than they were allowed to be; a token or two may be the template's."""
    known = [r for r in records if r.asked_tokens and r.tokens_source != "events"]
    long = [
        r for r in known
        if (r.completion_tokens or 0) > (r.asked_tokens or 0) * (1 + _OVER_SHARE) + _OVER_TOKENS
    ]  # fmt: skip
    if not long:
        return []
    asked = quantile(sorted(r.asked_tokens or 0 for r in long), 0.5)
    made = quantile(sorted(r.completion_tokens or 0 for r in long), 0.5)
    return [
        f"{len(long)} of {len(records)} answers are longer than asked: of {asked:,.0f} tokens at "
        f"most they have {made:,.0f} (medians). The server does not heed max_tokens"
    ]


def _warm(records: Sequence[RequestRecord]) -> list[str]:
    """First requests of conversations should find nothing but the template, and what others sent
    of the same text in this run."""
    first = [
        r
        for r in records
        if r.turn == r.round == 0 and not is_extra(r) and r.cached_tokens is not None
    ]
    warm = [
        r for r in first if (r.cached_tokens or 0) > (r.reusable_tokens or 0) + CACHE_SLACK_TOKENS
    ]
    if not warm:
        return []
    extra = quantile(sorted((r.cached_tokens or 0) - (r.reusable_tokens or 0) for r in warm), 0.5)
    return [
        f"{len(warm)} of {len(first)} first requests were not cold: the server had {extra:,.0f} "
        "tokens of them in its cache (median) that this run had not sent before; their TTFT is "
        "too good"
    ]


def _filler_drafts(records: Sequence[RequestRecord]) -> list[str]:
    drafted = sum(record.draft_tokens or 0 for record in records)
    if not drafted:
        return []
    accepted = sum(record.accepted_tokens or 0 for record in records)
    return [
        f"drafts were accepted at {accepted / drafted:.0%}, but prompts are filler: real text "
        "gives other rates (and other decode speeds); use --prompts file:SESSIONS.jsonl"
    ]
