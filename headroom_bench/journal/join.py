"""Which record of the server's journal belongs to which of our requests.

A llama.cpp response's `timings` object and the journal's block are printed from one struct, so
(prompt tokens, prompt ms, generated tokens, generation ms), the times at two decimals, is an
exact key: microseconds make chance collisions practically nil. Requests that run in lockstep can
still have equal times; such matches are marked ambiguous.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headroom_bench.records import JournalRecord

MIN_MATCHED_SHARE = 0.95

_Key = tuple[int, int, int, int]
"""prompt_n, prompt time, predicted_n, predicted time; times in hundredths of a millisecond."""


@dataclass(frozen=True, slots=True)
class ServerTimings:
    """The `timings` object of one response's last event. Times in milliseconds."""

    request_id: str
    prompt_n: int
    """Prompt tokens evaluated, the cached ones not among them."""
    cache_n: int | None
    """Prompt tokens taken from the cache, where the server tells."""
    prompt_ms: float
    predicted_n: int
    predicted_ms: float


@dataclass(frozen=True, slots=True)
class JoinReport:
    """How well the two sides met. Counts are of requests unless their name says records."""

    requests: int
    matched: int
    ambiguous: int
    """Requests whose key occurs more than once on either side, matched or not."""
    unmatched_requests: tuple[str, ...]
    """Their ids, in the order given."""
    records: int
    unmatched_records: int
    """Other clients' traffic, and requests of ours that ended without `timings`."""
    unmatched_token_share: float | None
    """Tokens (prompt evaluated + generated) of the unmatched records over those of all records;
    None when the journal holds no tokens, and when no response had `timings` to find it by."""

    @property
    def matched_share(self) -> float | None:
        """matched / requests; None without requests."""
        return self.matched / self.requests if self.requests else None

    @property
    def may_print_server_rates(self) -> bool:
        """False when so few requests were found that the server's rates would mislead."""
        return self.matched_share is not None and self.matched_share >= MIN_MATCHED_SHARE


def join(records: Sequence[JournalRecord], requests: Sequence[ServerTimings]) -> JoinReport:
    """Sets `request_id`, `join_method` and `ambiguous` of the records in place.

    Equal keys are paired in their order if both sides have equally many of them, and left alone
    otherwise; flagged ambiguous either way. What then remains may differ by 0.01 ms a time, if
    only one record and one request come into question. A joined record that speculated takes its
    cached tokens from the response: the journal's own count can be one too high there.
    """
    for record in records:
        record.request_id, record.join_method, record.ambiguous = None, "none", False
    free_records, free_requests = _groups(records, requests)
    pairs: list[tuple[JournalRecord, ServerTimings]] = []
    ambiguous = 0
    for key in [key for key in free_requests if key in free_records]:
        ours, theirs = free_requests[key], free_records[key]
        if len(ours) > 1 or len(theirs) > 1:
            ambiguous += len(ours)
            for record in theirs:
                record.ambiguous = True
        if len(ours) == len(theirs):
            pairs += zip(theirs, ours, strict=True)
        del free_requests[key], free_records[key]
    pairs += _near_pairs(free_records, free_requests)
    for record, request in pairs:
        _tie(record, request)
    return _report(records, requests, [request for _, request in pairs], ambiguous)


def _groups(
    records: Sequence[JournalRecord], requests: Sequence[ServerTimings]
) -> tuple[dict[_Key, list[JournalRecord]], dict[_Key, list[ServerTimings]]]:
    by_record: dict[_Key, list[JournalRecord]] = defaultdict(list)
    by_request: dict[_Key, list[ServerTimings]] = defaultdict(list)
    for record in records:
        if (key := _record_key(record)) is not None:
            by_record[key].append(record)
    for request in requests:
        by_request[_request_key(request)].append(request)
    return by_record, by_request


def _record_key(record: JournalRecord) -> _Key | None:
    if record.prompt_eval_tokens is None or record.gen_tokens is None:
        return None
    if record.prompt_ms is None or record.eval_ms is None:
        return None
    return (
        record.prompt_eval_tokens,
        _hundredths(record.prompt_ms),
        record.gen_tokens,
        _hundredths(record.eval_ms),
    )


def _request_key(request: ServerTimings) -> _Key:
    return (
        request.prompt_n,
        _hundredths(request.prompt_ms),
        request.predicted_n,
        _hundredths(request.predicted_ms),
    )


def _hundredths(ms: float) -> int:
    # C and Python round the same double to the same two decimals, so printing is the test.
    return int(f"{ms:.2f}".replace(".", ""))


def _near_pairs(
    records: dict[_Key, list[JournalRecord]], requests: dict[_Key, list[ServerTimings]]
) -> Iterable[tuple[JournalRecord, ServerTimings]]:
    near = {key: [other for other in _neighbours(key) if other in records] for key in requests}
    rivals: dict[_Key, int] = defaultdict(int)
    for others in near.values():
        for other in others:
            rivals[other] += 1
    for key, others in near.items():
        if len(others) == 1 and rivals[others[0]] == 1:
            ours, theirs = requests[key], records[others[0]]
            if len(ours) == len(theirs) == 1:
                yield theirs[0], ours[0]


def _neighbours(key: _Key) -> Iterable[_Key]:
    steps = (-1, 0, 1)
    return ((key[0], key[1] + i, key[2], key[3] + j) for i in steps for j in steps)


def _tie(record: JournalRecord, request: ServerTimings) -> None:
    record.request_id, record.join_method = request.request_id, "exact"
    if record.draft_tokens is not None and request.cache_n is not None:
        record.cached_tokens = request.cache_n


def _report(
    records: Sequence[JournalRecord],
    requests: Sequence[ServerTimings],
    found: Sequence[ServerTimings],
    ambiguous: int,
) -> JoinReport:
    met = {id(request) for request in found}
    others = [record for record in records if record.join_method == "none"]
    total = sum(map(_tokens, records))
    return JoinReport(
        requests=len(requests),
        matched=len(found),
        ambiguous=ambiguous,
        unmatched_requests=tuple(r.request_id for r in requests if id(r) not in met),
        records=len(records),
        unmatched_records=len(others),
        unmatched_token_share=sum(map(_tokens, others)) / total if total and requests else None,
    )


def _tokens(record: JournalRecord) -> int:
    return (record.prompt_eval_tokens or 0) + (record.gen_tokens or 0)
