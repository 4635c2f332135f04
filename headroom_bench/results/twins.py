"""The join of both worlds: what is predicted of the very requests that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headroom_bench.records import RequestRecord

AS_MEASURED = "as_measured"
"""`error_kind` of a predicted request that failed because the measured one did: nothing is
predicted of it."""


def twins(
    predicted: Iterable[RequestRecord], measured: Sequence[RequestRecord]
) -> list[RequestRecord]:
    """The predicted records whose figures may stand beside those of `measured`, by `request_id`.

    A request that was not measured has none, nor has one that failed there (the turn in which it
    did is cut short by that, and is none of the prediction's). What the harness spoilt in the
    measured world is marked as not valid here too, so that whatever leaves it out leaves out both.
    """
    valid = {record.request_id: record.valid for record in measured}
    return [
        record if valid[record.request_id] else replace(record, valid=False)
        for record in predicted
        if record.request_id in valid and record.error_kind != AS_MEASURED
    ]
