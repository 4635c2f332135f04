"""How good ranges are on rows of series that no constant was fitted to."""

from __future__ import annotations

import functools
import math
import re
from pathlib import Path

import pytest

from headroom_bench.catalog.published import SERVED, PublishedRow, all_published
from headroom_bench.roofline import fitted
from headroom_bench.roofline.published import build_of
from headroom_bench.roofline.scoring import Score, Scored, interval_score, score, scored

NAMED = set(re.findall(r"\w+", Path(fitted.__file__).read_text("utf-8")))
"""Words of the module that holds the constants: it names every series that one was fitted to."""


OUTDATED = 6200
"""llama.cpp of August 2025, when ROCm read prompts at a quarter of today's rate (ky25aug)."""


def judged(row: PublishedRow) -> bool:
    """AMDVLK is left to its rows: no constant claims it. Served rates are a crowd's matter."""
    if row.driver == "amdvlk" or row.kind == SERVED:
        return False
    build = build_of(row)
    return build is None or int(build[1:]) >= OUTDATED


@functools.cache
def unseen() -> tuple[Scored, ...]:
    return tuple(scored(row) for row in all_published() if row.series not in NAMED and judged(row))


def of(kind: str, found: tuple[Scored, ...]) -> Score:
    return score([each for each in found if each.row.kind == kind])


def test_the_sample_is_of_series_that_gave_no_constant() -> None:
    series = {each.row.series for each in unseen()}
    assert {"ggspark26", "kycurve", "dj", "ggm2u"} <= NAMED
    assert series >= {"hogx", "jhacks", "ky25oct", "lhlwmma", "spk20b", "strixamd"}
    assert len(unseen()) > 200


def test_ranges_hold_85_of_100_rows_that_nobody_fitted() -> None:
    total = score(unseen())
    assert total.coverage >= 0.85
    # Wide is no way out: one and the same width for all would score no better.
    assert total.interval_score <= total.fixed_width_score
    assert of("decode", unseen()).median_width < 2.2
    assert of("prefill", unseen()).median_width < 3.6


def test_ranges_hold_85_of_100_rows_of_all() -> None:
    # Every seventh row: a share of each series.
    sample = [row for row in all_published() if judged(row)][::7]
    total = score([scored(row) for row in sample])
    assert len(sample) > 600
    assert total.coverage >= 0.85
    assert total.interval_score < total.fixed_width_score
    assert total.median_error < 0.12


def test_winklers_score() -> None:
    assert interval_score(1.0, 3.0, 2.0, 0.15) == 2.0
    assert interval_score(1.0, 3.0, 3.0, 0.15) == 2.0
    assert interval_score(1.0, 3.0, 3.3, 0.15) == pytest.approx(6.0)
    assert interval_score(1.0, 3.0, 0.7, 0.15) == pytest.approx(6.0)


def test_a_score_sees_width_and_misses() -> None:
    row = next(iter(unseen())).row
    narrow, wide = (
        Scored(row, row.tok_s * 1.2, row.tok_s * 1.2 / f, row.tok_s * 1.2 * f) for f in (1.1, 2.0)
    )
    assert not narrow.held
    assert wide.held
    assert wide.penalty == pytest.approx(2 * math.log(2.0))
    missed = math.log(1.2 / 1.1)
    assert narrow.penalty == pytest.approx(2 * math.log(1.1) + 2 / 0.15 * missed)
    both = score([narrow, wide])
    assert both.coverage == 0.5
    assert both.median_error == pytest.approx(0.2)
