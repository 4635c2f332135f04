"""A warm-up that took all there was."""

from __future__ import annotations

from collections.abc import Collection

from headroom_bench.records import RequestRecord


def left_nothing(records: Collection[RequestRecord], warmup_s: float) -> list[str]:
    """A warning where no request is left to judge."""
    if not records or any(record.started_at_s >= warmup_s for record in records):
        return []
    return [f"every request began within the {warmup_s:g} s of --warmup: none is left to judge"]
