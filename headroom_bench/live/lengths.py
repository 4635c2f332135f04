"""Tokens that the server will count for a text, learnt from what it counted before."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from statistics import median_low

from headroom_bench.crowd.prompts import TemplateTokens
from headroom_bench.crowd.texts import Sizes

_ADDED_PRIOR, _ADDED_SD = 8.0, 12.0
"""Tokens of a chat template around one turn, before anything is known (estimated: today's have
3 to 30)."""
_KNOWN_SD = 2.0
"""The same where a short chat was counted: the next may be joined in another way."""
_RATIO_SD: dict[Sizes, float] = {"exact": 0.0, "counted": 0.03, "guessed": 0.2}
"""How far sizes may be off, as a share of them (estimated)."""
_NOISE_SD, _NOISE_SHARE = 1.0, 0.01
"""What a single count tells no more exactly than: answers are cut into other tokens when they are
sent back, words differ."""
_REMEMBERED = 9


@dataclass(frozen=True, slots=True)
class Size:
    """counted = added + ratio * written."""

    added: float
    ratio: float

    def counted(self, written: float) -> int:
        return round(self.added + self.ratio * written)

    def written(self, counted: float) -> int:
        return max(1, round((counted - self.added) / self.ratio))


class Feedback:
    """One line `counted = added + ratio * written` for every shape of a prompt's new part.

    Where the writer's sizes are exact, the ratio is 1 and what the template adds is the median of
    the latest counts. Else both come from a Bayesian linear regression (normal prior, known noise:
    Bishop, Pattern Recognition and Machine Learning, 3.3), which starts from what other shapes
    taught about the ratio.
    """

    def __init__(self, sizes: Sizes, template: TemplateTokens) -> None:
        self.exact = sizes == "exact"
        self._template_known = template.known
        self._recent: dict[Hashable, deque[int]] = {}
        self._fits: dict[Hashable, _Fit] = {}
        self._ratio, self._ratio_sd = 1.0, _RATIO_SD[sizes]

    def knows(self, shape: Hashable) -> bool:
        return shape in self._recent

    def size(self, shape: Hashable, first: int) -> Size:
        """`first`: what the template, where it is known, adds to such a prompt."""
        if self.exact:
            recent = self._recent.get(shape)
            return Size(median_low(recent) if recent else first, 1.0)
        if not self.knows(shape):
            added, sd = (first, _KNOWN_SD) if self._template_known else (_ADDED_PRIOR, _ADDED_SD)
            self._fits[shape] = _Fit(added, sd, self._ratio, self._ratio_sd)
        return self._fits[shape].line()

    def learn(self, shape: Hashable, written: float, counted: int) -> None:
        """Takes in that a new part of `written` (by the writer's sizes), whose `size` was asked
        for, was counted so."""
        recent = self._recent.setdefault(shape, deque(maxlen=_REMEMBERED))
        recent.append(counted - round(written))
        if self.exact:
            return
        fit = self._fits[shape]
        fit.add(written, counted)
        sd = fit.ratio_sd()
        if sd < self._ratio_sd:
            self._ratio, self._ratio_sd = fit.line().ratio, sd


@dataclass(slots=True)
class _Fit:
    """Posterior of (added, ratio) as a precision matrix and a weighted mean."""

    added: float
    added_sd: float
    ratio: float
    ratio_sd_before: float
    _aa: float = field(init=False)
    _ar: float = 0.0
    _rr: float = field(init=False)
    _a: float = field(init=False)
    _r: float = field(init=False)

    def __post_init__(self) -> None:
        sd = max(self.ratio_sd_before, 0.02)  # another shape's texts may be of another kind
        self._aa, self._rr = 1 / self.added_sd**2, 1 / sd**2
        self._a, self._r = self.added * self._aa, self.ratio * self._rr

    def add(self, written: float, counted: int) -> None:
        weight = 1 / (_NOISE_SD + _NOISE_SHARE * written) ** 2
        self._aa += weight
        self._ar += weight * written
        self._rr += weight * written * written
        self._a += weight * counted
        self._r += weight * written * counted

    def line(self) -> Size:
        determinant = self._aa * self._rr - self._ar**2
        added = (self._rr * self._a - self._ar * self._r) / determinant
        ratio = (self._aa * self._r - self._ar * self._a) / determinant
        return Size(added, max(0.05, ratio))

    def ratio_sd(self) -> float:
        determinant = self._aa * self._rr - self._ar**2
        return float((self._aa / determinant) ** 0.5)
