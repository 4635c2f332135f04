"""What a prediction says beside its figures: what to know of them, and where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headroom_bench.catalog import find_hardware
from headroom_bench.roofline.builds import NEWEST_BUILD, newer_than_known
from headroom_bench.roofline.constants import family_of
from headroom_bench.roofline.memory import Fit, fit, kv_gb, shared_memory, taken_share
from headroom_bench.roofline.offload import host_share
from headroom_bench.roofline.ranges import MEASURED, Range
from headroom_bench.roofline.weights import unlike_any_file

if TYPE_CHECKING:
    from headroom_bench.experiments.predict import Question
    from headroom_bench.roofline.deployment import Deployment


def notes_on(
    question: Question,
    deployment: Deployment,
    need: Fit,
    served: int,
    span: Range,
    published: dict[str, Any] | None,
) -> list[str]:
    """What the reader has to know. `served`: users that decode at once; `span`: the range around
    their rate, `published` the row of others beside it, if there is one."""
    return [
        *_of_figures(question, deployment, need, served),
        *_rows_against_rules(need, span, published),
        *_useless(question, deployment, served),
        *_of_a_shared_cache(question, deployment, need),
    ]


def _of_figures(question: Question, deployment: Deployment, need: Fit, served: int) -> list[str]:
    notes = []
    if (why := unlike_any_file(deployment.model, deployment.quant)) is not None:
        notes.append(why)
    host = host_share(deployment)
    if not need.fits and host.byte_s:
        notes.append(f"does not fit: {host.in_words} in host memory (never calibrated)")
    elif not need.fits:
        notes.append("does not fit: the speeds are what it would do if it did")
    share, box = taken_share(deployment.runtime), deployment.hardware
    if not need.fits and need.total_gb <= box.usable_memory_gb * deployment.boxes:
        notes.append(
            f"{deployment.runtime.name} takes {share:.0%} of {shared_memory(deployment.runtime)} "
            f"unless it is told to take more; all of the {box.usable_memory_gb:g} GB that a box "
            "can spare would do"
        )
    if (beside := deployment.draft_model) is not None:
        cache = kv_gb(beside, deployment.slots, deployment.ctx)
        notes.append(
            f"memory holds {beside.model.name} too: {beside.weights().total / 1e9:.1f} GB of "
            f"weights, {cache:.2f} GB of cache"
        )
    trained = deployment.model.max_context
    if trained and max(question.lengths) > trained:
        notes.append(f"beyond the model's own context of {trained:,} tokens")
    if served < question.users:
        notes.append(f"{question.users - served} of {question.users} users wait for a slot")
    if question.users > 1 and (moe := deployment.model.moe) and not moe.expert_exponent_source:
        notes.append("how its tokens share experts was not measured: 0.65 to 1.0 is in the range")
    if question.build and newer_than_known(question.build):
        notes.append(
            f"build {question.build} is newer than any that was measured: priced as b{NEWEST_BUILD}"
        )
    if deployment.backend == "cpu" and box != find_hardware(question.hardware):
        notes.append(
            f"priced on the CPU's {box.tflops_dense.fp16_bf16:g} TFLOPS ({box.tflops_basis})"
        )
    if deployment.boxes > 1:
        notes.append("several boxes: the link's cost comes from few rows")
    if question.draft_tokens and question.acceptance_rate is None:
        notes.append("accepted drafts assumed: 0.70 of 4 (Tuning article)")
    if not deployment.model.kv_exact:
        notes.append("the model's shape is partly estimated")
    own = question.calibration
    if own is not None and deployment.calibration is None:
        notes.append(f"{own.name} is of another box or model: not used")
    elif own is not None and not own.reaches(question.lengths[1], served):
        notes.append(f"beyond what {own.name} measured: its constants, but the shipped range")
    return notes


def _rows_against_rules(need: Fit, span: Range, published: dict[str, Any] | None) -> list[str]:
    """Known misses are told, not hidden: a row that a rule says cannot be."""
    if published is None:
        return []
    name, rate = published["id"], published["tok_s"]
    if not need.fits:
        return [f"{name} measured {rate:.3g} tok/s although it does not fit: the rule is wrong"]
    # The user's own box need not be like others' of its kind.
    own = span.confidence == MEASURED
    if own or span.low <= rate / published["predicted_tok_s"] <= span.high:
        return []
    return [f"{name} measured {rate:.3g} tok/s, outside of the range: the rule is wrong there"]


def _useless(question: Question, deployment: Deployment, served: int) -> Iterator[str]:
    """What the question says that changes no figure of its answer: unsaid, it would be taken to do
    so. Tables and comparisons may need it elsewhere, so it is no mistake."""
    runtime = deployment.runtime
    if question.acceptance_rate is not None and not question.draft_tokens:
        yield "acceptance_rate changes nothing: nothing is drafted (draft)"
    if question.link is not None and deployment.boxes == 1:
        yield f"link {question.link} changes nothing: there is one box (boxes)"
    if question.build is not None and family_of(runtime.id) != "llama.cpp":
        yield f"build {question.build} changes nothing: {runtime.name} is not built on llama.cpp"
    if question.swa_full and deployment.model.kv().window is None:
        yield f"swa_full changes nothing: {deployment.model.name} has no window layers"
    if question.identical and deployment.model.moe is None:
        yield f"identical changes nothing: {deployment.model.name} has no experts to share"
    elif question.identical and served == 1:
        yield "identical changes nothing: one user decodes (users, slots)"


def _of_a_shared_cache(question: Question, deployment: Deployment, need: Fit) -> Iterator[str]:
    """A server's `--ctx` would be the whole pool; `context` here is each user's own, so that many
    users need as much in one cache as in many."""
    if not question.kv_unified:
        return
    if not deployment.runtime.has_slots:
        yield f"kv_unified changes nothing: {deployment.runtime.name} has no slots"
    elif deployment.slots == 1:
        yield "kv_unified changes nothing: there is one slot (slots, users)"
    else:
        alike = need.max_context_tokens == fit(deployment).max_context_tokens
        yield (
            f"kv_unified changes {'nothing' if alike else 'the room of a slot alone'}: context is "
            f"each user's own, so the cache is of {deployment.slots} x {deployment.ctx:,} tokens, "
            f"shared or not (a server's --ctx {deployment.slots * deployment.ctx})"
        )


def sources_of(deployment: Deployment, span: Range) -> list[str]:
    """Where the figures come from, most telling first."""
    fitted = dict.fromkeys(
        f"{constant.status}: {constant.source}"
        for _, constant in deployment.constants.items()
        if constant.source
    )
    told = sorted(fitted, key=lambda text: not text.startswith("fitted"))
    if deployment.calibration is not None:
        told = [*deployment.calibration.sources, *told]
    shape = [f"model: {deployment.model.source}", f"hardware: {deployment.hardware.source}"]
    return [*span.reasons, *told, *shape]
