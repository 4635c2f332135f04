"""Speculative decoding: how many of the drafted tokens a pass accepts.

Two figures, never one name. `acceptance_rate` is accepted / drafted, which journals print. `alpha`
is the chance that the next drafted token is accepted given that all before it were. With d drafted
tokens a pass the mean number accepted is alpha + alpha^2 + ... + alpha^d = rate * d, and a pass
gives (1 - alpha^(d+1)) / (1 - alpha) tokens (Leviathan et al., arXiv:2211.17192, eq. 1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from headroom_bench.seeds import splitmix64

MEASURED_RATE = 0.70
"""Accepted / drafted at draft 4 on mixed chat and code (Tuning article)."""
TYPICAL_RATES = MappingProxyType({"tool_call": 0.9, "prose": 0.5})
"""Accepted / drafted by kind of text at draft 4: about 0.9 on tool-call JSON, about 0.5 on prose
(Tuning article)."""


@dataclass(frozen=True, slots=True)
class Speculation:
    """Drafting of `tokens` a pass. Raises ValueError for none, or an alpha outside 0 to 1."""

    tokens: int
    """Drafted for each sequence in each pass, fewer where fewer are wanted."""
    alpha: Mapping[str, float]
    """By kind of text (`BoxRequest.kind`)."""
    other_alpha: float = 0.5
    """For kinds that `alpha` does not name."""
    _ladders: dict[str, tuple[float, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise ValueError("speculation drafts at least 1 token")
        if not all(0.0 <= alpha <= 1.0 for alpha in (*self.alpha.values(), self.other_alpha)):
            raise ValueError("alpha must be between 0 and 1")

    def accepted(self, kind: str, seed: int, number: int, drafted: int) -> int:
        """How many of `drafted` tokens the request's pass `number` accepts.

        A pure function: one draw u, and j or more are accepted where u < alpha^j.
        """
        ladder = self._ladders.get(kind)
        if ladder is None:
            alpha = self.alpha.get(kind, self.other_alpha)
            # negated, so that it ascends for bisect
            ladder = tuple(-(alpha**j) for j in range(1, self.tokens + 1))
            self._ladders[kind] = ladder
        u = (splitmix64(seed, number) >> 11) / 2**53  # in [0, 1): alpha = 1 accepts them all
        accepted = bisect_left(ladder, -u)
        return accepted if accepted < drafted else drafted


def tokens_a_pass(alpha: float, drafted: int) -> float:
    """Mean tokens that a pass gives: (1 - alpha^(d+1)) / (1 - alpha)."""
    return sum(alpha**j for j in range(drafted + 1))


def alpha_of(acceptance_rate: float, drafted: int) -> float:
    """The alpha whose mean share of accepted tokens is `acceptance_rate`.

    Raises ValueError for a rate outside 0 to 1 or no drafted tokens.
    """
    if not 0.0 <= acceptance_rate <= 1.0 or drafted < 1:
        raise ValueError("an acceptance rate is between 0 and 1, over at least 1 drafted token")
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if tokens_a_pass(middle, drafted) - 1.0 < acceptance_rate * drafted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def typical_speculation(drafted: int) -> Speculation:
    """Drafting with the acceptance of the Tuning article's texts, at any draft length."""
    alpha = {kind: alpha_of(rate, 4) for kind, rate in TYPICAL_RATES.items()}
    return Speculation(drafted, MappingProxyType(alpha), alpha_of(MEASURED_RATE, 4))
