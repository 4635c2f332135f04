"""Bytes of weights and caches, and whether they fit."""

from __future__ import annotations

import pytest

from headroom_bench.catalog import Quant, find_model, find_quant
from headroom_bench.errors import UserError
from headroom_bench.roofline import Deployment, fit
from headroom_bench.roofline.kv import causal_pairs, windowed_pairs
from headroom_bench.roofline.memory import kv_gb, weights_gb
from headroom_bench.roofline.remedies import remedies
from headroom_bench.roofline.weights import weight_bytes

GIB = 2**30


@pytest.mark.parametrize(
    ("model", "quant", "gib"),
    [
        ("gpt-oss-120b", "MXFP4", 59.02),
        ("gpt-oss-120b", "F16", 60.87),
        ("gpt-oss-20b", "MXFP4", 11.27),
        ("Qwen2.5 7B", "Q8_0", 7.54),
        ("Qwen3-Coder-30B-A3B", "Q8_0", 30.25),
        ("Llama 2 7B", "Q4_0", 3.56),
        ("Llama 3.1 8B", "Q4_K_M", 4.58),
        ("Llama 3.1 8B", "F16", 14.96),
        ("SmolLM2-135M", "Q4_1", 96.6e6 / GIB),
    ],
)
def test_file_sizes_agree_with_published_files(model: str, quant: str, gib: float) -> None:
    stored = weight_bytes(find_model(model), find_quant(quant))
    assert stored.total / GIB == pytest.approx(gib, rel=0.01)


def test_the_worked_case_of_the_tuning_article() -> None:
    # Gemma 4 26B-A4B, every tensor at Q4_0: 13.26 GiB, of which experts 11.96; a pass of one
    # sequence reads 2.04 GiB, 63 % of it always active.
    throughout = Quant(name="all Q4_0", format="gguf", whole_file_bpw=4.5)
    model = find_model("Gemma 4 26B-A4B")
    stored = weight_bytes(model, throughout)
    assert model.moe is not None
    woken = model.moe.experts_per_token * stored.one_expert * stored.moe_layers
    assert stored.total / GIB == pytest.approx(13.26, rel=0.01)
    assert stored.routed / GIB == pytest.approx(11.96, rel=0.001)
    assert (stored.always_read + woken) / GIB == pytest.approx(2.04, rel=0.01)
    assert stored.always_read / (stored.always_read + woken) == pytest.approx(0.63, abs=0.01)


def test_the_worked_case_of_the_methodology_page() -> None:
    # Llama 4 Scout: 109B in memory, 17B a token, at the page's 4.83 bits a weight.
    assert weights_gb(109, 4.83) == pytest.approx(65.8, abs=0.05)
    assert weights_gb(17, 4.83) == pytest.approx(10.3, abs=0.05)
    assert find_quant("Q4_K_M").methodology_bpw == 4.83


def test_the_input_embedding_is_read_only_where_it_is_the_output_matrix() -> None:
    untied = find_model("Llama 3.1 8B")
    stored = weight_bytes(untied, find_quant("F16"))
    assert stored.total - stored.always_read == pytest.approx(
        untied.params().embedding * 2, rel=1e-3
    )
    tied = weight_bytes(find_model("Llama 3.2 3B"), find_quant("F16"))
    assert tied.total == tied.always_read


def test_formats_that_leave_embeddings_alone() -> None:
    model = find_model("Llama 3.1 8B")
    stored = weight_bytes(model, find_quant("AWQ"))
    assert stored.head == model.params().head * 2
    assert 5.4 < stored.total * 8 / model.params().total < 5.8


@pytest.mark.parametrize(
    ("model", "quant", "gib"),
    [
        # Experts 1408, 704, 1856 and 2688 wide: no multiple of 256 (ky25aug, ky26may, kyr9700).
        ("GLM-4.5-Air", "UD-Q4_K_XL", 68.01),
        ("GLM-4.5-Air", "UD-Q6_K_XL", 94.57),
        ("Gemma 4 26B-A4B", "UD-Q4_K_XL", 15.90),
        ("Nemotron 3 Nano 30B-A3B", "UD-Q4_K_XL", 21.26),
        ("Nemotron 3 Super 120B-A12B", "UD-Q4_K_XL", 78.02),
        # 768 wide: three blocks, nothing changes (ky25aug).
        ("Qwen3 30B-A3B", "UD-Q4_K_XL", 16.49),
    ],
)
def test_rows_that_k_blocks_do_not_fill_take_short_blocks(
    model: str, quant: str, gib: float
) -> None:
    stored = weight_bytes(find_model(model), find_quant(quant))
    assert stored.total / GIB == pytest.approx(gib, rel=0.08)
    whole = find_model(model).params().total * find_quant(quant).bits_per_weight / 8
    if gib != 16.49:
        assert stored.total > 1.05 * whole


