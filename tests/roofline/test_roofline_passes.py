"""Properties of the price of a pass."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom_bench.catalog import find_hardware, hardware, models, runtimes
from headroom_bench.roofline import Batch, Chunk, Deployment, Roofline, constants_for
from headroom_bench.roofline.backends import default_backend

CASES = {
    "dense": ("Llama 3.1 8B", "rtx-4090", "Q4_K_M", "llama.cpp"),
    "windows": ("gpt-oss-120b", "dgx-spark", "MXFP4", "llama.cpp"),
    "overlap": ("gpt-oss-120b", "dgx-spark", "MXFP4", "vllm"),
    "hybrid": ("Qwen3.6 35B-A3B", "strix-halo-128", "Q8_0", "llama.cpp"),
    "latent": ("GLM-4.7-Flash", "dgx-spark", "Q8_0", "tensorrt-llm"),
    "shared": ("Gemma 4 E2B", "m4-16", "MLX 4-bit g64", "mlx"),
    "compressed": ("DeepSeek-V4-Flash", "m3-ultra-512", "MXFP8", "mlx"),
}
cases = st.sampled_from(sorted(CASES))
unhurried = settings(deadline=None, max_examples=60)


@functools.cache
def pricer(case: str) -> Roofline:
    model, box, quant, runtime = CASES[case]
    return Deployment.named(model=model, hardware=box, quant=quant, runtime=runtime).pricer()


def batch_of(case: str, contexts: list[int], chunks: tuple[Chunk, ...] = ()) -> Batch:
    window = pricer(case).window or 1 << 40
    return Batch(
        decodes=len(contexts),
        kv_tokens=sum(contexts),
        window_tokens=sum(min(c, window) for c in contexts),
        windows_growing=sum(c < window for c in contexts),
        chunks=chunks,
    )


contexts = st.lists(st.integers(0, 60_000), min_size=1, max_size=200)
chunk = st.builds(Chunk, st.integers(1, 3000), st.integers(0, 60_000))


@unhurried
@given(cases, contexts, st.integers(1, 200))
def test_one_by_one_and_all_at_once_agree(case: str, seqs: list[int], k: int) -> None:
    batch = batch_of(case, seqs)
    at_once = pricer(case).passes_s(batch, k)
    one_by_one = [
        pricer(case).pass_s(
            batch._replace(
                kv_tokens=batch.kv_tokens + i * batch.decodes,
                window_tokens=batch.window_tokens + i * batch.windows_growing,
            )
        )
        for i in range(k)
    ]
    assert at_once.shape == (k,)
    np.testing.assert_allclose(at_once, one_by_one, rtol=1e-12)


@functools.cache
def unpieced(case: str) -> Roofline:
    """The same where any pass is one run over the weights: a cut elsewhere changes the kernels."""
    deployment = replace(pricer(case).deployment, ubatch=1_000_000)
    return deployment.pricer()


def same_kernels(case: str, *batches: Batch) -> bool:
    """Whether all batches are on one side of the switch from vector to matrix kernels, where a
    larger batch may take less time."""
    switch = pricer(case).coefficients.vector_tokens
    sizes = [batch.decodes + sum(part.tokens for part in batch.chunks) for batch in batches]
    return all(size > switch for size in sizes) or all(size <= switch for size in sizes)


@unhurried
@given(cases, contexts, st.integers(0, 60_000), st.lists(chunk, max_size=3))
def test_more_work_never_takes_less_time(
    case: str, seqs: list[int], more: int, chunks: list[Chunk]
) -> None:
    price = unpieced(case).pass_s
    batch = batch_of(case, seqs, tuple(chunks))
    before = price(batch)
    slack = before * 1e-12
    crowded = batch_of(case, [*seqs, 0], tuple(chunks))
    assert price(crowded) > before or not same_kernels(case, batch, crowded)
    assert price(batch_of(case, [seqs[0] + more, *seqs[1:]], tuple(chunks))) >= before - slack
    prompted = batch_of(case, seqs, (*chunks, Chunk(1, more)))
    assert price(prompted) > before or not same_kernels(case, batch, prompted)
    if chunks:
        longer = Chunk(chunks[0].tokens + 1, chunks[0].context_tokens)
        deeper = Chunk(chunks[0].tokens, chunks[0].context_tokens + more)
        grown = batch_of(case, seqs, (longer, *chunks[1:]))
        assert price(grown) > before - slack or not same_kernels(case, batch, grown)
        assert price(batch_of(case, seqs, (deeper, *chunks[1:]))) >= before - slack


@unhurried
@given(cases, contexts, st.lists(chunk, max_size=3))
def test_the_breakdown_adds_up(case: str, seqs: list[int], chunks: list[Chunk]) -> None:
    batch = batch_of(case, seqs, tuple(chunks))
    cost = pricer(case).breakdown(batch)
    parts = sum(cost.seconds.values())
    assert cost.total_s == pytest.approx(pricer(case).pass_s(batch), rel=1e-12)
    c = pricer(case).coefficients
    if c.p == c.prompt_p == 1:
        assert cost.total_s == pytest.approx(parts, rel=1e-12)
    else:
        assert cost.total_s <= parts * (1 + 1e-12)
    assert min(cost.t_weights_s, cost.t_compute_s, cost.t_overhead_s) > 0
    assert cost.bytes_read > 0 < cost.flops


def test_an_idle_pass_is_free() -> None:
    idle = Batch(0, 0, 0, 0)
    assert pricer("dense").pass_s(idle) == 0
    assert pricer("dense").passes_s(idle, 3).tolist() == [0, 0, 0]
    assert pricer("dense").breakdown(idle).bound == "idle"


def test_a_prompt_is_read_in_pieces_that_each_stream_the_weights() -> None:
    price = pricer("dense").breakdown
    one, four = (
        price(batch_of("dense", [], (Chunk(512, 0),))),
        price(batch_of("dense", [], (Chunk(2048, 0),))),
    )
    assert four.weight_bytes == pytest.approx(4 * one.weight_bytes)
    assert four.t_overhead_s == pytest.approx(4 * one.t_overhead_s)
    split = sum(
        pricer("dense").pass_s(batch_of("dense", [], (Chunk(512, at),)))
        for at in range(0, 2048, 512)
    )
    # One prompt has one last token that needs the output matrix, however it is cut.
    assert four.total_s == pytest.approx(split, rel=1e-3)


def test_decoding_tokens_ride_with_the_first_piece() -> None:
    cost = pricer("dense").breakdown(batch_of("dense", [100] * 4, (Chunk(508, 0),)))
    assert cost.weight_bytes == pricer("dense").breakdown(batch_of("dense", [1])).weight_bytes
    over = pricer("dense").breakdown(batch_of("dense", [100] * 4, (Chunk(509, 0),)))
    assert over.weight_bytes == 2 * cost.weight_bytes


def test_what_bounds_a_pass() -> None:
    spark = pricer("windows").breakdown
    assert spark(batch_of("windows", [100])).bound == "bandwidth"
    big = Deployment.named(
        model="gpt-oss-120b", hardware="dgx-spark", quant="MXFP4", ubatch=2048
    ).pricer()
    assert big.breakdown(batch_of("windows", [], (Chunk(2048, 0),))).bound == "compute"
    tiny = Deployment.named(model="SmolLM2-135M", hardware="rtx-5090", quant="Q4_1").pricer()
    assert tiny.breakdown(Batch(1, 10, 10, 1)).bound == "overhead"


def test_windows_kept_in_full_have_no_window() -> None:
    full = Deployment.named(
        model="gpt-oss-120b", hardware="dgx-spark", quant="MXFP4", swa_full=True
    ).pricer()
    assert full.window is None
    assert pricer("windows").window == 128
    assert full.pass_s(Batch(1, 50_000, 50_000, 1)) > pricer("windows").pass_s(
        batch_of("windows", [50_000])
    )


def test_no_two_models_have_the_same_speed() -> None:
    speeds = [
        Deployment.named(model=model.id, hardware="rtx-4090", quant="Q8_0")
        .pricer()
        .pass_s(Batch(1, 100, 100, 1))
        for model in models()
        if not model.partial
    ]
    shapes = {m.params() for m in models() if not m.partial}
    assert len(set(speeds)) >= len(shapes)


def test_every_box_and_runtime_has_constants_that_say_where_they_are_from() -> None:
    for box in hardware():
        for runtime in runtimes():
            found = constants_for(box, runtime.id, default_backend(box, runtime.id))
            for name, constant in found.items():
                assert constant.status in ("fitted", "assumed"), name
                assert constant.source
                assert constant.unit
                assert constant.value >= 0
            assert found.overlap_p.value >= 1
            assert 0 < found.bandwidth_efficiency.value < 1


def test_backends_are_what_a_box_runs() -> None:
    for box, runtime, backend in (
        ("dgx-spark", "llama.cpp", "cuda"),
        ("strix-halo-128", "llama.cpp", "vulkan"),
        ("strix-halo-128", "vllm", "rocm"),
        ("m4-max-128", "mlx", "metal"),
        ("cpu-2core", "ollama", "cpu"),
    ):
        assert default_backend(find_hardware(box), runtime) == backend


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5000))
def test_the_table_grows_to_any_number_of_sequences(n: int) -> None:
    fresh = Deployment.named(model="gpt-oss-20b", hardware="rtx-5090", quant="MXFP4").pricer()
    batch = Batch(n, n * 10, n * 10, n)
    assert fresh.pass_s(batch) == pytest.approx(float(fresh.passes_s(batch, 1)[0]), rel=1e-12)
