"""How fast predictions are: a pass, one in process, the command, and 360,000 at once.

    python benchmarks/predict_speed.py

CPU seconds of this process and wall seconds of the command, the best of a few turns. The targets:
360,000 predictions (60 models, 60 boxes, 10 quantizations, 10 contexts; decode, prefill, fit) in
under 2 s, one prediction in under 1 ms, the command in under 0.5 s.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

from headroom_bench.catalog import find_quant, find_runtime, hardware, models
from headroom_bench.experiments import predict as predict_module
from headroom_bench.experiments.predict import Question, predict
from headroom_bench.roofline.grid import price_grid
from headroom_bench.roofline.pricer import Batch

QUANTS = (
    "Q4_K_M", "Q8_0", "F16", "Q4_0", "Q6_K", "Q5_K_M", "Q3_K_M", "MXFP4", "UD-Q4_K_XL", "IQ4_XS",
)  # fmt: skip
CONTEXTS = (512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 100_000, 131_072)
ASKED = Question("dgx-spark", "gpt-oss-120b", "MXFP4", users=4, context=8000)
COMMAND = [
    sys.executable, "-m", "headroom_bench", "predict", "--hardware", "dgx-spark",
    "--model", "gpt-oss-120b", "--quant", "MXFP4", "--json",
]  # fmt: skip


def best(turns: int, clock: Callable[[], float], work: Callable[[], object]) -> float:
    """The shortest of so many turns, in seconds."""
    seconds = []
    for _ in range(turns):
        start = clock()
        work()
        seconds.append(clock() - start)
    return min(seconds)


def grid() -> int:
    """Prices the whole grid; returns how many predictions it holds."""
    known = [model for model in models() if not model.partial][:60]
    formats = [find_quant(name) for name in QUANTS]
    priced = price_grid(known, hardware()[:60], formats, CONTEXTS, find_runtime("llama.cpp"))
    return priced.decode_tok_s.size


def fresh() -> None:
    """One prediction of a deployment that was not priced before."""
    predict_module._pricer.cache_clear()
    predict(ASKED)


def passes() -> None:
    """Prices 10,000 passes of one deployment, as the virtual box asks for them."""
    price = predict_module.pricer_of(ASKED).pass_s
    for context in range(10_000):
        price(Batch(8, 8 * context, 8 * min(context, 128), 0))


def main() -> None:
    """Prints the table."""
    predict(ASKED)  # the catalogue is read once a process
    size = grid()
    spent = best(5, time.process_time, grid)
    print(f"grid of {size:,}: {spent:.3f} s, {spent / size * 1e9:.0f} ns each")
    print(f"one pass: {best(20, time.process_time, passes) * 100:.2f} µs")
    print(f"one prediction, new deployment: {best(200, time.process_time, fresh) * 1e3:.2f} ms")
    again = best(200, time.process_time, lambda: predict(ASKED))
    print(f"one prediction, known deployment: {again * 1e3:.2f} ms")
    run = best(
        7, time.perf_counter, lambda: subprocess.run(COMMAND, check=True, capture_output=True)
    )
    print(f"the command: {run:.2f} s wall")


if __name__ == "__main__":
    main()
