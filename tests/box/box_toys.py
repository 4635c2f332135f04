"""A pricer and prompts for the box's tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headroom_bench.box import BoxRequest
from headroom_bench.roofline.pricer import Batch
from headroom_bench.segments import Segment


@dataclass
class ToyPricer:
    """Linear in everything that a batch says. With the defaults every sum of times is exact."""

    window: int | None = None
    fixed_s: float = 2.0**-6
    decode_s: float = 2.0**-9
    kv_s: float = 2.0**-14
    window_s: float = 2.0**-13
    read_s: float = 2.0**-10
    depth_s: float = 2.0**-16
    priced: list[Batch] = field(default_factory=list)
    """Batches asked for so far: one a pass, or one for many passes."""

    def pass_s(self, batch: Batch) -> float:
        self.priced.append(batch)
        seconds = (
            self.fixed_s
            + self.decode_s * batch.decodes
            + self.kv_s * batch.kv_tokens
            + self.window_s * batch.window_tokens
        )
        for chunk in batch.chunks:
            seconds += self.read_s * chunk.tokens + self.depth_s * chunk.tokens * (
                chunk.context_tokens
            )
        return seconds

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        growth_s = self.kv_s * batch.decodes + self.window_s * batch.windows_growing
        return self.pass_s(batch) + growth_s * np.arange(k)


ODD_COSTS = {"fixed_s": 0.0137, "decode_s": 0.00031, "kv_s": 7.1e-6, "window_s": 1.3e-5}
"""Costs whose sums depend on the order of adding."""


def segment(content_id: str, tokens: int) -> Segment:
    return Segment("ask", "user", "prose", content_id, tokens)


def request(id: str, *parts: tuple[str, int], max_tokens: int = 1) -> BoxRequest:  # noqa: A002
    """A request whose prompt is `parts`, each a content id and its tokens."""
    segments = tuple(segment(*part) for part in parts)
    return BoxRequest(id, segments, max_tokens, f"{id}/answer")
