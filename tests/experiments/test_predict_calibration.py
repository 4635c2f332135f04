"""Constants of a calibration file: those that are taken leave every figure a number."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headroom_bench.errors import UserError
from headroom_bench.experiments.predict import Question, predict
from headroom_bench.experiments.predict_calibration import _NAMES, _UNITS, read_calibration
from headroom_bench.roofline.calibration import EXPERT_EXPONENT, Calibration
from headroom_bench.roofline.fitted import BOXES, COMMON

TEXT = """\
schema_version = 1
sources = ["a bench"]
[key]
hardware = "dgx-spark"
runtime = "llama.cpp"
backend = "cuda"
model = "gpt-oss-20b"
[constants]
{name} = {{value = {value}, unit = "{unit}", status = "fitted", stderr = {stderr}, n = 3}}
"""
ASKED = Question("dgx-spark", "gpt-oss-20b", quant="MXFP4", context=4096, users=4)
sizes = st.integers(-14, 13).flatmap(lambda power: st.floats(1, 9.9).map(lambda x: x * 10.0**power))
odd = st.sampled_from((0.0, -0.0, -1.0, 5e-324, 1e300, math.inf, math.nan))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("own") / "own.toml"


def read(file: Path, name: str, value: float, stderr: float) -> Calibration | str:
    """The calibration, or why it is refused."""
    file.write_text(TEXT.format(name=name, value=value, unit=_UNITS[name], stderr=stderr))
    try:
        return read_calibration(file)
    except UserError as why:
        return str(why)


@given(st.sampled_from(_NAMES), sizes | odd, st.floats(0, 100))
@example("overlap_p", 16.0, 0.0)
@example("overlap_p", 0.5, 0.0)
@example("expert_exponent", 2.0, 100.0)
@example("bandwidth_efficiency", 1e-3, 0.0)
@example("fp4_half_share", 0.0, 0.0)
@example("narrow_expert_width", 1e6, 0.0)
@example("tile_tokens", 0.0, 0.0)
def test_whatever_constant_is_taken_every_figure_stays_a_number(
    file: Path, name: str, value: float, stderr: float
) -> None:
    found = read(file, name, value, stderr)
    if isinstance(found, str):
        assert found.startswith(f"{file}:9: constants.{name}.value: ")
        return
    (constant,) = found.constants
    assert (constant.name, constant.value) == (name, value)
    told = predict(replace(ASKED, calibration=found))
    rates = told["decode"]["tok_s_per_user"], told["prefill"]["tok_s"]
    times_s = told["ttft_s"], told["decode"]["iteration_ms"]
    assert all(0 < figure < math.inf for figure in (*rates, *times_s, told["high"]))
    assert 0 <= told["low"] <= rates[0] <= told["high"]
    assert told["confidence"] in ("MEASURED", "COMMUNITY", "INTERPOLATED", "ESTIMATED")


def test_every_shipped_constant_would_be_taken(file: Path) -> None:
    """The bounds leave out nothing that a box was found to have."""
    known = {name: {entry[0]} for name, entry in COMMON.items()}
    assert known.keys() == set(_NAMES) - {EXPERT_EXPONENT}
    for fit in BOXES.values():
        for name, value in fit.values.items():
            known[name].add(value)
    for name, values in known.items():
        for value in values:
            assert not isinstance(read(file, name, value, 0.0), str), (name, value)
