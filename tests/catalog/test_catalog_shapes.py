"""What is computed from a shape, against what was published."""

from __future__ import annotations

import pytest

from headroom_bench.catalog import Model, find_model, hardware, models, networks, quants, runtimes
from headroom_bench.errors import UserError

GIB = 2**30

PARTIAL = {"Muse Glimmer 30B"}
"""Width, heads and FFN are not published."""


def _counted_b(model: Model) -> float:
    """Computed total, with the image and audio towers that the published total includes."""
    inside = sum(size for name, size in model.towers.items() if "not_in_total" not in name)
    return model.params().total / 1e9 + float(inside)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.id)
def test_computed_totals_agree_with_the_published_ones(model: Model) -> None:
    if model.name in PARTIAL:
        with pytest.raises(UserError, match="not fully published"):
            model.params()
        return
    assert _counted_b(model) == pytest.approx(model.params_total_b, rel=0.04)


@pytest.mark.parametrize(
    ("name", "params_b"),
    [
        ("Gemma 4 26B-A4B it", 25.23),
        ("Gemma 4 31B it", 30.70),
        ("Qwen3.5 35B-A3B", 34.66),
        ("Qwen3.5 122B-A10B", 122.11),
        ("MiniMax-M2 230B-A10B", 228.69),
        ("GLM-4.7-Flash 30B-A3B", 29.94),
        ("Nemotron 3 Super 120B-A12B", 120.67),
        ("gpt-oss 120B", 116.83),
        ("gpt-oss 20B", 20.91),
    ],
)
def test_counts_agree_with_what_llama_bench_prints(name: str, params_b: float) -> None:
    assert find_model(name).params().total / 1e9 == pytest.approx(params_b, rel=1e-3)


def test_roles_of_a_mixture_add_up() -> None:
    params = find_model("gpt-oss-120b").params()
    assert params.routed == 36 * 128 * 3 * 2880 * 2880
    assert params.routed_active == params.routed * 4 / 128
    assert params.head == params.embedding == 201088 * 2880
    assert params.active == pytest.approx(params.total - params.routed + params.routed_active)
    # The model card's 5.13B leaves the input embedding out.
    assert (params.active - params.embedding) / 1e9 == pytest.approx(5.13, rel=0.01)


def test_a_tied_model_has_one_matrix_for_both_ends() -> None:
    model = find_model("SmolLM2-135M-Instruct")
    assert (model.hidden_size, model.n_layers, model.n_heads, model.n_kv_heads) == (576, 30, 9, 3)
    assert (model.head_dim, model.ffn_intermediate, model.vocab_size) == (64, 1536, 49152)
    assert model.params().head == 0
    assert model.params().output == model.params().embedding


@pytest.mark.parametrize(
    ("name", "kib"),
    [
        ("Qwen3.6 35B-A3B", 20),
        ("Qwen3 8B", 144),
        ("Qwen3.8 27B", 64),
        ("gpt-oss 20B", 24),
        ("Llama 3.1 8B Instruct", 128),
        ("DeepSeek-V3 671B", 70_272 / 1024),
    ],
)
def test_growing_cache_a_token(name: str, kib: float) -> None:
    assert find_model(name).kv().full_bytes() == kib * 1024


def test_a_hybrid_caches_in_its_few_full_layers_only() -> None:
    kv = find_model("Nemotron Nano 9B v2").kv()
    assert kv.full_bytes() * 131_072 == 2 * GIB
    assert kv.state_bytes == 143_548_416


def test_window_layers_with_shared_caches_store_less_than_they_read() -> None:
    kv = find_model("Gemma 4 E2B it").kv()
    assert kv.full_bytes() == 3 * 2 * 1 * 512 * 2
    assert kv.window_bytes() * 512 == 6_291_456
    assert kv.full_read_ratio == pytest.approx(7 / 3)


def test_attention_flops_follow_the_heads() -> None:
    llama = find_model("Llama 3.1 8B")
    assert llama.attention_flops_per_pair() == (4.0 * 32 * 128 * 32, 0.0)
    oss = find_model("gpt-oss-120b")
    assert oss.attention_flops_per_pair() == (4.0 * 64 * 64 * 18, 4.0 * 64 * 64 * 18)


def test_every_entry_has_a_source_and_sane_figures() -> None:
    for kind in (models(), hardware(), quants(), runtimes(), networks()):
        assert all(entry.source for entry in kind)
    for box in hardware():
        assert 0 < box.usable_memory_gb <= box.memory_gb
        assert box.bandwidth_gb_s > 0 < box.tflops_dense.fp16_bf16
        assert box.measured_read_bandwidth_gb_s is None or (
            box.measured_read_bandwidth_gb_s <= box.bandwidth_gb_s
        )
    for quant in quants():
        assert 1 < quant.bits_per_weight <= 32
    assert (len(models()), len(hardware()), len(quants())) == (142, 101, 61)
    assert (len(runtimes()), len(networks())) == (9, 28)
