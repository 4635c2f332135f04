"""Kernel regimes, builds, boxes, host memory and drafts: each rule by what only it can explain."""

from __future__ import annotations

import numpy as np
import pytest

from headroom_bench.errors import UserError
from headroom_bench.roofline import Batch, Chunk, Deployment, Roofline, fit
from headroom_bench.roofline.coefficients import coefficients, host_copy_s
from headroom_bench.roofline.drafting import drafter_of
from headroom_bench.roofline.iteration import multiplied_tokens, woken_experts
from headroom_bench.roofline.kernels import quantized_cache_factor, weight_class
from headroom_bench.roofline.memory import loaded_gb
from headroom_bench.roofline.offload import host_share

SPARK, STRIX = "dgx-spark", "strix-halo-128"


def served(model: str = "gpt-oss-120b", hardware: str = SPARK, **over: object) -> Deployment:
    named = {"model": model, "hardware": hardware, "quant": "MXFP4", **over}
    return Deployment.named(**named)  # type: ignore[arg-type]


def decode(n: int, context: int = 600, **over: int) -> Batch:
    return Batch(n, n * context, n * min(context, 128), n if context < 128 else 0, **over)


def seconds(deployment: Deployment, batch: Batch) -> float:
    return Roofline(deployment).pass_s(batch)


def test_vector_kernels_up_to_8_tokens_then_whole_tiles() -> None:
    cuda, vulkan = coefficients(served()), coefficients(served(hardware=STRIX))
    busy = multiplied_tokens(cuda, np.array([1.0, 8.0, 9.0, 16.0, 17.0]))
    assert busy.tolist() == [0, 0, 16, 16, 32]
    assert multiplied_tokens(vulkan, np.array([8.0, 9.0, 32.0, 33.0])).tolist() == [0, 32, 32, 64]


def test_vllm_pads_to_captured_graphs() -> None:
    c = coefficients(served(runtime="vllm"))
    sizes = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 9.0, 10.0, 512.0, 513.0])
    assert multiplied_tokens(c, sizes).tolist() == [1, 2, 4, 4, 8, 8, 16, 16, 512, 513]


def test_each_token_more_costs_a_share_while_vectors_do() -> None:
    dense = served("Llama 3.1 8B", "m2-ultra-192", quant="Q8_0")
    price = Roofline(dense)
    steps = [price.pass_s(decode(n, 1)) for n in range(2, 9)]
    grown = np.diff(steps)
    assert grown == pytest.approx([grown[0]] * 6, rel=0.02)
    assert grown[0] > 0.1 * steps[0]


def test_distinct_experts() -> None:
    # 128 experts, 4 a token: one token wakes 4, many wake all, none wakes none.
    assert woken_experts(1.0, 128, 4, 0.65) == pytest.approx(4)
    assert woken_experts(1e6, 128, 4, 0.65) == pytest.approx(128)
    assert woken_experts(5.0, 0, 0, 1.0) == 0
    independent = 128 * (1 - (1 - 4 / 128) ** 32)
    assert woken_experts(32.0, 128, 4, 1.0) == pytest.approx(independent)


def test_lockstep_wakes_one_users_experts() -> None:
    price = Roofline(served())
    plain, same = decode(16), decode(16, lockstep=15)
    assert price.pass_s(same) < 0.75 * price.pass_s(plain)
    # Only routing differs: a dense model has nothing to share.
    dense = Roofline(served("Llama 3.1 8B", quant="Q8_0"))
    assert dense.pass_s(same) == pytest.approx(dense.pass_s(plain), rel=1e-12)
    at_once = price.passes_s(same, 3)
    assert at_once[0] == pytest.approx(price.pass_s(same), rel=1e-12)
    cost = price.breakdown(same)
    assert cost.total_s == pytest.approx(price.pass_s(same), rel=1e-12)
    assert cost.weight_bytes == price.breakdown(decode(1)).weight_bytes


@pytest.mark.parametrize("sequences", [2, 8, 9, 16])
def test_lockstep_passes_cost_the_same_one_by_one_and_together(sequences: int) -> None:
    # Vector kernels up to 8 tokens a pass, matrix kernels from 9 on.
    price, same = Roofline(served()), decode(sequences, lockstep=sequences - 1)
    at_once = price.passes_s(same, 2)
    assert at_once[0] == pytest.approx(price.pass_s(same), rel=1e-12)
    assert price.breakdown(same).total_s == pytest.approx(at_once[0], rel=1e-12)


def test_identical_prompts_gain_what_the_tuning_article_saw() -> None:
    # 16 streams on a DGX Spark: 47 % more with identical prompts (Gemma 4 26B-A4B).
    price = Roofline(served("Gemma 4 26B-A4B", quant="Q4_0"))
    batch = Batch(16, 16 * 600, 16 * 600, 16)
    same = Batch(16, 16 * 600, 16 * 600, 16, lockstep=15)
    assert price.pass_s(batch) / price.pass_s(same) == pytest.approx(1.47, rel=0.25)


