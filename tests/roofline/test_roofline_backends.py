"""Which backend a runtime can have on a box, and what the CPU beside a GPU is worth."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from headroom_bench.catalog import find_hardware, find_runtime
from headroom_bench.catalog.boxes import Hardware, hardware
from headroom_bench.catalog.published import all_published
from headroom_bench.catalog.runtime import runtimes
from headroom_bench.errors import UserError
from headroom_bench.experiments.predict import Question, predict
from headroom_bench.roofline.backends import (
    BACKENDS,
    CPU_TFLOPS,
    as_used,
    backend_of,
    backends_of,
    default_backend,
)
from headroom_bench.roofline.builds import NEWEST_BUILD


def _predicted(box: str, **over: Any) -> dict[str, Any]:
    return predict(Question(hardware=box, model="qwen3-8b", quant="Q4_K_M", **over))


@pytest.mark.parametrize(
    ("box", "runtime", "backend"),
    [
        ("dgx-spark", "vllm", "metal"),
        ("dgx-spark", "llama.cpp", "rocm"),
        ("m3-max-128", "llama.cpp", "cuda"),
        ("rtx-4090", "tensorrt-llm", "vulkan"),
        ("cpu-2core", "llama.cpp", "cuda"),
        ("m3-max-128", "tensorrt-llm", None),
        ("r9700", "mlx", None),
        ("rtx-4090", "llama.cpp", "cpu"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(box: str, runtime: str, backend: str | None) -> None:
    with pytest.raises(UserError) as refused:
        backend_of(find_hardware(box), find_runtime(runtime), backend)
    told = str(refused.value)
    assert find_hardware(box).name in told
    assert "\n" not in told


def test_what_others_ran_can_be_asked_for() -> None:
    for box, runtime, backend in {(r.hardware, r.runtime, r.backend) for r in all_published()}:
        assert backend_of(find_hardware(box), find_runtime(runtime), backend) == backend


def test_a_backend_is_chosen_that_both_have() -> None:
    for box in hardware():
        assert backend_of(box, find_runtime("llama.cpp"), None) == default_backend(box, "llama.cpp")
        assert ("cpu" in backends_of(box)) == box.unified
        for runtime in runtimes():
            try:
                chosen = backend_of(box, runtime, None)
            except UserError:
                assert not set(backends_of(box)) & set(runtime.backends)
            else:
                assert chosen in runtime.backends
    assert all(
        set(runtime.backends) <= set(BACKENDS) and runtime.backends for runtime in runtimes()
    )
    own = dataclasses.replace(find_hardware("rtx-4090"), architecture="mine")
    assert backend_of(own, find_runtime("llama.cpp"), "sycl") == "sycl"


def test_the_cpu_of_a_box_is_priced_by_its_own_peak() -> None:
    for box in ("dgx-spark", "strix-halo-128", "m3-max-128"):
        gpu, cpu = _predicted(box), _predicted(box, backend="cpu")
        assert cpu["prefill"]["tok_s"] < 0.25 * gpu["prefill"]["tok_s"]
        assert {cpu["confidence"], cpu["prefill"]["confidence"]} == {"ESTIMATED"}
        assert any("TFLOPS" in note for note in cpu["notes"])
        assert not any("TFLOPS" in note for note in gpu["notes"])
    # 16 Zen 5 cores read a prompt no faster in a mobile part than on a desktop.
    desktop = _predicted("ryzen-9950x-ddr5")["prefill"]["tok_s"]
    assert _predicted("strix-halo-128", backend="cpu")["prefill"]["tok_s"] < desktop


def test_no_figure_of_a_gpu_is_left() -> None:
    def rates(box: Hardware) -> set[float | None]:
        return {getattr(as_used(box, "cpu").tflops_dense, name) for name in ("fp16_bf16", "int8")}

    assert rates(find_hardware("dgx-spark")) == {2.3, None}
    assert rates(find_hardware("m1-8")) == {CPU_TFLOPS, None}
    assert rates(find_hardware("ryzen-ai-hx370")) == {1.2, None}  # its other peak is the shaders'
    assert as_used(find_hardware("cpu-2core"), "cpu") is find_hardware("cpu-2core")
    assert as_used(find_hardware("dgx-spark"), "cuda") is find_hardware("dgx-spark")


def test_a_build_that_nobody_measured_is_told() -> None:
    newest = max(
        int(row.build[1:])
        for row in all_published()
        if row.runtime == "llama.cpp" and row.build[:1] == "b" and row.build[1:].isdigit()
    )
    assert newest == NEWEST_BUILD
    note = f"newer than any that was measured: priced as b{newest}"
    assert any(note in n for n in _predicted("dgx-spark", build="b100000")["notes"])
    assert not any(note in n for n in _predicted("dgx-spark", build=f"b{newest}")["notes"])
