"""Every runtime's defaults make the server that its catalogue entry describes."""

from __future__ import annotations

import dataclasses

import pytest

from headroom_bench.catalog.runtime import find_runtime, runtimes
from headroom_bench.designs import design_of, with_room
from headroom_bench.errors import UserError
from headroom_bench.experiments.memory_check import why_it_does_not_fit
from headroom_bench.experiments.whatif import with_same_sequence
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.grid import price_grid
from headroom_bench.roofline.memory import cache_gb, fit, sequence_bytes
from headroom_bench.roofline.offload import host_share
from headroom_bench.roofline.pricer import Batch
from headroom_bench.roofline.remedies import remedies
from headroom_bench.target import ServerSpec, load_target, with_overrides


def deployment(runtime: str, model: str = "gpt-oss-20b", hardware: str = "dgx-spark") -> Deployment:
    return Deployment.named(
        model=model, hardware=hardware, quant="Q4_K_M", runtime=runtime, slots=4, ctx=8192
    )


@pytest.mark.parametrize("runtime", [runtime.id for runtime in runtimes()])
def test_every_runtime_has_the_memory_of_its_entry(runtime: str) -> None:
    made = deployment(runtime)
    assert design_of(made, ServerSpec()).memory == made.runtime.design


def test_llama_cpp_unifies_its_slots_unless_their_number_is_given() -> None:
    made = deployment("llama.cpp")
    auto = design_of(made, ServerSpec(ctx=32_768))
    assert (auto.memory, auto.parallel, auto.ctx, auto.pool_tokens) == (
        "unified_slots", 4, 32_768, 32_768,
    )  # fmt: skip
    told = design_of(made, ServerSpec(ctx=32_768, slots=2))
    assert (told.memory, told.parallel, told.ctx) == ("split_slots", 2, 16_384)
    both = design_of(made, ServerSpec(ctx=32_768, slots=2, kv_unified=True))
    assert (both.memory, both.ctx) == ("unified_slots", 32_768)
    # 8 GiB of host memory; gpt-oss has windows, so it goes back to checkpoints.
    assert 100_000 < auto.host_tokens < 1_000_000
    assert auto.rewind == "checkpoints"
    assert design_of(deployment("llama.cpp", "qwen3-8b"), ServerSpec()).rewind == "any"


def test_slots_of_llama_cpp_share_its_default_context_and_those_of_ollama_do_not() -> None:
    # Its entry: n_ctx / n_slots padded to 256; untold n_ctx is what the model was trained on.
    made = deployment("llama.cpp", "qwen3-8b")
    four = design_of(made, ServerSpec(slots=4))
    assert (four.memory, four.parallel, four.ctx) == ("split_slots", 4, 10_240)
    assert design_of(made, ServerSpec(slots=3)).ctx == 13_824
    assert design_of(made, ServerSpec()).ctx == design_of(made, ServerSpec(slots=1)).ctx == 40_960
    # -c num_ctx*num_parallel: a whole context for each.
    for slots in (1, 2):
        told = ServerSpec(slots=slots)
        assert design_of(deployment("ollama", "qwen3-8b"), told).ctx == 40_960


def test_lm_studio_unifies_any_number_of_slots() -> None:
    design = design_of(deployment("lm-studio", "qwen3-8b"), ServerSpec(slots=2))
    assert (design.memory, design.parallel, design.ctx) == ("unified_slots", 2, 4096)
    alone = design_of(deployment("lm-studio", "qwen3-8b"), ServerSpec(slots=2, kv_unified=False))
    assert (alone.memory, alone.ctx) == ("split_slots", 2048)


def test_lm_studio_s_slots_share_a_cache_on_the_mock_s_box_too() -> None:
    """The bundled mock is llama.cpp with 16 slots of 8,192 tokens: under LM Studio its slots share
    room for as much, and none of them is split off."""
    mock = load_target("mock")
    studio = with_same_sequence(mock, with_overrides(mock, {"runtime": "lm-studio"}))
    made = Deployment.named(
        model="Llama 3.1 8B", hardware="rtx-4090", quant="Q4_K_M", runtime="lm-studio"
    )
    design = design_of(made, studio.server)
    assert (design.memory, design.parallel) == ("unified_slots", 16)
    assert design.pool_tokens == 131_072
    llama = dataclasses.replace(made, runtime=find_runtime("llama.cpp"))
    assert design_of(llama, mock.server).memory == "split_slots"


