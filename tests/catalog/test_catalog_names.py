"""Names as people type them, and files of one's own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headroom_bench.catalog import (
    find_hardware,
    find_model,
    find_network,
    find_quant,
    find_runtime,
    hardware,
    kv_value_bytes,
    models,
    networks,
    quants,
    runtimes,
)
from headroom_bench.errors import UserError


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("gpt-oss-120b", "gpt-oss 120B"),
        ("openai/gpt-oss-120b", "gpt-oss 120B"),
        ("GPT-OSS 120B", "gpt-oss 120B"),
        ("gpt_oss_20b", "gpt-oss 20B"),
        ("llama 3.1 8b", "Llama 3.1 8B Instruct"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "Llama 3.1 8B Instruct"),
        ("Qwen3-30B-A3B", "Qwen3 30B-A3B"),
        ("qwen3-30b-a3b-thinking", "Qwen3 30B-A3B Thinking 2507"),
        ("SmolLM2-135M-Instruct", "SmolLM2 135M Instruct"),
        ("smollm2-135m", "SmolLM2 135M Instruct"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "Qwen2.5 7B Instruct"),
    ],
)
def test_models_answer_to_the_names_in_use(typed: str, meant: str) -> None:
    assert find_model(typed).name == meant


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("GB10", "dgx-spark"),
        ("dgx spark", "dgx-spark"),
        ("NVIDIA DGX Spark", "dgx-spark"),
        ("strix halo", "strix-halo-128"),
        ("Ryzen AI Max+ 395", "strix-halo-128"),
        ("rtx 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("m2 ultra", "m2-ultra-192"),
        ("cpu-2core", "cpu-2core"),
    ],
)
def test_hardware_answers_to_the_names_in_use(typed: str, meant: str) -> None:
    assert find_hardware(typed).id == meant


def test_quants_runtimes_and_networks_answer_to_the_names_in_use() -> None:
    assert find_quant("q4_k_m").name == "Q4_K_M"
    assert find_quant("MXFP4").format == "gguf"
    assert find_quant("fp8").format == "safetensors"
    assert find_runtime("llamacpp") is find_runtime("llama.cpp")
    assert find_runtime("vLLM").design == "paged"
    assert find_network("wifi 6").shared_medium


def test_every_entry_is_found_by_each_of_its_own_names() -> None:
    for model in models():
        for name in (model.name, model.id, model.hf_id):
            assert find_model(name) is model
    for box in hardware():
        assert find_hardware(box.id) is box
        assert find_hardware(box.name) is box
    for quant in quants():
        assert find_quant(quant.name) is quant
    for runtime in runtimes():
        assert find_runtime(runtime.id) is runtime
        assert find_runtime(runtime.name) is runtime
    for network in networks():
        assert find_network(network.id) is network
        assert find_network(network.name) is network


@pytest.mark.parametrize(
    ("find", "typed", "meant"),
    [
        (find_hardware, "4090", "rtx-4090"),
        (find_hardware, "rtx4090", "rtx-4090"),
        (find_hardware, "orin nano", "jetson-orin-nano-super"),
        (find_model, "llama-4-scout", "llama-4-scout-17b-16e"),
        (find_model, "meta-llama/Llama-4-Scout", "llama-4-scout-17b-16e"),
        (find_model, "qwen3next", "qwen3-next-80b-a3b-instruct"),
        (find_network, "crowded", "wifi-crowded"),
    ],
)
def test_whole_words_of_one_name_are_enough(
    find: Callable[[str], Any], typed: str, meant: str
) -> None:
    assert find(typed).id == meant


@pytest.mark.parametrize(
    ("find", "typed"),
    [
        (find_hardware, "nan"),
        (find_hardware, "spar"),
        (find_hardware, "park"),
        (find_hardware, "409"),
        (find_hardware, "q9"),
        (find_model, "one"),
        (find_model, "b8"),
        (find_network, "none"),
        (find_quant, "q1_0"),
        (find_runtime, "ten"),
        (find_model, "ab" * 100_000),
        (find_model, "-"),
    ],
)
def test_a_piece_of_a_word_means_nothing(find: Callable[[str], Any], typed: str) -> None:
    with pytest.raises(UserError, match=r"^unknown "):
        find(typed)


@pytest.mark.parametrize(
    ("typed", "offer"),
    [
        ("m4 max", "m4-max-128, m4-max-36"),
        ("h100", "h100-pcie, h100-sxm"),
        ("rtx 4009", "rtx-4090"),
    ],
)
def test_near_misses_and_several_fits_are_offered_in_one_line(typed: str, offer: str) -> None:
    with pytest.raises(UserError, match=re.escape(offer)) as caught:
        find_hardware(typed)
    assert "\n" not in str(caught.value)


def test_kv_types_have_widths_and_unknown_ones_are_refused() -> None:
    assert kv_value_bytes("f16") == 2.0
    assert kv_value_bytes("q8_0") == 1.0625
    assert kv_value_bytes("FP8") == 1.0
    with pytest.raises(UserError, match="KV cache type 'q9'"):
        kv_value_bytes("q9")


_MODEL = """
name = "Mine"
n_layers = 4
hidden_size = 64
n_heads = 4
n_kv_heads = 2
head_dim = 16
vocab_size = 1000
ffn_intermediate = 128
"""


def test_a_file_of_ones_own_is_an_entry(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        _MODEL + "[moe]\nn_experts = 8\nexperts_per_token = 2\n"
        "moe_intermediate = 32\nn_moe_layers = 4\n"
    )
    model = find_model(str(file))
    assert model.source == "mine.toml"
    assert model.params().routed == 4 * 8 * 3 * 64 * 32


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name = 'x'", "n_layers is missing"),
        (_MODEL + "n_layrs = 3", "did you mean n_layers"),
        (_MODEL.replace("n_layers = 4", "n_layers = 'four'"), "n_layers must be a whole number"),
        (_MODEL.replace("n_layers = 4", "n_layers = -4"), "n_layers must be a whole number"),
        (_MODEL.replace("n_layers = 4", "n_layers = 0"), "n_layers must be above 0"),
        (_MODEL.replace("n_layers = 4", "n_layers = true"), "n_layers must be a whole number"),
        (_MODEL + f"max_context = {10**400}", "must be a whole number from 0 to 1,000,000,000,000"),
        (_MODEL + "params_total_b = 1e300", "must be a number from 0 to 1,000,000,000,000, not 1e"),
        (_MODEL + "moe = 3", "moe must be a table"),
        (_MODEL + "[moe]\nn_experts = 8", "moe: field experts_per_token is missing"),
        ("name = ", r"wrong\.toml:1: is not valid TOML"),
        ('name = "\\u001b[2Jx"', r"name holds '\\x1b', which no terminal can show"),
    ],
)
def test_a_wrong_file_is_named_with_the_field(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=complaint) as caught:
        find_model(str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_box_of_ones_own_needs_its_figures(tmp_path: Path) -> None:
    file = tmp_path / "box.toml"
    text = (
        "id = 'mine'\nname = 'Mine'\narchitecture = 'ada'\nmemory_gb = 24\n"
        "usable_memory_gb = 23\nbandwidth_gb_s = {}\n[tflops_dense]\nfp16_bf16 = 100\n"
    )
    file.write_text(text.format(1000))
    assert find_hardware(str(file)).tflops_dense.fp16_bf16 == 100
    file.write_text(text.format("inf"))
    with pytest.raises(UserError, match="bandwidth_gb_s must be a number"):
        find_hardware(str(file))


@pytest.mark.parametrize(
    "find", [find_model, find_hardware, find_quant, find_network, find_runtime]
)
def test_a_path_of_no_file_is_not_taken_for_a_name(find: Callable[[str], object]) -> None:
    with pytest.raises(UserError, match="does not exist"):
        find("./nothing.toml")


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "n = " + "9" * 5000, "stored = {}"])
def test_a_hostile_toml_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=re.escape(str(file))) as caught:
        find_model(str(file))
    assert "\n" not in str(caught.value)


def test_importing_the_catalogue_reads_nothing_and_imports_nothing_heavy() -> None:
    code = (
        "import sys, headroom_bench.catalog\n"
        "from headroom_bench.catalog import _entries\n"
        "assert not _entries.read_data.cache_info().currsize\n"
        "assert not {'numpy', 'pandas', 'scipy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
