"""One deployment in closed form: memory, prompt reading, first token, decoding; no crowd."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from headroom_bench.errors import UserError
from headroom_bench.experiments.predict_notes import notes_on, sources_of
from headroom_bench.experiments.predict_published import published_decode, published_prefill
from headroom_bench.roofline.calibration import Calibration
from headroom_bench.roofline.closed_form import simple_view
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.memory import Fit, fit
from headroom_bench.roofline.passes import PassCost, Roofline
from headroom_bench.roofline.pricer import Batch, Chunk
from headroom_bench.roofline.ranges import (
    COMMUNITY,
    MEASURED,
    Range,
    decode_range,
    prefill_range,
)
from headroom_bench.target import MOST_DRAFTED_TOKENS
from headroom_bench.units import MOST_PEOPLE, MOST_SEQUENCE_TOKENS, MOST_SLOTS

DEFAULT_TOKENS = 2048
"""Of prompt and context, where neither is told."""
MOST = {
    "prompt": MOST_SEQUENCE_TOKENS, "context": MOST_SEQUENCE_TOKENS, "users": MOST_PEOPLE,
    "slots": MOST_SLOTS, "boxes": 1024, "ubatch": MOST_SEQUENCE_TOKENS,
    "draft_tokens": MOST_DRAFTED_TOKENS,
}  # fmt: skip
"""Beyond these a figure would mean nothing."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to predict. Sizes are tokens; None means the runtime's default."""

    hardware: str
    model: str
    quant: str | None = None
    runtime: str = "llama.cpp"
    backend: str | None = None
    build: str | None = None
    prompt: int | None = None
    """Tokens of one prompt; None: as the context."""
    context: int | None = None
    """Tokens in each sequence's cache while it decodes; None: as the prompt."""
    users: int = 1
    """Sequences that decode at once."""
    slots: int | None = None
    """Sequences at once that the box holds; None: one for each user."""
    kv_k: str = "f16"
    kv_v: str = "f16"
    ubatch: int | None = None
    swa_full: bool = False
    draft: str | None = None
    """`mtp` or a draft model's name."""
    draft_tokens: int = 0
    """Drafted for each sequence in each pass."""
    acceptance_rate: float | None = None
    """Accepted / drafted; None: the Tuning article's 0.70 at draft 4."""
    boxes: int = 1
    link: str | None = None
    kv_unified: bool = False
    """The slots share one cache: any of them may use the whole."""
    identical: bool = False
    """All users send the same prompt at temperature 0, so they route in lockstep."""
    calibration: Calibration | None = None
    """What the user's own measurements gave; used where it is of this box and model."""

    @property
    def lengths(self) -> tuple[int, int]:
        """Tokens of the prompt and of the context."""
        prompt = self.prompt or self.context or DEFAULT_TOKENS
        return prompt, self.context or prompt


@dataclass(frozen=True, slots=True)
class Prefill:
    """Reading one prompt."""

    seconds: float
    tokens: int
    bound: str


