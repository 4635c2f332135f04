"""Labels of a prediction: MEASURED, COMMUNITY, INTERPOLATED, ESTIMATED, and what stands beside."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_answers import answer, refused

from headroom_bench.catalog.published import published_rows, series_source
from headroom_bench.cli.app import run_app

SPARK = ["predict", "--hardware", "dgx-spark", "--model", "gpt-oss-120b", "--quant", "MXFP4"]

CALIBRATION = """\
schema_version = 1
sources = ["results/2026-11-30-spark"]

[key]
hardware = "dgx-spark"
runtime = "llama.cpp"
backend = "cuda"
model = "gpt-oss-120b"
quant = "MXFP4"
context_tokens = [512, 32768]
users = [1, 8]

[constants]
bandwidth_efficiency = { value = 0.80, unit = "1", stderr = 0.01, n = 12, status = "fitted" }
expert_exponent = { value = 0.70, unit = "1", stderr = 0.02, n = 4, status = "fitted" }

[error.decode]
before = 0.09
after = 0.03
"""


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    path = tmp_path / "spark.toml"
    path.write_text(CALIBRATION)
    return path


def test_a_published_row_stands_beside_the_prediction(capsys: pytest.CaptureFixture[str]) -> None:
    d = answer(capsys, *SPARK, "--context", "4096", "--users", "8", "--ubatch", "2048")
    row = d["decode"]["published"]
    assert d["confidence"] == "COMMUNITY"
    # ggspark26, b7941: 8 sequences with 4,096 tokens each.
    published = {r.id: r for r in published_rows("dgx-spark", "gpt-oss-120b")}[row["id"]]
    assert row["id"] == "ggspark26-0066"
    assert (published.users, published.depth_tokens, published.build) == (8, 4096, "b7941")
    assert (row["tok_s"], row["build"], row["depth_tokens"]) == (published.tok_s, "b7941", 4096)
    assert row["source"] == series_source("ggspark26")
    assert row["deviation"] == pytest.approx(row["predicted_tok_s"] / row["tok_s"] - 1)
    assert row["predicted_tok_s"] == pytest.approx(d["decode"]["tok_s_total"], rel=0.01)
    assert row["low"] <= row["tok_s"] <= row["high"]
    prompt = d["prefill"]["published"]
    assert d["prefill"]["confidence"] == "COMMUNITY"
    assert (prompt["prompt_tokens"], prompt["depth_tokens"]) == (4096, 0)


def test_other_depths_users_and_caches_are_not_the_same_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (
        ["--context", "100k"],
        ["--users", "7"],
        ["--kv-type", "q8_0"],
        ["--boxes", "2"],
        ["--identical", "--users", "8"],
        ["--runtime", "sglang"],
    ):
        d = answer(capsys, *SPARK, *words)
        assert d["decode"]["published"] is None, words
        assert d["confidence"] in ("INTERPOLATED", "ESTIMATED")


def test_a_build_is_compared_with_builds_like_it(capsys: pytest.CaptureFixture[str]) -> None:
    old = answer(capsys, *SPARK, "--users", "2", "--context", "512", "--build", "b6989")
    new = answer(capsys, *SPARK, "--users", "2", "--context", "512")
    assert old["decode"]["published"]["id"] == "ggspark25-0050"
    assert new["decode"]["published"]["id"] == "ggspark26-0050"


def test_a_row_makes_an_unknown_box_no_guess(capsys: pytest.CaptureFixture[str]) -> None:
    # No constant is fitted to Turing; llmfit measured three dozen models on one such card.
    words = ["predict", "--hardware", "rtx-2080ti", "--quant", "Q4_K_M", "--context", "200"]
    known = answer(capsys, *words, "--model", "Llama 3.1 8B")
    assert known["confidence"] == "COMMUNITY"
    assert known["decode"]["published"]["trust"] == "C"
    assert answer(capsys, *words, "--model", "Qwen2.5 32B")["confidence"] == "ESTIMATED"


def test_a_row_outside_of_the_range_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    # ky26feb-0084: 60 % slower at 32k than predicted.
    d = answer(
        capsys, "predict", "--hardware", "strix-halo-128", "--model", "qwen3-235b-a22b", "--quant",
        "UD-Q3_K_XL", "--context", "32k", "--build", "b7938",
    )  # fmt: skip
    row = d["decode"]["published"]
    assert row is not None
    outside = (
        not d["low"]
        <= row["tok_s"] / row["predicted_tok_s"] * d["decode"]["tok_s_per_user"]
        <= d["high"]
    )
    assert outside
    assert any(row["id"] in note and "rule is wrong" in note for note in d["notes"])


def test_a_measurement_past_the_memory_cliff_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Methodology page, section 7: 33.8 tok/s measured where its rule and ours say no.
    d = answer(
        capsys, "predict", "--hardware", "rtx-4090", "--model", "Qwen3 8B", "--quant", "Q4_K_M",
        "--context", "131072",
    )  # fmt: skip
    assert not d["fit"]["fits"]
    assert d["decode"]["published"]["tok_s"] == 33.8
    assert any("method-0001" in note and "rule is wrong" in note for note in d["notes"])


def test_a_calibration_of_this_model_is_a_measurement(
    capsys: pytest.CaptureFixture[str], calibration: Path
) -> None:
    shipped = answer(capsys, *SPARK)
    own = answer(capsys, *SPARK, "--calibration", str(calibration))
    assert own["confidence"] == "MEASURED"
    assert own["decode"]["tok_s_per_user"] < shipped["decode"]["tok_s_per_user"]
    # The range is the calibration's own error, nothing else.
    assert own["high"] / own["decode"]["tok_s_per_user"] == pytest.approx(1.03)
    assert own["decode"]["published"]["id"] == shipped["decode"]["published"]["id"]
    assert "results/2026-11-30-spark" in own["sources"]
    # Compute was not calibrated, so prompts keep their label and their range.
    assert own["prefill"]["confidence"] == shipped["prefill"]["confidence"]
    several = answer(capsys, *SPARK, "--users", "8", "--calibration", str(calibration))
    exponent = answer(capsys, *SPARK, "--users", "8")
    assert several["decode"]["bytes_per_pass"] > exponent["decode"]["bytes_per_pass"]


@pytest.mark.parametrize("words", [["--context", "100k"], ["--users", "32"]])
def test_beyond_what_was_measured_it_is_no_measurement(
    capsys: pytest.CaptureFixture[str], calibration: Path, words: list[str]
) -> None:
    # No row of this depth or number of users, so the label is the constants'.
    words = [*words, "--kv-type", "q8_0"]
    d = answer(capsys, *SPARK, *words, "--calibration", str(calibration))
    shipped = answer(capsys, *SPARK, *words)
    assert d["confidence"] == shipped["confidence"] == "INTERPOLATED"
    own, without = (each["decode"]["tok_s_per_user"] for each in (d, shipped))
    assert own != without
    assert d["low"] / own == pytest.approx(shipped["low"] / without, rel=0.02)
    assert d["high"] / own == pytest.approx(shipped["high"] / without, rel=0.02)
    assert "beyond what spark.toml measured: its constants, but the shipped range" in d["notes"]
    inside = answer(capsys, *SPARK, "--calibration", str(calibration))
    assert not any("spark.toml" in note for note in inside["notes"])


def test_beyond_the_window_prompts_have_the_shipped_range(
    capsys: pytest.CaptureFixture[str], calibration: Path
) -> None:
    calibration.write_text(CALIBRATION + "\n[error.prefill]\nbefore = 0.2\nafter = 0.01\n")
    words = [*SPARK, "--prompt", "64k"]
    own = answer(capsys, *words, "--calibration", str(calibration))["prefill"]
    shipped = answer(capsys, *words)["prefill"]
    assert own["confidence"] == shipped["confidence"]
    assert own["high"] / own["tok_s"] == pytest.approx(shipped["high"] / shipped["tok_s"], rel=0.01)
    inside = answer(capsys, *SPARK, "--prompt", "16k", "--calibration", str(calibration))["prefill"]
    assert inside["high"] / inside["tok_s"] < 1.2 < own["high"] / own["tok_s"]


def test_a_calibration_of_any_model_is_none_of_this_one(
    capsys: pytest.CaptureFixture[str], calibration: Path
) -> None:
    text = CALIBRATION.replace('model = "gpt-oss-120b"', 'model = "any"')
    calibration.write_text("\n".join(x for x in text.splitlines() if "expert_exponent" not in x))
    d = answer(capsys, *SPARK, "--context", "100k", "--calibration", str(calibration))
    assert d["confidence"] == "INTERPOLATED"
    assert "calibration spark.toml" in " ".join(d["sources"])


def test_a_calibration_of_another_box_is_not_used(
    capsys: pytest.CaptureFixture[str], calibration: Path
) -> None:
    words = [*SPARK, "--calibration", str(calibration), "--vs", "strix-halo-128"]
    d = answer(capsys, *words)
    assert d["confidence"] == "MEASURED"
    assert d["vs"]["confidence"] != "MEASURED"
    assert "spark.toml is of another box or model: not used" in d["vs"]["notes"]


@pytest.mark.parametrize(
    ("wrong", "right", "told"),
    [
        ("schema_version = 1", "schema_version = 2", "spark.toml:1: schema_version: 2 is not 1"),
        ('hardware = "dgx-spark"', 'hardware = "no-box"', "spark.toml:5: key.hardware: "),
        ('model = "gpt-oss-120b"', 'model = "gpt-9"', "spark.toml:8: key.model: "),
        ('backend = "cuda"', 'backend = "abacus"', "spark.toml:7: key.backend: "),
        ("[512, 32768]", "[512]", "spark.toml:10: key.context_tokens: "),
        ("[1, 8]", "[8, 1]", "spark.toml:11: key.users: "),
        ("bandwidth_efficiency", "bandwidth", "is no constant of the model"),
        ("value = 0.80", "value = -1", "spark.toml:14: constants.bandwidth_efficiency.value: "),
        ("value = 0.80", "value = 0", "must be above 0"),
        ("value = 0.80", "value = inf", "out of range"),
        (
            "value = 0.80",
            "value = 8.6",
            "spark.toml:14: constants.bandwidth_efficiency.value: 8.6 is above 1",
        ),
        ('unit = "1"', 'unit = "s"', "constants.bandwidth_efficiency.unit: "),
        ('status = "fitted"', 'status = "sure"', "constants.bandwidth_efficiency.status: "),
        ("before = 0.09", "behind = 0.09", "error.decode.before: is missing"),
        ('model = "gpt-oss-120b"', 'model = "any"', "expert_exponent belongs to a model"),
        ("[error.decode]", "[error.decoding]", "decoding: is not a field here"),
        ("[constants]", "[consonants]", "constants: is missing"),
    ],
)
def test_a_wrong_calibration_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], calibration: Path, wrong: str, right: str, told: str
) -> None:
    assert wrong in CALIBRATION
    calibration.write_text(CALIBRATION.replace(wrong, right, 1))
    assert told in refused(capsys, *SPARK, "--calibration", str(calibration))


def test_a_calibration_that_is_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "cannot be read" in refused(capsys, *SPARK, "--calibration", str(tmp_path / "no.toml"))


def test_the_page_names_the_row(capsys: pytest.CaptureFixture[str], calibration: Path) -> None:
    assert run_app([*SPARK, "--context", "512"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "57.1 tok/s, 1 user at 512 tokens (ggspark26-0048: b7941, 2026-02)" in page
    assert "COMMUNITY: others measured this case" in page
    assert run_app([*SPARK, "--calibration", str(calibration)]) == 0
    assert "MEASURED: constants of your own measurements" in capsys.readouterr().out


def test_a_grid_carries_labels_and_rows(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, calibration: Path
) -> None:
    file = tmp_path / "grid.csv"
    file.write_text(
        f"hardware,context,calibration\ndgx-spark,512,\ndgx-spark,512,{calibration}\n"
        "strix-halo-128,512,\n"
    )
    found = answer(capsys, *SPARK, "--grid", str(file))
    assert [row["confidence"] for row in found] == ["COMMUNITY", "MEASURED", "COMMUNITY"]
    assert run_app([*SPARK, "--grid", str(file)]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert head.endswith("confidence,published_id,published_tok_s,error")
    assert ",COMMUNITY,ggspark26-0048,57.140," in first
