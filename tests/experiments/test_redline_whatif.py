"""Grids of redlines: every combination, with price, tier and errors told in their rows."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from headroom_bench.catalog import find_model, find_quant, models
from headroom_bench.catalog._entries import read_data
from headroom_bench.catalog.capability import tier_of
from headroom_bench.crowd.crowd import crowd_of
from headroom_bench.errors import UserError
from headroom_bench.experiments.differences import differences
from headroom_bench.experiments.redline import RedlineOptions
from headroom_bench.experiments.whatif import (
    AXES,
    COLUMNS,
    as_csv,
    axes_of,
    changed,
    combinations,
    cost,
    grid,
    versus,
)
from headroom_bench.report.redline_page import print_grid, print_redline
from headroom_bench.target import ServerSpec, Target

BOX = Target(
    "box", "http://127.0.0.1:1",
    server=ServerSpec(
        hardware="rtx-4090", model="Llama 3.1 8B", quant="Q4_K_M", backend="cuda", slots=4,
        ctx=32_768,
    ),
)  # fmt: skip
OPTIONS = RedlineOptions(BOX, crowd_of(["chat-reader:1"], 1), 600.0, 60.0, most=8, repeats=1)


def rows_of(**axes: list[str]) -> list[dict[str, Any]]:
    number, found = grid(OPTIONS, axes, lambda t, word: None)
    rows = list(found)
    assert len(rows) == number
    return rows


def test_every_combination_has_a_row() -> None:
    rows = rows_of(hardware=["rtx-4090", "dgx-spark"], slots=["1", "4"])
    assert [(row["hardware"], row["slots"]) for row in rows] == [
        ("rtx-4090", 1), ("rtx-4090", 4), ("dgx-spark", 1), ("dgx-spark", 4),
    ]  # fmt: skip
    assert all(row["error"] is None for row in rows)
    assert rows[0]["people"] <= rows[1]["people"]
    for row in rows:
        assert row["price_usd"] > 0
        if row["people"]:
            assert row["usd_per_person"] == pytest.approx(row["price_usd"] / row["people"])


def test_what_cannot_be_is_told_in_its_row() -> None:
    rows = rows_of(model=["Llama 3.1 8B", "Llama 3.1 405B"])
    assert [row["limit"] == "memory" for row in rows] == [False, True]
    assert rows[1]["people"] == 0
    assert rows[1]["usd_per_person"] is None


def test_a_wrong_name_stops_the_grid_before_it_begins() -> None:
    with pytest.raises(UserError, match="unknown model 'Lama 9'"):
        rows_of(model=["Llama 3.1 8B", "Lama 9"])


def test_csv_and_rows_agree() -> None:
    rows = rows_of(quant=["Q4_K_M", "Q8_0"])
    read = list(csv.DictReader(io.StringIO(as_csv(rows))))
    assert tuple(read[0]) == COLUMNS
    assert [line["people"] for line in read] == [str(row["people"]) for row in rows]


def test_rows_of_a_grid_can_be_told_apart_whatever_differs() -> None:
    rows = rows_of(kv_k=["f16", "q8_0"])
    assert [line["kv_k"] for line in csv.DictReader(io.StringIO(as_csv(rows)))] == ["f16", "q8_0"]

    def header(shown: list[dict[str, Any]]) -> list[str]:
        page = io.StringIO()
        print_grid(shown, Console(file=page, width=200, color_system=None))
        return page.getvalue().splitlines()[0].split()

    assert header(rows)[:6] == ["box", "model", "quant", "runtime", "slots", "kv_k"]
    assert "kv_k" not in header(rows[:1])


def test_versus_keeps_what_is_not_named() -> None:
    (other,) = versus(OPTIONS, ["dgx-spark"], lambda t, word: None)
    assert (other["vs"], other["hardware"], other["slots"]) == ("dgx-spark", "dgx-spark", 4)


def test_the_page_says_what_differs() -> None:
    """Nothing else in a title tells a cache's type."""
    (other,) = versus(OPTIONS, ["kv-k=q8_0"], lambda t, word: None)
    page = io.StringIO()
    print_redline(other, Console(file=page, width=200, color_system=None))
    assert ", with kv-k=q8_0" in page.getvalue().splitlines()[0]


def test_a_new_box_brings_its_own_backend() -> None:
    assert changed(BOX, {"slots": "2"}).server.backend == "cuda"
    assert changed(BOX, {"hardware": "strix-halo-128"}).server.backend is None
    both = changed(BOX, {"hardware": "strix-halo-128", "backend": "rocm"})
    assert both.server.backend == "rocm"
    assert changed(BOX, {"ctx": "64k"}).server.ctx == 64_000


def test_another_runtime_keeps_the_context_of_one_sequence() -> None:
    paged = changed(BOX, {"runtime": "vllm"})
    assert paged.server.ctx == 32_768 // 4
    assert changed(paged, {"runtime": "llama.cpp"}).server.ctx == 32_768
    assert changed(BOX, {"runtime": "ollama"}).server.ctx == 32_768
    assert changed(BOX, {"runtime": "vllm", "ctx": "16k"}).server.ctx == 16_000
    shared = replace(BOX, server=replace(BOX.server, slots=None))
    assert changed(shared, {"runtime": "vllm"}).server.ctx == 32_768, "one cache for all slots"


def test_words() -> None:
    assert differences("strix-halo-128,quant=Q8_0", AXES) == {
        "hardware": "strix-halo-128", "quant": "Q8_0"
    }  # fmt: skip
    assert axes_of(["slots=1,2", "kv-k=f16"]) == {"slots": ["1", "2"], "kv_k": ["f16"]}
    assert len(combinations({"slots": ["1", "2"], "quant": ["a", "b", "c"]})) == 6
    for wrong in (["colour=red"], ["slots"], ["slots="], ["=4"]):
        with pytest.raises(UserError, match="--over"):
            axes_of(wrong)
    for word in ("", "colour=red", "slots=", "slots=2,slots=4", "strix-halo-128,hardware=x"):
        with pytest.raises(UserError, match="--vs"):
            differences(word, AXES)
    with pytest.raises(UserError, match="slots 'many'"):
        changed(BOX, {"slots": "many"})


def test_no_price_is_no_cost() -> None:
    assert cost("strix-halo-128", 5) == {"price_usd": None, "usd_per_person": None}
    assert cost("dgx-spark", 0)["usd_per_person"] is None


def test_every_model_has_a_tier_marked_estimated() -> None:
    table = read_data("capability.json")
    assert table["estimated"] is True
    assert {model.name for model in models()} == set(table["models"])
    words = {entry["tier"] for entry in table["tiers"]}
    assert set(table["models"].values()) <= words


def test_tiers_tell_better_from_faster() -> None:
    four_bits, two_bits = find_quant("Q4_K_M"), find_quant("IQ1_M")

    def tier(name: str) -> int:
        found = tier_of(find_model(name), four_bits)
        assert found is not None
        return found.tier

    assert tier("SmolLM2 135M") < tier("Llama 3.1 8B") < tier("gpt-oss-120b")
    worn = tier_of(find_model("gpt-oss-120b"), two_bits)
    assert worn is not None
    assert worn.tier == tier("gpt-oss-120b") - 2
    unknown = replace(find_model("Llama 3.1 8B"), name="mine", n_layers=7)
    assert tier_of(unknown, four_bits) is None
