"""Turns: what a person waited for, all rounds of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from headroom_bench.records import RequestRecord
from headroom_bench.results.statistics import is_extra


class TargetLike(Protocol):
    """What a persona calls a good answer (a crowd's `Target` is one)."""

    @property
    def metric(self) -> Literal["ttft", "ttfv", "e2e"]: ...

    @property
    def limit_s(self) -> float: ...

    @property
    def min_tok_s(self) -> float | None: ...

    @property
    def share(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """One ask and its answer. `wait_s` and `used` are None where no answer came."""

    persona: str
    wait_s: float | None
    rounds: int
    used: float | None
    """Share of what is allowed that was used: the larger of wait / limit and required rate /
    actual rate. None without a target."""
    met: bool | None
    """None without a target."""
    failed: bool


def turns_of(
    records: Iterable[RequestRecord], targets: Mapping[str, TargetLike | None]
) -> list[Turn]:
    """Groups requests into turns.

    Turns that the window cut (their first or last rounds are not there) are left out, for their
    wait would be short by what is missing; so are those that the harness spoilt.
    """
    grouped: dict[tuple[str, int, str, int], list[RequestRecord]] = {}
    for record in records:
        if not is_extra(record):
            key = (record.persona, record.user, record.conversation_id, record.turn)
            grouped.setdefault(key, []).append(record)
    turns = []
    for rounds in grouped.values():
        rounds.sort(key=lambda record: record.round)
        if _whole(rounds) and all(record.valid for record in rounds):
            turns.append(_turn(rounds, targets.get(rounds[0].persona)))
    return turns


def _whole(rounds: list[RequestRecord]) -> bool:
    """Whether every round of the script is there, up to the failure that ended the turn."""
    if [record.round for record in rounds] != list(range(len(rounds))):
        return False
    last = rounds[-1]
    return not last.ok or last.turn_rounds is None or len(rounds) >= last.turn_rounds


def _turn(rounds: list[RequestRecord], target: TargetLike | None) -> Turn:
    last = rounds[-1]
    failed = not all(record.ok for record in rounds)
    wait_s = None if failed else _wait_s(rounds, target)
    if target is None:
        return Turn(last.persona, wait_s, len(rounds), None, None, failed)
    used = None if wait_s is None else _used(wait_s, last, target)
    return Turn(last.persona, wait_s, len(rounds), used, used is not None and used <= 1, failed)


def _wait_s(rounds: list[RequestRecord], target: TargetLike | None) -> float | None:
    """Whole earlier rounds, then the last one up to what the person waits for."""
    last = rounds[-1]
    metric = target.metric if target else "e2e"
    final = {"ttft": last.ttft_s, "ttfv": last.ttfv_s, "e2e": last.e2e_s}[metric]
    if final is None:
        return None
    return sum(record.e2e_s or 0.0 for record in rounds[:-1]) + final


def _used(wait_s: float, last: RequestRecord, target: TargetLike) -> float:
    used = wait_s / target.limit_s
    if target.min_tok_s is not None and last.decode_tok_s:
        used = max(used, target.min_tok_s / last.decode_tok_s)
    return used
