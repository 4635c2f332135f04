"""Constants that a user's own measurements gave, in place of those fitted to published rows."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headroom_bench.roofline.constants import Constant, Constants
from headroom_bench.roofline.fitted import Spread

if TYPE_CHECKING:
    from headroom_bench.catalog import Model
    from headroom_bench.roofline.deployment import Deployment

EXPERT_EXPONENT = "expert_exponent"
"""The one constant that belongs to the model: it may be given where the key names one."""
_TO_85_OF_100 = 1.44
"""Standard errors within which 85 % of a normal spread lies."""


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """One number of a calibration file."""

    name: str
    value: float
    unit: str
    status: str
    """fitted, or assumed where the measurements could not tell it."""
    stderr: float | None = None
    n: int | None = None
    """Measurements that it was fitted to."""


@dataclass(frozen=True, slots=True)
class FitError:
    """How far predictions lay from the measurements, as a share of them."""

    before: float
    """85th percentile with the shipped constants."""
    after: float
    """The same with these: on measurements that the fit never saw, where there were any."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What one box's measurements told. Names are the catalogue's ids."""

    name: str
    """Of the file, for a reader."""
    hardware: str
    runtime: str
    backend: str
    constants: tuple[FittedConstant, ...]
    sources: tuple[str, ...]
    model: str | None = None
    """None: for any model on that box."""
    quant: str | None = None
    context_tokens: tuple[int, int] | None = None
    """Least and most that was measured; None: everything."""
    users: tuple[int, int] | None = None
    decode: FitError | None = None
    several: FitError | None = None
    """Decoding of several users."""
    prefill: FitError | None = None

    def serves(self, deployment: Deployment) -> bool:
        """Whether its constants hold for what is served."""
        return (
            self.hardware == deployment.hardware.id
            and self.runtime == deployment.runtime.id
            and self.backend == deployment.backend
            and self.model in (None, deployment.model.id)
            and self.quant in (None, deployment.quant.name)
        )

    def reaches(self, context_tokens: float, users: int) -> bool:
        """Whether its measurements go so far: beyond them its errors say nothing."""
        return _within(context_tokens, self.context_tokens) and _within(users, self.users)

    def measured(self, constant: str) -> bool:
        """Whether a figure that hangs on a constant was measured on this very model."""
        told = any(each.name == constant and each.status == "fitted" for each in self.constants)
        return told and self.model is not None


def calibrated(constants: Constants, calibration: Calibration) -> Constants:
    """The constants with those of a calibration in their place, and its errors as their spread."""
    found = {
        each.name: Constant(each.value, each.unit, each.status, f"calibration {calibration.name}")
        for each in calibration.constants
        if each.name != EXPERT_EXPONENT
    }
    spread = _spread(constants.spread, calibration)
    return dataclasses.replace(constants, **found, spread=spread)


def with_exponent(model: Model, calibration: Calibration) -> Model:
    """The model with the expert exponent of a calibration, where it has one."""
    told = next((c for c in calibration.constants if c.name == EXPERT_EXPONENT), None)
    if told is None or model.moe is None:
        return model
    wide = _TO_85_OF_100 * (told.stderr or 0.0)
    moe = dataclasses.replace(
        model.moe,
        expert_exponent=told.value,
        expert_exponent_low=max(told.value - wide, 0.0),
        expert_exponent_high=told.value + wide,
        expert_exponent_source=f"calibration {calibration.name}",
    )
    return dataclasses.replace(model, moe=moe)


def _spread(shipped: Spread, calibration: Calibration) -> Spread:
    """Log half-widths from the calibration's errors, the shipped ones where it tells none."""
    found: dict[str, float] = {}
    for kind in ("decode", "several", "prefill"):
        error: FitError | None = getattr(calibration, kind)
        if error is not None:
            wide = math.log1p(error.after)
            found |= {f"{kind}_dense": wide, f"{kind}_moe": wide}
    return dataclasses.replace(shipped, **found)


def _within(value: float, bounds: tuple[int, int] | None) -> bool:
    return bounds is None or bounds[0] <= value <= bounds[1]
