"""What a former part of a run left: where its clock stood, whom it left in which conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headroom_bench.crowd.conversation import Conversation
from headroom_bench.crowd.crowd import Crowd, User
from headroom_bench.errors import UserError
from headroom_bench.experiments.harness import Harness
from headroom_bench.experiments.journal_watch import EarlierJournal
from headroom_bench.experiments.run_options import RunOptions
from headroom_bench.live.probe import TargetFacts
from headroom_bench.records import RequestRecord
from headroom_bench.results.resumption import Talk, talk_of
from headroom_bench.results.statistics import is_extra
from headroom_bench.units import counted

_MOST_DIGITS = 12
"""Of a conversation's number."""


@dataclass(frozen=True, slots=True)
class Resumption:
    """When a run was taken up, and with what; a row of the manifest."""

    at: str
    status_before: str | None
    clock_s: float
    """Where the run's clock stood, life seconds."""
    kept_requests: int
    held_again: list[str]
    """Conversations."""
    headroom_bench: str
    twice: int = 0
    """Records that stood there twice, and were dropped once."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Empty where a run begins."""

    records: list[RequestRecord] = field(default_factory=list)
    """Those of conversations that had ended."""
    aside: list[RequestRecord] = field(default_factory=list)
    """Those of conversations that are held again, from all former parts: they count as what the
    server had to do."""
    journal: EarlierJournal = field(default_factory=EarlierJournal)
    """What the server's journal told of it."""
    ended_s: float = 0.0
    """Where the run's clock stood at its end, life seconds."""
    first_talks: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """The number of the first conversation of (persona, user) that had not ended."""
    harness: Harness = field(default_factory=Harness)
    """What the client saw of itself."""
    facts: TargetFacts | None = None
    """What the server had told of itself."""
    resumptions: list[Resumption] = field(default_factory=list)

    def left(self, options: RunOptions) -> bool:
        """Whether there is anything left to ask."""
        return options.leaves(self.ended_s, len(self.records))

    def notes(self) -> list[str]:
        """What the reader has to know of a run that was taken up."""
        told = [
            f"taken up at {row.clock_s:.1f} s: {len(row.held_again)} conversations were held "
            "again, with new text and whatever the server's cache still knew"
            for row in self.resumptions
        ]
        if self.aside:
            told.append(
                f"{counted(len(self.aside), 'request')} of these, asked before, are in the rates "
                "and in busy, but not in the prediction: its box has less to do"
            )
        twice = sum(row.twice for row in self.resumptions)
        if twice:
            told.append(f"{twice} records stood twice in requests.jsonl; each is counted once")
        return told

    def check_model(self, model: str | None) -> None:
        """Raises `UserError` where the server now serves another model."""
        former = None if self.facts is None else self.facts.model
        if former is not None and model is not None and model != former:
            raise UserError(
                f"another target: the run was against the model {former}, and the server has "
                f"{model} now; start a new run"
            )


def unfinished_talks(records: Iterable[RequestRecord], crowd: Crowd) -> set[Talk]:
    """The conversations of which something is recorded, but not their end.

    Raises:
        UserError: a record is of none that the crowd can have had.
    """
    talks: dict[Talk, list[RequestRecord]] = {}
    for record in records:
        talks.setdefault(talk_of(record), []).append(record)
    users = {(user.persona.name, user.index): user for user in crowd.users()}
    found = set()
    for talk, own in talks.items():
        user = users.get(talk[:2])
        if user is None:
            raise UserError(f"a record is of {talk[0]}-{talk[1]}, who is not in the run's crowd")
        if not _has_ended(user, talk, own):
            found.add(talk)
    return found


def number_of(talk: Talk) -> int:
    """`{persona}-{user}/c{number}`. Raises `UserError` for an id of another form."""
    number = talk[2].rpartition("/c")[2]
    if not number.isdecimal() or len(number) > _MOST_DIGITS:
        raise UserError(f"a record is of the conversation {talk[2]!r:.80}, which no run has")
    return int(number)


def _has_ended(user: User, talk: Talk, records: list[RequestRecord]) -> bool:
    """Whether the script came to its end, or a failure ended it."""
    if any(record.error_kind == "interrupted" for record in records):
        return False
    asked = [record for record in records if not is_extra(record)]
    if any(not record.ok for record in asked):
        return True
    script = Conversation(user, number_of(talk)).script
    last = script.turns - 1
    return any((r.turn, r.round) == (last, script.rounds(last) - 1) for r in asked)


def first_talks(
    records: Iterable[RequestRecord], unfinished: set[Talk]
) -> dict[tuple[str, int], int]:
    """Where everybody goes on: with the conversation that had not ended, else with the next."""
    found: dict[tuple[str, int], int] = {}
    for talk in {talk_of(record) for record in records}:
        number = number_of(talk) + (talk not in unfinished)
        found[talk[:2]] = max(found.get(talk[:2], 0), number)
    return found