def test_verifying_drafts_reads_the_weights_once() -> None:
    price = Roofline(served())
    one, drafted = decode(1), decode(1, verify=4)
    assert price.pass_s(one) < price.pass_s(drafted) < 5 * price.pass_s(one)
    apart = price.breakdown(drafted)
    assert apart.flops > 4 * price.breakdown(one).flops
    assert apart.kv_bytes == pytest.approx(price.breakdown(one).kv_bytes, rel=1e-6)


def test_drafting_costs_its_own_passes() -> None:
    gemma = ("Gemma 4 26B-A4B", SPARK)
    head = served(*gemma, quant="Q4_0", draft="mtp")
    small = served(*gemma, quant="Q4_0", draft="Gemma 3 270M")
    plain = served(*gemma, quant="Q4_0")
    batch = Batch(1, 3000, 1024, 0, verify=4, draft_passes=4)
    without = seconds(plain, batch)
    for drafting in (head, small):
        assert without < seconds(drafting, batch) < 2 * without
    prompt = Batch(0, 0, 0, 0, (Chunk(100, 0),))
    assert seconds(head, prompt) > seconds(plain, prompt) + 0.15
    with pytest.raises(UserError, match="no prediction head"):
        served(draft="mtp")


def test_a_prediction_head_reads_no_more_of_a_context_than_layers_of_its_model() -> None:
    """Gemma's windows hold 1024 tokens: beyond them only layers that keep everything grow."""
    deployment = served("Gemma 4 26B-A4B", quant="Q4_0", draft="mtp")
    c, head = coefficients(deployment), drafter_of(deployment)
    assert head is not None
    grown = head.pass_s(2, 24_000) - head.pass_s(2, 8000)
    assert grown == pytest.approx(2 * 16_000 * c.kv_s / deployment.model.n_layers)


def test_a_prediction_head_wakes_experts_as_a_layer_does() -> None:
    deployment = served("Gemma 4 26B-A4B", quant="Q4_0", draft="mtp")
    c, head = coefficients(deployment), drafter_of(deployment)
    assert head is not None
    woken = [
        float(woken_experts(many, c.experts, c.experts_per_token, c.expert_exponent))
        for many in (1, 8)
    ]
    more_s = head.pass_s(8, 0) - head.pass_s(1, 0)
    assert more_s == pytest.approx(c.expert_s * (woken[1] - woken[0]) / deployment.model.n_layers)


def test_a_model_that_drafts_for_itself_costs_whole_passes_of_it() -> None:
    """Only `mtp` is its own prediction head, whose model has one."""
    told = {"model": "qwen3-8b", "quant": "Q4_K_M"}
    plain, itself = served(**told), served(**told, draft="qwen3-8b")
    batch = Batch(1, 3000, 3000, 0, verify=4, draft_passes=3)
    own = seconds(plain, Batch(1, 3000, 3000, 0))
    assert seconds(itself, batch) == pytest.approx(seconds(plain, batch) + 3 * own)
    assert loaded_gb(itself) == pytest.approx(2 * loaded_gb(plain))


@pytest.mark.parametrize(
    ("model", "draft"), [("qwen3-8b", "qwen3-0.6b"), ("Gemma 4 26B-A4B", "mtp")]
)
def test_what_drafting_reads_is_read_and_is_no_overhead(model: str, draft: str) -> None:
    quant = "Q4_K_M" if draft != "mtp" else "Q4_0"
    plain = Roofline(served(model, quant=quant))
    drafting = Roofline(served(model, quant=quant, draft=draft))
    verifying = Batch(1, 3000, 1024, 0, verify=4)
    told = drafting.breakdown(Batch(1, 3000, 1024, 0, verify=4, draft_passes=4))
    alone = plain.breakdown(verifying)
    drafted_s = told.total_s - alone.total_s
    read_s = told.seconds["bandwidth"] - alone.seconds["bandwidth"]
    assert 0.5 * drafted_s < read_s < drafted_s
    rate = plain.deployment.hardware.bandwidth_gb_s * 1e9
    assert 0.5 < (told.bytes_read - alone.bytes_read) / read_s / rate < 1.0
    rest_s = told.seconds["overhead"] - alone.seconds["overhead"]
    assert 0 <= rest_s < 0.5 * drafted_s
    assert told.flops > alone.flops


def test_drafting_pays_for_one_user_and_not_for_many() -> None:
    # Strix Halo, Gemma 4 MTP, acceptance 0.74: x1.42, 1.21, 0.69, 0.75 at 1, 2, 4, 8 users.
    drafting = Roofline(served("Gemma 4 26B-A4B", STRIX, quant="UD-Q4_K_XL", draft="mtp"))

    def gain(users: int) -> float:
        plain = Batch(users, users * 600, users * 600, users)
        drafted = Batch(users, users * 600, users * 600, users, verify=2 * users, draft_passes=2)
        return 2.3 * drafting.pass_s(plain) / drafting.pass_s(drafted)

    # 3 and 6 tokens a pass are vector kernels' work, 12 are not.
    assert min(gain(1), gain(2)) > 1.15
    assert gain(4) < 0.8


