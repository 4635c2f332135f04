"""Published rows of the series that the tests name, as the catalogue ships them."""

from __future__ import annotations

import functools

from headroom_bench.catalog.published import PublishedRow, all_published
from headroom_bench.roofline import published

SERIES = (
    "ggspark25", "ggspark26", "ggm2u", "hogb", "hogmu", "ky25nov", "ky25dec", "ky26feb", "ky26may",
    "nvblog", "seed1", "spkfp4",
)  # fmt: skip


@functools.cache
def rows() -> dict[str, PublishedRow]:
    """By id."""
    return {row.id: row for row in all_published() if row.series in SERIES}


def predicted_tok_s(row: PublishedRow) -> float:
    """The rate that the model gives for a row, under the row's own conditions."""
    return published.predicted_tok_s(published.roofline_of(row), row)


def error(row: PublishedRow) -> float:
    """Predicted over published, less 1."""
    return predicted_tok_s(row) / row.tok_s - 1