def test_ollama_cuts_and_its_window_goes_by_memory() -> None:
    spark = design_of(deployment("ollama", "qwen3-8b"), ServerSpec())
    assert (spark.overflow, spark.parallel, spark.max_queue) == ("cut", 1, 512)
    assert (spark.ctx, spark.batch_tokens) == (40_960, 2048)  # as the model was trained
    small = design_of(deployment("ollama", "qwen3-8b", "rtx-4090"), ServerSpec())
    assert (small.ctx, small.batch_tokens) in ((4096, 512), (32_768, 1024))


def test_paged_servers_make_their_pool_of_what_the_weights_leave() -> None:
    vllm = design_of(deployment("vllm"), ServerSpec())
    assert (vllm.page_tokens, vllm.batch_tokens, vllm.parallel) == (16, 8192, 1024)
    assert vllm.counts_answer
    assert vllm.mixed
    sglang = design_of(deployment("sglang"), ServerSpec())
    assert (sglang.page_tokens, sglang.mixed) == (1, False)
    assert sglang.pool_tokens < vllm.pool_tokens
    assert design_of(deployment("tensorrt-llm"), ServerSpec()).reserve_answer
    with pytest.raises(UserError, match="smaller --ctx"):
        design_of(deployment("vllm", "qwen3-8b", "rtx-4090"), ServerSpec(ctx=10_000_000))


def test_a_draft_model_makes_mlx_serve_one_by_one() -> None:
    assert design_of(deployment("mlx"), ServerSpec()).parallel == 32
    assert design_of(deployment("mlx"), ServerSpec(draft="some-model")).parallel == 1


def test_a_drafter_makes_every_server_draft() -> None:
    made = Deployment.named(
        model="qwen3-8b", hardware="dgx-spark", quant="Q4_K_M", draft="qwen3-0.6b", slots=4
    )
    design = design_of(made, ServerSpec(draft="qwen3-0.6b"))
    assert design.speculation is not None
    assert design.speculation.tokens == 3
    assert design.speculation.alpha["tool_call"] > design.speculation.alpha["prose"]
    assert design_of(deployment("llama.cpp"), ServerSpec()).speculation is None


def test_without_anything_told_the_deployments_own_slots_and_context_count() -> None:
    for runtime in ("llama.cpp", "vllm", "mlx", "ollama"):
        design = design_of(deployment(runtime))
        assert (design.parallel, design.ctx) == (4, 8192)


def test_a_draft_model_takes_its_share_of_the_pool() -> None:
    def pool(draft: str | None) -> int:
        made = Deployment.named(
            model="qwen3-32b", hardware="dgx-spark", quant="Q4_K_M", runtime="vllm", draft=draft
        )
        return design_of(made, ServerSpec()).pool_tokens or 0

    assert 0 < pool("qwen3-8b") < 0.7 * pool(None)
    small = Deployment.named(
        model="qwen3-32b", hardware="rtx-4090", quant="Q4_K_M", slots=1, ctx=8192, draft="qwen3-8b"
    )
    told = ServerSpec(slots=1, ctx=8192, draft="qwen3-8b")
    assert "needs 29." in (why_it_does_not_fit(small, told) or "")
    assert "32% of the weights stay in host memory" in (why_it_does_not_fit(small, told) or "")
    alone = dataclasses.replace(small, drafter=None)
    assert why_it_does_not_fit(alone, ServerSpec(slots=1, ctx=8192)) is None


