"""What a question says that changes no figure of its answer: unsaid, it would be taken to do so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headroom_bench.roofline.constants import family_of

if TYPE_CHECKING:
    from headroom_bench.experiments.predict import Question
    from headroom_bench.roofline.deployment import Deployment


def useless(question: Question, deployment: Deployment) -> Iterator[str]:
    """A note for each part. Tables and comparisons may need it elsewhere, so it is no mistake."""
    runtime = deployment.runtime
    if question.acceptance_rate is not None and not question.draft_tokens:
        yield "acceptance_rate changes nothing: nothing is drafted (draft)"
    if question.link is not None and deployment.boxes == 1:
        yield f"link {question.link} changes nothing: there is one box (boxes)"
    if question.build is not None and family_of(runtime.id) != "llama.cpp":
        yield f"build {question.build} changes nothing: {runtime.name} is not built on llama.cpp"
    if question.kv_unified and not runtime.has_slots:
        yield f"kv_unified changes nothing: {runtime.name} has no slots"
    elif question.kv_unified and deployment.slots == 1:
        yield "kv_unified changes nothing: there is one slot (slots, users)"