@pytest.mark.parametrize(
    ("model", "read_gb"),
    [
        # nvidia--*-NVFP4_hf_quant_config.json. Gemma 4 31B: 8.5 B in attention and the output
        # matrix (1.4 B) at 16 bits, 20.8 B of FFN at 4.5; its maker tells 31 GiB with the towers.
        ("Gemma 4 31B", 17.0 + 2.8 + 11.7),
        # Gemma 4 26B-A4B: attention, dense FFN and output at 16 bits, 8 of 128 experts at 4.5.
        ("Gemma 4 26B-A4B", 2.2 + 1.1 + 1.5 + 0.8),
        # Qwen3.6 35B-A3B: attention and mixers at 8 bits, output and router at 16, experts at 4.5.
        ("Qwen3.6 35B-A3B", 1.3 + 1.0 + 0.1 + 0.6),
    ],
)
def test_nvfp4_files_leave_attention_wider(model: str, read_gb: float) -> None:
    found = find_model(model)
    stored = weight_bytes(found, find_quant("NVFP4"))
    woken = found.moe.experts_per_token * stored.one_expert * stored.moe_layers if found.moe else 0
    assert (stored.always_read + woken) / 1e9 == pytest.approx(read_gb, rel=0.04)


@pytest.mark.parametrize("tokens", [1, 7, 512])
@pytest.mark.parametrize("context", [0, 100, 128, 5000])
def test_pairs_are_the_sum_over_tokens(tokens: int, context: int) -> None:
    seen = [context + i + 1 for i in range(tokens)]
    assert causal_pairs(tokens, context) == sum(seen)
    assert windowed_pairs(tokens, context, 128) == sum(min(n, 128) for n in seen)


def _deployment(**over: object) -> Deployment:
    named = {"model": "gpt-oss-120b", "hardware": "dgx-spark", "quant": "MXFP4", **over}
    return Deployment.named(**named)  # type: ignore[arg-type]


def test_a_quantized_cache_is_smaller_and_full_windows_are_larger() -> None:
    plain = kv_gb(_deployment(), 4, 32_000)
    assert kv_gb(_deployment(kv_k="q8_0", kv_v="q8_0"), 4, 32_000) == plain * 1.0625 / 2
    assert kv_gb(_deployment(swa_full=True), 4, 32_000) > 1.8 * plain
    assert kv_gb(_deployment(), 1, 10) == pytest.approx(36_864 * 2 * 10 / 1e9)


def test_fit_says_how_much_room_is_left() -> None:
    spark = fit(_deployment(slots=4, ctx=32_000))
    assert spark.fits
    assert spark.total_gb == spark.weights_gb + spark.kv_gb + 0.8
    assert not fit(_deployment(hardware="rtx-4090")).fits
    assert fit(_deployment(hardware="rtx-4090")).max_users == 0
    assert fit(_deployment(hardware="rtx-4090")).max_context_tokens == 0


def test_the_longest_context_fits_and_the_next_does_not() -> None:
    tight = _deployment(model="Llama 3.1 8B", quant="Q8_0", hardware="rtx-3060-12", slots=2)
    room = fit(tight)
    free = room.usable_gb - room.weights_gb - room.overhead_gb
    assert kv_gb(tight, 2, room.max_context_tokens) <= free
    assert kv_gb(tight, 2, room.max_context_tokens + 1) > free
    assert kv_gb(tight, room.max_users, tight.ctx) <= free
    assert kv_gb(tight, room.max_users + 1, tight.ctx) > free


def test_a_draft_model_is_in_memory_beside_the_model() -> None:
    told = {"model": "Qwen3 32B", "quant": "Q4_K_M", "hardware": "rtx-4090", "ctx": 8000}
    alone, small = _deployment(**told), _deployment(**told | {"model": "Qwen3 8B"})
    both = _deployment(**told, draft="Qwen3 8B")
    assert fit(both).weights_gb == pytest.approx(fit(alone).weights_gb + fit(small).weights_gb)
    assert fit(both).kv_gb == pytest.approx(fit(alone).kv_gb + fit(small).kv_gb)
    assert (fit(alone).fits, fit(both).fits) == (True, False)
    # What it takes is missed for contexts, and on a card weights go to host memory for it.
    roomy = {"hardware": "dgx-spark", "slots": 16}
    alone, both = _deployment(**told | roomy), _deployment(**told | roomy, draft="Qwen3 8B")
    assert fit(both).max_context_tokens < 0.9 * fit(alone).max_context_tokens
    assert "no draft model" in [
        each.change for each in remedies(_deployment(**told, draft="qwen3-8b"))
    ]


def test_a_prediction_head_has_no_weights_of_its_own() -> None:
    plain = _deployment(model="GLM-4.5-Air", quant="Q4_K_M")
    assert fit(_deployment(model="GLM-4.5-Air", quant="Q4_K_M", draft="mtp")) == fit(plain)


@pytest.mark.parametrize(
    ("field", "value"), [("ubatch", 0), ("slots", 0), ("ctx", -1), ("backend", "cudda")]
)
def test_wrong_values_are_refused(field: str, value: object) -> None:
    with pytest.raises(UserError, match=field):
        _deployment(**{field: value})


def test_a_model_of_unknown_shape_has_no_price() -> None:
    with pytest.raises(UserError, match="not fully published"):
        _deployment(model="Muse Glimmer 30B").pricer()
