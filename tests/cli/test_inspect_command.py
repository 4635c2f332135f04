"""`inspect`: what a file is made of, whether it fits, how another packing differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_answers import answer, page, refused
from gguf_files import Tensor, gguf_of, write_gguf

from headroom_bench.catalog import find_model

GIB = 2**30


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return answer(capsys, "inspect", *words)


def _text(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return page(capsys, "inspect", *words)


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return refused(capsys, "inspect", *words)


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    """The Tuning article's file: Q4_0 throughout, whatever its name says."""
    metadata, tensors = gguf_of(find_model("Gemma 4 26B-A4B it"), "gemma4", "Q4_0")
    return write_gguf(tmp_path / "gemma-4-26B-A4B-it-UD-Q4_K_XL.gguf", metadata, tensors)


def test_the_worked_case_of_the_tuning_article(
    capsys: pytest.CaptureFixture[str], gemma: Path
) -> None:
    seen = _json(capsys, str(gemma))
    parts = {name: round(size / GIB, 2) for name, size in seen["weights"]["parts"].items()}
    assert parts == {
        "experts": 11.96,
        "attention": 0.58,
        "embeddings_output": 0.39,
        "dense_ffn": 0.32,
        "other": 0.0,
    }
    # The article's file has 14 MB of vocabulary in its header besides.
    assert seen["weights"]["tensor_bytes"] / GIB == pytest.approx(13.26, abs=0.02)
    assert set(seen["weights"]["types"]) == {"Q4_0", "F32"}
    one_pass = seen["per_pass"]
    assert (one_pass["experts_used"], one_pass["experts"]) == (8, 128)
    assert one_pass["always_active"] / GIB == pytest.approx(1.29, abs=0.005)
    assert one_pass["routed"] / GIB == pytest.approx(0.75, abs=0.005)
    assert one_pass["total"] / GIB == pytest.approx(2.04, abs=0.005)
    assert one_pass["always_active_share"] == pytest.approx(0.63, abs=0.005)


@pytest.mark.parametrize("model", ["gpt-oss-20b", "Qwen3 8B", "Gemma 4 26B-A4B", "GLM-4.5-Air"])
@pytest.mark.parametrize("quant", ["Q4_K_M", "Q2_K", "NVFP4", "MXFP4", "BF16"])
def test_the_parts_are_the_whole_in_every_format(
    capsys: pytest.CaptureFixture[str], model: str, quant: str
) -> None:
    weights = _json(capsys, model, "--quant", quant)["weights"]
    assert sum(weights["parts"].values()) == pytest.approx(weights["tensor_bytes"], rel=1e-12)


def test_the_worked_case_in_words(capsys: pytest.CaptureFixture[str], gemma: Path) -> None:
    told = _text(capsys, str(gemma))
    assert "the file's name says Q4_K, but no tensor is stored so" in told
    assert "2.04 GiB = always active 1.29 GiB (63%) + routed 0.75 GiB" in told
    assert "30 layers: 5 attend to everything, 25 attend to a window of 1,024 tokens" in told
    assert "cache (exact)" in told


def test_another_packing_is_compared_part_by_part(
    capsys: pytest.CaptureFixture[str], gemma: Path, tmp_path: Path
) -> None:
    metadata, tensors = gguf_of(find_model("Gemma 4 26B-A4B it"), "gemma4", "Q4_0")
    other = [
        tensor._replace(type="Q6_K") if tensor.name == "token_embd.weight" else tensor
        for tensor in tensors
    ]
    file = write_gguf(tmp_path / "publisher.gguf", metadata, other)
    versus = _json(capsys, str(gemma), "--vs", str(file))["vs"]
    embedding = 262_144 * 2816
    assert versus["parts"]["embeddings_output"] == embedding * (6.5625 - 4.5) / 8
    assert versus["tensor_bytes"] == versus["per_pass"] == embedding * (6.5625 - 4.5) / 8
    assert versus["types"]["Q6_K"] == [0, 1]
    assert versus["shape_differs_in"] == {}
    # The article measured 8.1 % between the two packings at zero context.
    assert versus["per_pass_ratio"] == pytest.approx(1.087, abs=0.001)
    told = _text(capsys, str(gemma), "--vs", str(file))
    assert "embeddings/output" in told
    assert "+8." in told


def test_files_of_other_models_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    versus = _json(capsys, "llama-3.1-8b", "--quant", "Q8_0", "--vs", "qwen3-8b")["vs"]
    assert versus["shape_differs_in"]["layers"] == [32, 36]
    assert "not the same model: layers 32 here, 36 there" in _text(
        capsys, "llama-3.1-8b", "--vs", "qwen3-8b"
    )


def test_the_real_small_model(capsys: pytest.CaptureFixture[str], smollm2: Path) -> None:
    seen = _json(capsys, str(smollm2), "--context", "2k", "--slots", "4")
    assert seen["same_shape_as"] == "SmolLM2 135M Instruct"
    assert seen["weights"]["file_bytes"] == smollm2.stat().st_size
    assert {name: entry["tensors"] for name, entry in seen["weights"]["types"].items()} == {
        "Q4_1": 210,
        "Q8_0": 1,
        "F32": 61,
    }
    assert sum(seen["weights"]["parts"].values()) == seen["weights"]["tensor_bytes"]
    assert seen["per_pass"]["total"] == seen["weights"]["tensor_bytes"]  # dense, tied
    assert seen["kv"]["provenance"] == "exact"
    assert seen["kv"]["bytes_per_token"]["f16"]["full"] == 2 * 30 * 3 * 64 * 2
    assert seen["memory"]["kv_gb"] == 4 * 2000 * 23_040 / 1e9