def predict(question: Question) -> dict[str, Any]:
    """Memory, prefill, first token and decode, with what bounds each and how sure it is.

    The keys are the contract's for `predict --json`; GB are 10^9 bytes, rates are tokens a second.
    `low` and `high` belong to `decode.tok_s_per_user`. Raises `UserError`.
    """
    _check(question)
    deployment, roofline = _priced(question)
    need = _fit(question, deployment)
    prompt, context = question.lengths
    served = min(question.users, deployment.slots)
    batch = _decoding(question, roofline, context, served)
    cost = roofline.breakdown(batch)
    tokens = _tokens_a_pass(question)
    per_user = tokens / cost.total_s
    read = read_prompt(roofline, prompt, 0)
    first_s = first_token_s(question, roofline, prompt)
    span = decode_range(roofline, batch, drafted=bool(question.draft_tokens))
    written = read_elsewhere = None
    if _as_others_measure(question, batch, deployment):
        build = question.build
        written = published_decode(roofline, build, served, per_user * served)
        read_elsewhere = published_prefill(roofline, build, prompt, read.tokens / read.seconds)
    read_span = prefill_range(roofline, Chunk(prompt, 0), read.seconds)
    return {
        "hardware": deployment.hardware.name,
        "model": deployment.model.name,
        "quant": deployment.quant.name,
        "runtime": deployment.runtime.name,
        "backend": deployment.backend,
        "fit": fit_document(need),
        "prefill": {
            "tok_s": read.tokens / read.seconds,
            "bound": read.bound,
            "prompt_tokens": prompt,
            "low": read.tokens / read.seconds * read_span.low,
            "high": read.tokens / read.seconds * read_span.high,
            "confidence": _label(read_span, read_elsewhere),
            "published": read_elsewhere,
        },
        "ttft_s": first_s,
        "decode": {
            "tok_s_per_user": per_user,
            "tok_s_total": per_user * served,
            "iteration_ms": cost.total_s * 1e3,
            "bound": cost.bound,
            "bytes_per_pass": cost.bytes_read,
            "flops_per_pass": cost.flops,
            "context_tokens": context,
            "users": served,
            "tokens_per_pass": tokens,
            "shares": _shares(cost),
            "published": written,
        },
        "bandwidth": {
            "spec_gb_s": deployment.hardware.bandwidth_gb_s * deployment.boxes,
            "achieved_gb_s": cost.bytes_read / cost.total_s / 1e9,
        },
        "confidence": _label(span, written),
        "low": per_user * span.low,
        "high": per_user * span.high,
        "simple_view": dataclasses.asdict(simple_view(deployment, context)),
        "kv_exact": deployment.model.kv_exact,
        "notes": notes_on(question, deployment, need, served, span, written),
        "sources": sources_of(deployment, span),
    }


def _as_others_measure(question: Question, batch: Batch, deployment: Deployment) -> bool:
    """Whether published rows are of such a case: no drafts, every user's own prompt, windows kept
    as windows. A flag that changes nothing of this model hides none."""
    windows_in_full = question.swa_full and deployment.model.kv().window is not None
    alike = deployment.model.moe is not None and batch.lockstep > 0
    return not (question.draft_tokens or alike or windows_in_full)


def _label(span: Range, published: dict[str, Any] | None) -> str:
    """MEASURED before COMMUNITY before what the constants say."""
    return COMMUNITY if published and span.confidence != MEASURED else span.confidence


def _fit(question: Question, deployment: Deployment) -> Fit:
    need = fit(deployment)
    shared = question.kv_unified and deployment.runtime.has_slots
    if not shared or deployment.slots == 1:
        return need
    alone = fit(dataclasses.replace(deployment, slots=1))
    return dataclasses.replace(need, max_context_tokens=alone.max_context_tokens)


def fit_document(need: Fit) -> dict[str, Any]:
    """The contract's `fit`."""
    return {
        "weights_gb": need.weights_gb,
        "kv_gb": need.kv_gb,
        "overhead_gb": need.overhead_gb,
        "total_gb": need.total_gb,
        "usable_gb": need.usable_gb,
        "fits": need.fits,
        "max_context_tokens": need.max_context_tokens,
        "max_users": need.max_users,
    }


def read_prompt(roofline: Roofline, tokens: int, context: int) -> Prefill:
    """One prompt after `context` cached tokens, in the passes that the box makes of it."""
    seconds, shares = 0.0, dict[str, float]()
    for chunk in _passes(tokens, context, roofline.deployment.pass_tokens):
        cost = roofline.breakdown(Batch(0, 0, 0, 0, (chunk,)))
        seconds += cost.total_s
        for name, share in _shares(cost).items():
            shares[name] = shares.get(name, 0.0) + share * cost.total_s
    return Prefill(seconds, tokens, max(shares, key=lambda name: shares[name]))


def first_token_s(question: Question, roofline: Roofline, prompt: int) -> float:
    """Seconds until the first token of a prompt of so many tokens: alone on the box, or, with
    several users, while all others decode at their context."""
    served = min(question.users, roofline.deployment.slots)
    if served == 1:
        return _alone_s(roofline, prompt)
    others = _decoding(question, roofline, question.lengths[1], served)
    return _first_token_s(roofline, prompt, others)