def test_a_moved_cache_takes_its_time() -> None:
    deployment = served("Llama 3.1 8B", "rtx-4090", quant="Q8_0")
    price = Roofline(deployment)
    moved = price.pass_s(decode(1, moved_tokens=1000)) - price.pass_s(decode(1))
    assert moved == pytest.approx(1000 * host_copy_s(deployment), rel=1e-9)
    assert moved == pytest.approx(1000 * 131_072 / 20e9)
    with pytest.raises(ValueError, match="decode-only"):
        price.passes_s(decode(1, moved_tokens=1000), 2)


@pytest.mark.parametrize(
    ("quant", "kind"),
    [
        ("MXFP4", "fp4"), ("NVFP4", "fp4"), ("F16", "bits16"), ("Q8_0", "bits8"), ("FP8", "bits8"),
        ("UD-Q8_K_XL", "bits8"), ("Q4_K_M", "kquant"), ("IQ4_XS", "kquant"), ("Q4_0", "plain"),
        ("UD-Q4_K_XL", "kquant"), ("AWQ", "kquant"),
    ],
)  # fmt: skip
def test_formats_that_share_kernels(quant: str, kind: str) -> None:
    assert weight_class(served("Llama 3.1 8B", quant=quant).quant) == kind


def test_a_quantized_cache_is_copied_where_heads_are_wide() -> None:
    # q8_0 is 1.0625 bytes a value: read, write 2, read 2 against reading 2.
    assert quantized_cache_factor(1.0625, 512) * 1.0625 / 2 == pytest.approx(5.0625 / 2)
    assert quantized_cache_factor(1.0625, 256) * 1.0625 == 2
    gemma = {"model": "Gemma 4 26B-A4B", "quant": "Q4_0", "kv_k": "q8_0", "kv_v": "q8_0"}
    cuda, vulkan = (
        coefficients(served(**gemma)),  # type: ignore[arg-type]
        coefficients(served(**gemma, backend="vulkan")),  # type: ignore[arg-type]
    )
    assert cuda.kv_s > 4 * vulkan.kv_s


def test_builds() -> None:
    qwen = {"model": "Qwen3-Next 80B-A3B", "hardware": STRIX, "quant": "Q8_0"}
    speeds = [
        1 / seconds(served(**qwen, build=build), decode(1))  # type: ignore[arg-type]
        for build in ("b7000", "b7500", "b9000", None)
    ]
    assert speeds[0] < 0.75 * speeds[1] < 0.75 * speeds[2]
    assert speeds[2] == speeds[3]
    dense = {"model": "Llama 3.1 8B", "quant": "Q8_0"}
    assert seconds(served(**dense, build="b7000"), decode(1)) == seconds(served(**dense), decode(1))
    with pytest.raises(UserError, match="write it as b6989"):
        served(build="6.2")


def test_what_does_not_fit_is_read_from_host_memory() -> None:
    card = served(hardware="rtx-4090")
    share, need = host_share(card), fit(card)
    weights = card.weights()
    away = share.experts * weights.routed + share.always * weights.always_read
    assert away == pytest.approx((need.total_gb - need.usable_gb) * 1e9)
    assert share.always == 0  # experts go first
    assert seconds(card, decode(1)) > 3 * seconds(served(hardware="rtx-pro-6000-ws"), decode(1))
    cost = card.pricer().breakdown(decode(1))
    assert (cost.bound, cost.t_host_s > 0.5 * cost.total_s) == ("host memory", True)
    plain = served(hardware="rtx-pro-6000-ws").pricer().breakdown(decode(1))
    assert plain.t_host_s == 0
    assert cost.t_overhead_s == pytest.approx(plain.t_overhead_s, rel=0.5)
    assert host_share(served(hardware="strix-halo-64")).byte_s == 0  # one memory
    assert host_share(served(hardware="rtx-4090", runtime="vllm")).byte_s == 0  # refuses to start


def test_tensor_parallel_halves_the_reading_and_pays_the_link() -> None:
    one = served("Llama 3.1 70B", quant="FP8", runtime="vllm")
    two = served("Llama 3.1 70B", quant="FP8", runtime="vllm", boxes=2)
    assert 1.3 < seconds(one, decode(1)) / seconds(two, decode(1)) < 1.6
    slow = served("Llama 3.1 70B", quant="FP8", runtime="vllm", boxes=2, link="gbe")
    assert seconds(slow, decode(1)) > seconds(two, decode(1))
    assert fit(two).usable_gb == 2 * fit(one).usable_gb


def test_a_layer_split_has_twice_the_memory_and_no_more_speed() -> None:
    # Two Strix Halos over RPC keep 0.86 to 0.95 of one box's decode speed (gpt-oss-120b).
    one, two = served(hardware=STRIX), served(hardware=STRIX, boxes=2)
    assert 0.75 < seconds(one, decode(1)) / seconds(two, decode(1)) < 1
    assert fit(two).max_users > 1.9 * fit(one).max_users


def test_a_second_box_needs_a_link() -> None:
    with pytest.raises(UserError, match="unknown network"):
        served(boxes=2, link="carrier-pigeon")
    with pytest.raises(UserError, match="boxes must be 1 or more"):
        served(boxes=0)