def test_layers_with_a_state_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    seen = _json(capsys, "qwen3-next-80b-a3b")
    assert seen["shape"]["layer_kinds"] == {"full": 12, "state": 36}
    assert seen["kv"]["state_bytes_per_sequence"] == 77_266_944
    assert seen["kv"]["bytes_per_token"]["q8_0"]["full"] == 24 * 1024 * 1.0625 / 2
    assert _json(capsys, "deepseek-v3-671b")["shape"]["layer_kinds"] == {"latent": 61}
    assert "state of a sequence: 73.7 MiB" in _text(capsys, "qwen3-next-80b-a3b")


def test_estimated_caches_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    seen = _json(capsys, "deepseek-v4-flash")["kv"]
    assert seen["provenance"] == "estimated"
    assert "compressed" in seen["why"]
    assert _json(capsys, "exaone-4.0-32b")["kv"]["provenance"] == "estimated"


def test_llama_4_scout_by_the_methodology_page(capsys: pytest.CaptureFixture[str]) -> None:
    published = _json(capsys, "llama-4-scout", "--quant", "Q4_K_M")["published"]
    assert published["weights_gb"] == pytest.approx(65.8, abs=0.05)
    assert published["per_token_gb"] == pytest.approx(10.3, abs=0.05)
    assert "65.8 GB, 10.3 GB a token" in _text(capsys, "llama-4-scout", "--quant", "Q4_K_M")


def test_what_does_not_fit_and_what_would(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("llama-3.1-8b", "--quant", "F16", "--hardware", "rtx-3060-12")
    seen = _json(capsys, *words, "--context", "8k")["fit"]
    assert not seen["fits"]
    assert seen["free_gb"] == pytest.approx(seen["usable_gb"] - seen["total_gb"])
    changes = [remedy["change"] for remedy in seen["would_fit"]]
    assert changes[0] == "quantization Q8_0"
    assert any("second" in change for change in changes)
    assert all(r["total_gb"] <= r["usable_gb"] for r in seen["would_fit"])
    told = _text(capsys, *words)
    assert "does not fit into GeForce RTX 3060 12GB" in told
    assert "would fit: quantization Q8_0" in told
    assert "fits into NVIDIA DGX Spark" in _text(capsys, "gpt-oss-120b", "--hardware", "gb10")


def test_files_of_ones_own_work_where_names_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, gemma: Path
) -> None:
    quant = tmp_path / "quant.toml"
    quant.write_text("name = 'mine'\nformat = 'gguf'\nwhole_file_bpw = 5.0\n")
    seen = _json(capsys, "llama-3.1-8b", "--quant", str(quant), "--hardware", "gb10")
    assert seen["weights"]["quant"] == "mine"
    assert seen["fit"]["total_gb"] == pytest.approx(seen["memory"]["total_gb"])
    seen = _json(capsys, str(gemma), "--hardware", "rtx-4090")
    assert seen["fit"]["total_gb"] == pytest.approx(seen["memory"]["total_gb"])


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("gpt-oss-20b", "published 20.91 B and 3.61 B, without the embedding's 579.1 M)"),
        ("Qwen3 30B-A3B", "published 30.50 B and 3.30 B)"),
    ],
)
def test_a_published_count_of_active_parameters_may_leave_out_the_embedding(
    model: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told in " ".join(_text(capsys, model).split())


def test_a_partly_published_shape_shows_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    seen = _json(capsys, "muse-glimmer-30b", "--hardware", "gb10")
    assert seen["weights"] is None
    assert seen["fit"] is None
    assert seen["kv"]["bytes_per_token"]["f16"]["full"] > 0
    assert "only partly published" in _text(capsys, "muse-glimmer-30b")


def test_config_and_toml_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "mystery",
                "num_hidden_layers": 2,
                "hidden_size": 64,
                "num_attention_heads": 4,
                "intermediate_size": 128,
                "vocab_size": 1000,
            }
        )
    )
    seen = _json(capsys, str(config), "--quant", "Q8_0")
    assert seen["weights"]["told_by"] == "table"
    assert seen["kv"]["provenance"] == "estimated"
    assert "mystery is not one we know" in seen["kv"]["why"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nothing.gguf"], "'nothing.gguf' does not exist"),
        (["llamma-3.1-8b"], "did you mean llama-3.1-8b"),
        (["gpt-oss-120b", "--quant", "Q9"], "unknown quantization 'Q9'"),
        (["gpt-oss-120b", "--kv-k", "q9"], "KV cache type"),
        (["gpt-oss-120b", "--runtime", "vlllm"], "unknown runtime 'vlllm'; did you mean vllm"),
        (["gpt-oss-120b", "--context", "lots"], "--context"),
        (["gpt-oss-120b", "--hardware", "rtx 9999"], "hardware"),
        (["gpt-oss-120b", "--vs", "nothing.gguf"], "does not exist"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    assert complaint in _refused(capsys, *words)


def test_a_damaged_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "x.gguf", {"general.architecture": "llama"}, [Tensor("a", (32,))])
    file.write_bytes(file.read_bytes()[:50])
    assert "x.gguf" in _refused(capsys, str(file))
