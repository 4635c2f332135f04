"""How good predictions and their ranges are: errors, coverage, interval score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headroom_bench.catalog.published import PREFILL, PublishedRow
from headroom_bench.measures import quantile
from headroom_bench.roofline.passes import Roofline
from headroom_bench.roofline.published import batch_of, predicted_tok_s, roofline_of
from headroom_bench.roofline.ranges import HELD_SHARE, Range, decode_range, prefill_range


@dataclass(frozen=True, slots=True)
class Scored:
    """A published rate beside its prediction. Tokens a second."""

    row: PublishedRow
    predicted: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted / self.row.tok_s - 1

    @property
    def held(self) -> bool:
        """Whether the range holds the published rate."""
        return self.low <= self.row.tok_s <= self.high

    @property
    def penalty(self) -> float:
        """The interval score in natural logarithms (`interval_score`)."""
        low, high, at = (math.log(rate) for rate in (self.low, self.high, self.row.tok_s))
        return interval_score(low, high, at, 1 - HELD_SHARE)


@dataclass(frozen=True, slots=True)
class Score:
    """Of many rows. Errors are absolute shares, widths are high / low."""

    rows: int
    median_error: float
    coverage: float
    median_width: float
    interval_score: float
    """Mean, in natural logarithms: the width of the logarithmic range, more for each miss."""
    fixed_width_score: float
    """What one and the same width for all of them, the best there is, would score."""


def interval_score(low: float, high: float, measured: float, alpha: float) -> float:
    """Winkler's score of a range that should hold 1 - alpha: its width, and 2 / alpha times the
    distance of a value outside (Gneiting and Raftery 2007, equation 43). Less is better: a wide
    range pays for its width, a narrow one for its misses."""
    outside = max(low - measured, measured - high, 0.0)
    return high - low + 2 / alpha * outside


def scored(row: PublishedRow) -> Scored:
    """A row beside its prediction. Raises `UserError` where its setup cannot be priced."""
    roofline = roofline_of(row)
    rate = predicted_tok_s(roofline, row)
    span = range_of(roofline, row)
    return Scored(row, rate, rate * span.low, rate * span.high)


def range_of(roofline: Roofline, row: PublishedRow) -> Range:
    """The range that a prediction of the row's setup would carry."""
    batch = batch_of(row, roofline.window)
    if row.kind == PREFILL:
        return prefill_range(roofline, batch.chunks[0], roofline.pass_s(batch))
    return decode_range(roofline, batch)


def score(found: Sequence[Scored]) -> Score:
    """Errors, coverage and interval score of rows; at least one."""
    errors = sorted(abs(each.error) for each in found)
    widths = sorted(each.high / each.low for each in found)
    count = len(found)
    return Score(
        rows=count,
        median_error=quantile(errors, 0.5),
        coverage=sum(each.held for each in found) / count,
        median_width=quantile(widths, 0.5),
        interval_score=sum(each.penalty for each in found) / count,
        fixed_width_score=_best_fixed_width(found),
    )


def _best_fixed_width(found: Sequence[Scored]) -> float:
    """The score of the best range of one width about every prediction: it holds just as many as
    ranges should."""
    off = sorted(abs(math.log1p(each.error)) for each in found)
    half = off[math.ceil(HELD_SHARE * len(off)) - 1]
    missed = sum(max(each - half, 0.0) for each in off) / len(off)
    return 2 * half + 2 / (1 - HELD_SHARE) * missed
