"""How far a prediction may be off, and what that is called."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.roofline.iteration import decode_seconds, decode_table
from headroom_bench.roofline.offload import host_share

if TYPE_CHECKING:
    from headroom_bench.catalog.model import MoE
    from headroom_bench.roofline.deployment import Deployment
    from headroom_bench.roofline.passes import Roofline
    from headroom_bench.roofline.pricer import Batch, Chunk

MEASURED, COMMUNITY = "MEASURED", "COMMUNITY"
INTERPOLATED, ESTIMATED = "INTERPOLATED", "ESTIMATED"
HELD_SHARE = 0.85
"""Of measurements, that ranges should hold."""

_ANOTHER_HAND = 0.08
"""Log half-width of who measures: the same case in two published series lies 2.8 % apart in the
median, 11 % at the 90th percentile. The user's own calibration is his own hand."""
_OFFLOADED = 0.7
"""Log half-width for weights in host memory: no row constrains it (Methodology page)."""
_SEVERAL_BOXES = 0.25
"""Log half-width for a link between boxes: few rows."""
_DRAFTED = 0.25
"""Log half-width for drafting: acceptance goes from 0.5 on prose to 0.9 on tool calls."""
_ESTIMATED_SHAPE = 0.08


@dataclass(frozen=True, slots=True)
class Range:
    """Factors on a rate between which 85 % of measurements should lie."""

    low: float
    high: float
    confidence: str
    """MEASURED: the user's own measurements of this model there gave the constants; INTERPOLATED:
    this kind of box was measured with other models; ESTIMATED: it was not. (COMMUNITY, where others
    published a row of this very case, is the caller's to say: rows are no business of this room.)
    """
    reasons: tuple[str, ...] = ()


def decode_range(roofline: Roofline, batch: Batch, *, drafted: bool = False) -> Range:
    """Around the rate of a decoding batch.

    Three sources, added as squares of logarithms: the spread of published rows about the box's
    constants, the range of the model's expert exponent, and what no row constrains.
    """
    context = batch.kv_tokens / max(batch.decodes, 1)
    deployment = _grounds(roofline.deployment, context, batch.decodes)
    moe, spread = deployment.model.moe, deployment.constants.spread
    if batch.decodes > 1:
        base = spread.several_moe if moe else spread.several_dense
    else:
        base = spread.decode_moe if moe else spread.decode_dense
    more, reasons = _unmeasured(deployment)
    if drafted:
        more.append(_DRAFTED)
    slower, faster = _by_exponent(roofline, batch, moe)
    low = math.exp(-math.hypot(base, slower, *more))
    high = math.exp(math.hypot(base, faster, *more))
    confidence = _confidence(deployment, "bandwidth_efficiency")
    return Range(low, high, confidence, tuple(reasons))


def prefill_range(roofline: Roofline, chunk: Chunk, seconds: float) -> Range:
    """Around the rate of reading a prompt that takes so many seconds."""
    deployment = _grounds(roofline.deployment, chunk.context_tokens + chunk.tokens, 1)
    spread = deployment.constants.spread
    base = spread.prefill_moe if deployment.model.moe else spread.prefill_dense
    more, reasons = _unmeasured(deployment)
    if spread.attention:
        more.append(spread.attention * roofline.attention_s(chunk) / seconds)
    if spread.handling_s:
        more.append(min(spread.handling_s / seconds, 1.0))
    width = math.exp(math.hypot(base, *more))
    confidence = _confidence(deployment, "compute_efficiency")
    return Range(1 / width, width, confidence, tuple(reasons))


def _grounds(deployment: Deployment, context_tokens: float, users: int) -> Deployment:
    """What a range rests on: beyond a calibration's measurements, what is known without it."""
    calibration, shipped = deployment.calibration, deployment.shipped
    if calibration is None or shipped is None or calibration.reaches(context_tokens, users):
        return deployment
    return dataclasses.replace(shipped, drafter=deployment.drafter)


def _confidence(deployment: Deployment, constant: str) -> str:
    """The label of a figure that hangs on a constant, as far as constants decide it."""
    if deployment.boxes > 1 or deployment.drafter is not None or host_share(deployment).byte_s:
        return ESTIMATED
    calibration = deployment.calibration
    if calibration is not None and calibration.measured(constant):
        return MEASURED
    fitted = getattr(deployment.constants, constant).status == "fitted"
    return INTERPOLATED if fitted else ESTIMATED


def _unmeasured(deployment: Deployment) -> tuple[list[float], list[str]]:
    """Log half-widths of what no row constrains, with the reasons."""
    found: list[tuple[float, str]] = []
    if deployment.calibration is None:
        found.append((_ANOTHER_HAND, ""))
    if host_share(deployment).byte_s:
        found.append((_OFFLOADED, "host memory: assumed rate, no measurement"))
    if deployment.boxes > 1:
        found.append((_SEVERAL_BOXES, "link between boxes: few measurements"))
    if not deployment.model.kv_exact:
        found.append((_ESTIMATED_SHAPE, "model shape: partly estimated"))
    return [width for width, _ in found], [reason for _, reason in found if reason]


def _by_exponent(roofline: Roofline, batch: Batch, moe: MoE | None) -> tuple[float, float]:
    """How much slower and faster (log) the ends of the expert exponent's range make a batch."""
    routed = batch.decodes + batch.verify - batch.lockstep
    if moe is None or routed < 2:
        return 0.0, 0.0
    c = roofline.coefficients
    seconds = []
    for exponent in (moe.expert_exponent_high, moe.expert_exponent, moe.expert_exponent_low):
        changed = dataclasses.replace(c, expert_exponent=exponent)
        row = decode_table(changed, float(routed))
        seconds.append(float(decode_seconds(changed, row, batch.kv_tokens, batch.window_tokens)))
    most, middle, least = seconds
    return max(math.log(most / middle), 0.0), max(math.log(middle / least), 0.0)
