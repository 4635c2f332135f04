"""What a run says of its prompts: where texts came from, how well their lengths are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headroom_bench.crowd.crowd import Crowd
from headroom_bench.crowd.prompts import answered_segments
from headroom_bench.crowd.script import SHARED_PART
from headroom_bench.crowd.texts import Sizes, Vocabulary
from headroom_bench.crowd.world import Request
from headroom_bench.measures import quantile
from headroom_bench.records import RequestRecord
from headroom_bench.results.prompt_checks import prompt_warnings
from headroom_bench.segments import total_tokens
from headroom_bench.units import counted

_LENGTHS: dict[Sizes, str] = {"exact": "exact", "counted": "counted", "guessed": "estimated"}


@dataclass(slots=True)
class NewText:
    """Tokens of what was new in each request, and how many of them everybody sends."""

    tokens: int = 0
    shared: int = 0

    def add(self, request: Request) -> None:
        new = [s for s in request.segments[answered_segments(request) :] if s.role != "system"]
        self.tokens += total_tokens(new)
        self.shared += total_tokens([s for s in new if s.name.endswith(SHARED_PART)])


def context_needs(crowd: Crowd) -> list[tuple[str, float, float]]:
    """Who needs how much context: name, tokens of a typical first request with its answer, and the
    most that a conversation can hold (infinite where unbounded)."""
    sessions = crowd.prompts.sessions
    if not sessions:
        personas = crowd.personas().values()
        return [(p.name, p.typical_first_context, p.largest_context) for p in personas]
    first = quantile(sorted(session.first_tokens for session in sessions), 0.5)
    return [("a recorded session", first, max(session.tokens for session in sessions))]


def forces_lengths(crowd: Crowd) -> bool:
    """Whether anybody wants answers of a given length by their nature."""
    return crowd.prompts.filler and any(p.force_length for p in crowd.personas().values())


def prompts_row(crowd: Crowd, vocabulary: Vocabulary | None, new: NewText) -> dict[str, Any]:
    """The `prompts` object of summary.json.

    lengths: exact (by the server's tokenizer), counted (by its usage, of a few texts before the
    run), estimated, or recorded; None where nothing was written. Counted and estimated ones are
    corrected by its usage as the run goes on. as_prose: kinds of text that could not be written
    with exact lengths.
    """
    prompts = crowd.prompts
    row = prompts_head(crowd, _LENGTHS[vocabulary.sizes] if vocabulary else None)
    if not prompts.filler:
        return row
    row["as_prose"] = sorted(crowd.kinds() - set(vocabulary.phrases)) if vocabulary else []
    if prompts.kind == "shared-prefix":
        row["shared_share"] = new.shared / new.tokens if new.tokens else None
    return row


def prompts_head(crowd: Crowd, lengths: str | None) -> dict[str, Any]:
    """What a simulation tells of its prompts too. `lengths`: how well those of filler are known."""
    prompts = crowd.prompts
    row: dict[str, Any] = {"kind": prompts.kind, "filler": prompts.filler}
    if prompts.filler:
        return {**row, "lengths": lengths}
    return {**row, "lengths": "recorded", "sessions": len(prompts.sessions)}


def prompt_notes(crowd: Crowd, records: Sequence[RequestRecord]) -> list[str]:
    """Warnings about the prompts of a run."""
    notes = prompt_warnings(records, crowd.prompts.filler)
    sessions = len(crowd.prompts.sessions)
    talks = len({record.conversation_id for record in records})
    if sessions and talks > sessions:
        notes.append(
            f"{talks} conversations shared {counted(sessions, 'recorded session')}: texts were "
            "sent again, and prompt caches may hold them"
        )
    return notes
