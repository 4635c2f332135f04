"""Ranges and labels: wide where little is known, never bare."""

from __future__ import annotations

import math

import pytest

from headroom_bench.roofline import Batch, Deployment
from headroom_bench.roofline.ranges import (
    ESTIMATED,
    INTERPOLATED,
    decode_range,
)


def served(model: str, hardware: str, quant: str, **over: object) -> Deployment:
    return Deployment.named(model=model, hardware=hardware, quant=quant, **over)  # type: ignore[arg-type]


def batch(users: int) -> Batch:
    return Batch(users, users * 600, users * 128, 0)


def test_the_exponents_range_widens_several_users_only() -> None:
    unknown = served("Qwen3.5 122B-A10B", "dgx-spark", "Q4_K_M").pricer()
    known = served("gpt-oss-120b", "dgx-spark", "MXFP4").pricer()
    moe = unknown.deployment.model.moe
    assert moe
    assert not moe.expert_exponent_source
    one, several = decode_range(unknown, batch(1)), decode_range(unknown, batch(8))
    fitted = decode_range(known, batch(8))
    assert one.high / one.low < several.high / several.low
    assert fitted.high / fitted.low < several.high / several.low


def test_labels() -> None:
    assert decode_range(
        served("Llama 3.1 8B", "rtx-4090", "Q8_0").pricer(), batch(1)
    ).confidence == (INTERPOLATED)
    for guess in (
        served("Llama 3.1 8B", "mi300x", "Q8_0"),
        served("gpt-oss-120b", "rtx-4090", "MXFP4"),
        served("gpt-oss-120b", "dgx-spark", "MXFP4", boxes=2),
    ):
        assert decode_range(guess.pricer(), batch(1)).confidence == ESTIMATED


@pytest.mark.parametrize("hardware", ["dgx-spark", "rtx-4090"])
def test_a_guess_is_wider_than_a_fit(hardware: str) -> None:
    fitted = decode_range(served("Llama 3.1 8B", hardware, "Q8_0").pricer(), batch(1))
    guessed = decode_range(served("Llama 3.1 8B", "mi300x", "Q8_0").pricer(), batch(1))
    assert math.log(guessed.high / guessed.low) > 1.5 * math.log(fitted.high / fitted.low)
