"""A file as the model: its tensors are the weights, everywhere that a name does."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from gguf_files import gguf_of, write_gguf

from headroom_bench.catalog import find_model, find_quant
from headroom_bench.errors import UserError
from headroom_bench.roofline import Batch, Deployment, fit
from headroom_bench.roofline.remedies import remedies
from headroom_bench.roofline.weights import weight_bytes


def _file(folder: Path, name: str, arch: str, kind: str) -> Path:
    return write_gguf(folder / f"{kind}.gguf", *gguf_of(find_model(name), arch, kind))


def _deployment(model: str, hardware: str = "rtx-4090", **over: object) -> Deployment:
    return Deployment.named(model=model, hardware=hardware, **over)  # type: ignore[arg-type]


def test_weights_come_from_the_tensors(tmp_path: Path) -> None:
    file = _file(tmp_path, "gpt-oss 20B", "gpt-oss", "MXFP4")
    served = _deployment(str(file))
    stored = served.model.stored
    assert stored
    weights = served.weights()
    assert weights.total == stored.size_bytes()
    assert weights.routed == stored.size_bytes("experts")
    assert weights.one_expert == 3 * 2880 * 2880 * 4.25 / 8
    assert weights.head == stored.size_bytes("output") == 201_088 * 2880 * 4.25 / 8
    # The input embedding is in memory, and one row of it is read.
    rest = weights.total - weights.always_read - weights.routed
    assert rest == stored.size_bytes("embedding")


def test_a_file_says_its_format_and_beats_what_is_said(tmp_path: Path) -> None:
    file = str(_file(tmp_path, "Llama 3.1 8B Instruct", "llama", "Q4_K"))
    plain, told = _deployment(file), _deployment(file, quant="Q8_0")
    assert plain.quant == told.quant
    assert plain.quant.name == "Q4_K"
    assert plain.quant.kind == "k-quant"
    assert plain.weights() == told.weights()
    assert plain.quant.bits_per_weight == pytest.approx(4.5, abs=0.01)
    with pytest.raises(UserError, match="unknown quantization 'Q9'"):
        _deployment(file, quant="Q9")
    with pytest.raises(UserError, match="give --quant"):
        _deployment("llama-3.1-8b")


def test_a_file_is_priced_like_the_same_model_by_name(tmp_path: Path) -> None:
    file = _file(tmp_path, "Qwen3 30B-A3B", "qwen3moe", "Q8_0")
    batch = Batch(decodes=2, kv_tokens=3000, window_tokens=3000, windows_growing=2)
    ours = _deployment(str(file), "dgx-spark").pricer().pass_s(batch)
    named = _deployment("Qwen3 30B-A3B", "dgx-spark", quant="Q8_0").pricer().pass_s(batch)
    assert ours == pytest.approx(named, rel=0.01)


def test_the_real_small_model_is_priced(smollm2: Path) -> None:
    served = _deployment(str(smollm2), "cpu-2core")
    assert served.pricer().pass_s(Batch(1, 100, 100, 1)) > 0
    named = weight_bytes(find_model("SmolLM2-135M"), find_quant("Q4_1"))
    assert served.weights().total == pytest.approx(named.total, rel=0.01)


def test_a_config_and_a_toml_are_served_by_a_format(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 4,
                "hidden_size": 256,
                "intermediate_size": 512,
                "num_attention_heads": 4,
                "vocab_size": 1000,
            }
        )
    )
    toml = tmp_path / "mine.toml"
    toml.write_text(
        "name='mine'\nn_layers=4\nhidden_size=256\nn_heads=4\nn_kv_heads=4\nhead_dim=64\n"
        "vocab_size=1000\nffn_intermediate=512\n"
    )
    by_config = _deployment(str(config), quant="Q8_0")
    assert by_config.weights() == _deployment(str(toml), quant="Q8_0").weights()
    assert by_config.kv() == _deployment(str(toml), quant="Q8_0").kv()


def test_what_fits_needs_no_remedy() -> None:
    assert remedies(_deployment("llama-3.1-8b", quant="Q4_K_M")) == ()


def test_each_remedy_alone_makes_it_fit() -> None:
    tight = _deployment("llama-3.1-8b", "rtx-3060-12", quant="Q8_0", slots=4, ctx=8000)
    assert not fit(tight).fits
    found = {remedy.change: remedy for remedy in remedies(tight)}
    assert all(remedy.total_gb <= remedy.usable_gb for remedy in found.values())
    longest, most = fit(tight).max_context_tokens, fit(tight).max_users
    assert f"a context of {longest:,} tokens a slot" in found
    assert (most, f"{most} slot instead of 4" in found) == (1, True)
    assert any(change.startswith("a second") for change in found)
    assert fit(dataclasses.replace(tight, ctx=longest)).fits
    assert not fit(dataclasses.replace(tight, ctx=longest + 1)).fits


def test_the_largest_format_that_fits_is_offered() -> None:
    large = _deployment("llama-3.1-8b", "rtx-3060-12", quant="F16")
    offered = remedies(large)[0]
    assert offered.change == "quantization Q8_0"
    assert fit(dataclasses.replace(large, quant=find_quant("Q8_0"))).total_gb == offered.total_gb


def test_a_file_too_large_is_offered_a_smaller_format(tmp_path: Path) -> None:
    file = _file(tmp_path, "Llama 3.1 8B Instruct", "llama", "F16")
    assert remedies(_deployment(str(file), "rtx-3060-12"))[0].change == "quantization Q8_0"


def test_where_nothing_helps_nothing_is_offered() -> None:
    assert remedies(_deployment("deepseek-v3-671b", "rtx-3060-12", quant="FP8")) == ()


def test_blocks_that_predict_further_tokens_are_in_memory_but_not_read(tmp_path: Path) -> None:
    stored = find_model(str(_file(tmp_path, "GLM-4.5-Air", "glm4moe", "Q8_0"))).stored
    assert stored
    assert stored.size_bytes("mtp") > 0
    served = _deployment(str(tmp_path / "Q8_0.gguf"), "dgx-spark")
    read = served.weights().always_read + served.weights().routed
    embedding = stored.size_bytes("embedding")
    assert served.weights().total == read + embedding + stored.size_bytes("mtp")