def _alone_s(roofline: Roofline, tokens: int) -> float:
    """`read_prompt` without the reasons."""
    return sum(
        roofline.pass_s(Batch(0, 0, 0, 0, (chunk,)))
        for chunk in _passes(tokens, 0, roofline.deployment.pass_tokens)
    )


def pricer_of(question: Question) -> Roofline:
    """The pricer that answers a question. Raises `UserError`."""
    _check(question)
    return _priced(question)[1]


def _check(question: Question) -> None:
    for name, most in MOST.items():
        value, least = getattr(question, name), int(name != "draft_tokens")
        if value is not None and not least <= value <= most:
            raise UserError(f"{name} must be between {least} and {most:,}, not {value:,}")
    rate = question.acceptance_rate
    if rate is not None and not 0 <= rate <= 1:
        raise UserError(f"acceptance_rate must be between 0 and 1, not {rate:g}")
    if question.draft_tokens and not question.draft:
        raise UserError("drafted tokens need a drafter: mtp, or a draft model's name")


def _priced(question: Question) -> tuple[Deployment, Roofline]:
    prompt, context = question.lengths
    deployment = Deployment.named(
        model=question.model,
        hardware=question.hardware,
        quant=question.quant,
        runtime=question.runtime,
        backend=question.backend,
        build=question.build,
        kv_k=question.kv_k,
        kv_v=question.kv_v,
        ubatch=question.ubatch,
        slots=question.slots or question.users,
        ctx=max(prompt, context),
        swa_full=question.swa_full,
        boxes=question.boxes,
        link=question.link,
        draft=question.draft,
        calibration=question.calibration,
    )
    return deployment, _pricer(deployment)


@functools.lru_cache(maxsize=256)
def _pricer(deployment: Deployment) -> Roofline:
    return deployment.pricer()


def _decoding(question: Question, roofline: Roofline, context: int, served: int) -> Batch:
    """All users decode at this context, each with its drafted tokens."""
    window = roofline.window
    inside = context if window is None else min(context, window)
    return Batch(
        decodes=served,
        kv_tokens=served * context,
        window_tokens=served * inside,
        windows_growing=served if inside == context else 0,
        verify=served * question.draft_tokens,
        draft_passes=question.draft_tokens,
        lockstep=served - 1 if question.identical else 0,
    )


def _first_token_s(roofline: Roofline, prompt: int, others: Batch) -> float:
    """A prompt that arrives while all other users decode: its passes carry their tokens, too."""
    left = others.decodes - 1
    share = left / others.decodes
    rest = others._replace(
        decodes=left,
        kv_tokens=round(others.kv_tokens * share),
        window_tokens=round(others.window_tokens * share),
        windows_growing=round(others.windows_growing * share),
        verify=round(others.verify * share),
        lockstep=max(others.lockstep - 1, 0),
    )
    room = max(roofline.deployment.pass_tokens - left - rest.verify, 1)
    return sum(
        roofline.pass_s(rest._replace(chunks=(chunk,))) for chunk in _passes(prompt, 0, room)
    )


def _passes(tokens: int, context: int, room: int) -> list[Chunk]:
    return [Chunk(min(room, tokens - done), context + done) for done in range(0, tokens, room)]


def _tokens_a_pass(question: Question) -> float:
    """Mean tokens that one pass gives a user: 1, or more where drafts are accepted."""
    if not question.draft_tokens:
        return 1.0
    # Imported here: most predictions draft nothing, and the box takes its time to import.
    from headroom_bench.box.speculation import MEASURED_RATE, alpha_of, tokens_a_pass

    if question.acceptance_rate is not None:
        alpha = alpha_of(question.acceptance_rate, question.draft_tokens)
    else:
        alpha = alpha_of(MEASURED_RATE, 4)
    return tokens_a_pass(alpha, question.draft_tokens)


def _shares(cost: PassCost) -> dict[str, float]:
    """What the time of a pass goes into; they sum to 1."""
    spent = cost.seconds
    total = sum(spent.values())
    return {name: value / total for name, value in spent.items()}
