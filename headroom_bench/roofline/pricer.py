"""What the virtual box needs to know about time: the price of a pass.

The box holds no equation of its own. Anything that satisfies `Pricer` can drive it: the roofline,
or the recorded pass times of a real server.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class Chunk(NamedTuple):
    """A piece of one prompt, read in one pass."""

    tokens: int
    context_tokens: int
    """Tokens of the same sequence that are in the KV cache before this piece."""


class Batch(NamedTuple):
    """What one pass carries. Sums, not lists, so that a change of the batch is cheap to price.

    A named tuple, because the box makes several for each request.
    """

    decodes: int
    """Sequences that get one more token each."""
    kv_tokens: int
    """Their contexts before the pass, summed."""
    window_tokens: int
    """The same, each capped at the model's sliding window (equal to `kv_tokens` without one)."""
    windows_growing: int
    """How many of them are still below the window (equal to `decodes` without one)."""
    chunks: tuple[Chunk, ...] = ()
    verify: int = 0
    """Drafted tokens that are verified beside the decodes' own, summed over the sequences."""
    draft_passes: int = 0
    """The most drafted tokens of one sequence: passes of the draft model, one after another."""
    lockstep: int = 0
    """Decoding sequences that repeat another's prompt and position at temperature 0, so that they
    wake no expert of their own: `decodes - lockstep` route differently."""
    moved_tokens: int = 0
    """Tokens whose cache is copied from or to host memory before the pass."""


class Pricer(Protocol):
    """Prices passes, in seconds."""

    @property
    def window(self) -> int | None:
        """The sliding window's tokens, where the model has one."""
        ...

    def pass_s(self, batch: Batch) -> float:
        """One pass."""
        ...

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        """The next `k` passes of an unchanged decode-only batch whose contexts grow by one each.

        Shape (k,). The first entry equals `pass_s(batch)`; each following pass has
        `kv_tokens + decodes` and `window_tokens + windows_growing` more. The caller sees to it
        that no context crosses the window within the k passes.
        """
        ...
