"""Turns: what a person waited for, all rounds of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from headroom_bench.judge.waits import Phase, before_first_token, summed, while_writing
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

    @property
    def device_s(self) -> float: ...


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
    phases: Mapping[Phase, float] = field(default_factory=dict)
    """Seconds of the wait by where they went; what the records do not tell is missing. Empty where
    it failed."""
    error_kind: str | None = None
    """What ended it, where it failed."""
    user: int = 0
    conversation_id: str = ""
    turn: int = 0
    started_at_s: float = 0.0
    """When the person wanted to ask, on the run's clock."""
    too_slow: bool = False
    """In time, but written too slowly to read along."""
    in_flight: int | None = None
    """Most requests in flight when a round of it was sent, that one included."""
    broke_off: bool = False
    """It failed when its answer had begun."""

    @property
    def cause(self) -> Phase | None:
        """Where most of the wait went; decode where speed, not time, was missed."""
        if self.too_slow:
            return "decode"
        if not self.phases:
            return None
        return max(self.phases, key=lambda phase: self.phases[phase])

    def as_row(self) -> dict[str, Any]:
        """A line of turns.jsonl."""
        return {
            "persona": self.persona,
            "user": self.user,
            "conversation_id": self.conversation_id,
            "turn": self.turn,
            "started_at_s": self.started_at_s,
            "rounds": self.rounds,
            "wait_s": self.wait_s,
            "used": self.used,
            "met": self.met,
            "too_slow": self.too_slow,
            "failed": self.failed,
            "error_kind": self.error_kind,
            "cause": self.cause,
            **{f"{phase}_s": self.phases.get(phase) for phase in get_args(Phase)},
        }


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
    failed = next((record for record in rounds if not record.ok), None)
    wait_s = None if failed else _wait_s(rounds, target)
    used = None if wait_s is None or target is None else _used(wait_s, last, target)
    met = None if target is None else used is not None and used <= 1
    in_time = wait_s is not None and target is not None and wait_s <= target.limit_s
    in_flight = [r.concurrent_at_start for r in rounds if r.concurrent_at_start is not None]
    return Turn(
        last.persona,
        wait_s,
        len(rounds),
        used,
        met,
        failed is not None,
        {} if wait_s is None else _phases(rounds, wait_s - (target.device_s if target else 0.0)),
        failed.error_kind if failed else None,
        last.user,
        last.conversation_id,
        last.turn,
        rounds[0].started_at_s,
        in_time and met is False,
        max(in_flight, default=None),
        failed is not None and failed.ttft_s is not None,
    )


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


def _phases(rounds: list[RequestRecord], waited_s: float) -> dict[Phase, float]:
    """`waited_s`: without the device's own time, which is nobody's fault."""
    last = rounds[-1]
    # Of the last answer only what the person waited for.
    last_s = waited_s - sum(record.e2e_s or 0.0 for record in rounds[:-1])
    spent = summed([before_first_token(record) for record in rounds])
    for record in rounds:
        written = while_writing(record, last_s if record is last else math.inf)
        for phase, seconds in written.items():
            spent[phase] = spent.get(phase, 0.0) + seconds
    return spent