@pytest.mark.parametrize(
    ("runtime", "share"),
    [("vllm", 0.92), ("sglang", 0.85), ("tensorrt-llm", 0.9), ("mlx", 1.0)],
)
def test_a_prediction_has_the_room_that_the_box_has(runtime: str, share: float) -> None:
    """One question has one answer: what a runtime reserves is so in closed form too."""
    box = "m2-ultra-192" if runtime == "mlx" else "rtx-4090"
    deployment = Deployment.named(
        model="Llama 3.1 8B", hardware=box, quant="Q8_0", runtime=runtime, slots=1, ctx=2048
    )
    need, design = fit(deployment), design_of(deployment, ServerSpec())
    hardware = deployment.hardware
    if runtime == "tensorrt-llm":  # free_gpu_memory_fraction: of what the weights leave
        held = need.weights_gb + need.overhead_gb
        assert need.usable_gb - held == pytest.approx(share * (hardware.usable_memory_gb - held))
    else:
        assert need.usable_gb == min(share * hardware.memory_gb, hardware.usable_memory_gb)
    assert design.pool_tokens is not None
    assert need.max_context_tokens == min(design.pool_tokens, 131_072)
    grid = price_grid(
        [deployment.model], [hardware], [deployment.quant], [need.max_context_tokens],
        deployment.runtime,
    )  # fmt: skip
    assert grid.fits.all()
    if runtime != "mlx":
        assert need.max_context_tokens < 131_072
        longer = [need.max_context_tokens + 8]
        args = [deployment.model], [hardware], [deployment.quant], longer, deployment.runtime
        assert not price_grid(*args).fits.any()


def test_slots_that_share_a_cache_hold_it_once() -> None:
    """Llama 3.1 8B keeps 131,072 bytes a token: a pool of 131,072 is 17.2 GB, and all of it fits
    beside 4.9 GB of weights into a card of 24 GB; four such caches would not."""
    alone = Deployment.named(
        model="Llama 3.1 8B", hardware="rtx-4090", quant="Q4_K_M", slots=4, ctx=131_072
    )
    pooled = with_room(alone, ServerSpec(slots=4, ctx=131_072, kv_unified=True))
    assert (pooled.slots, pooled.ctx, pooled.pool_tokens) == (4, 131_072, 131_072)
    assert cache_gb(pooled) == pytest.approx(131_072**2 / 1e9)
    assert fit(pooled).fits
    assert host_share(pooled).in_words == ""
    assert cache_gb(alone) == pytest.approx(4 * 131_072**2 / 1e9)
    assert host_share(alone).in_words == "100% of the weights"
    split = with_room(alone, ServerSpec(slots=4, ctx=131_072, kv_unified=False))
    assert (split.ctx, split.pool_tokens) == (32_768, None)
    assert cache_gb(split) == pytest.approx(cache_gb(pooled))
    batch = Batch(1, 1000, 1000, 1)
    assert pooled.pricer().pass_s(batch) == split.pricer().pass_s(batch)


def test_a_pool_that_does_not_fit_is_mended_as_a_pool() -> None:
    """A unified cache is as long as one sequence may be, whatever the slots: a shorter context
    shortens the pool, and fewer slots save nothing."""
    alone = Deployment.named(model="Llama 3.1 8B", hardware="rtx-3060-12", quant="Q4_K_M")
    pooled = with_room(alone, ServerSpec(slots=4, ctx=131_072, kv_unified=True))
    need = fit(pooled)
    assert not need.fits
    longest = need.max_context_tokens
    free = need.usable_gb - need.weights_gb - need.overhead_gb
    assert longest == int(free * 1e9 // 131_072)  # bytes a token, by chance as many as the tokens
    found = {remedy.change: remedy for remedy in remedies(pooled)}
    assert f"a context of {longest:,} tokens" in found
    assert not any("slot" in change for change in found)
    assert all(remedy.total_gb <= remedy.usable_gb for remedy in found.values())


def test_the_pool_of_two_boxes_is_what_both_leave() -> None:
    def pool(boxes: int) -> int:
        made = Deployment.named(
            model="Llama 3.1 8B", hardware="rtx-4090", quant="FP8", runtime="vllm", boxes=boxes
        )
        return design_of(made, ServerSpec()).pool_tokens or 0

    assert pool(2) > 2 * pool(1)


def test_windows_are_each_sequence_s_own_in_a_shared_cache_too() -> None:
    told = {"model": "gpt-oss-20b", "hardware": "rtx-4090", "quant": "MXFP4"}
    one, four = (
        with_room(
            Deployment.named(**told, slots=slots, ctx=32_768),  # type: ignore[arg-type]
            ServerSpec(slots=slots, ctx=32_768, kv_unified=True),
        )
        for slots in (1, 4)
    )
    each = sequence_bytes(one.kv(), 32_768, one.ubatch) - one.kv().full * 32_768
    assert each > 0
    assert (cache_gb(four) - cache_gb(one)) * 1e9 == pytest.approx(3 * each)
