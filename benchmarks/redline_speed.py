"""What redlines cost: a household's search, a crowd of thousands, simulated requests a second.

Run `python benchmarks/redline_speed.py [people]`. CPU seconds, with the figures that the search was
asked to stay below; peak memory is the whole process's.
"""

from __future__ import annotations

import resource
import sys
import time

from headroom_bench.crowd.crowd import Crowd, crowd_of, load_crowd
from headroom_bench.experiments.deployment import deployment_of
from headroom_bench.experiments.redline import RedlineOptions, redline, simulated_probe
from headroom_bench.experiments.redline_trials import Trial
from headroom_bench.target import ServerSpec, Target

MODELS = (("Llama 3.1 8B", "Q4_K_M"), ("Qwen3 30B-A3B Instruct 2507", "Q4_K_M"))
THOUSANDS = 10_000
CHATTING = "chat-reader"


def box(hardware: str, model: str, quant: str, slots: int) -> Target:
    server = ServerSpec(
        hardware=hardware,
        model=model,
        quant=quant,
        slots=slots,
        ctx=slots * 16_384,
    )
    return Target("box", "http://127.0.0.1:1", server=server)


def household(target: Target) -> str:
    """The household's redline up to 64 people, probes of 30 minutes."""
    trials: list[Trial] = []
    options = RedlineOptions(target, load_crowd("household"), most=64)
    began = time.process_time()
    found = redline(options, lambda trial, _: trials.append(trial))
    seconds = time.process_time() - began
    requests = sum(trial.requests for trial in trials)
    return (
        f"{seconds:5.2f} s (below 2) for {found['probes']} probes, {requests:,} requests, "
        f"{requests / seconds:,.0f} a second: {found['redline']['passes']} people"
    )


def one_probe(crowd: Crowd, target: Target, duration_s: float) -> str:
    options = RedlineOptions(target, crowd, duration_s=duration_s)
    probe = simulated_probe(options, deployment_of(target))
    began = time.process_time()
    probed = probe(crowd, duration_s)
    seconds = time.process_time() - began
    answered = sum(1 for record in probed.records if record.ok)
    return (
        f"{seconds:5.1f} s for {len(probed.records):,} requests ({answered:,} answered), "
        f"{len(probed.records) / seconds:,.0f} a second"
    )


def main() -> None:
    people = int(sys.argv[1]) if len(sys.argv) > 1 else THOUSANDS
    for hardware in ("rtx-4090", "dgx-spark"):
        for model, quant in MODELS:
            print(f"household, {hardware}, {model}: {household(box(hardware, model, quant, 8))}")
    crowd = crowd_of([f"{CHATTING}:{people}"], 1)
    server = ServerSpec(
        hardware="b200", model="Llama 3.1 8B", quant="FP8", runtime="vllm", slots=256, ctx=16_384
    )
    roomy = Target("box", "http://127.0.0.1:1", server=server)
    print(f"{people:,} people for 10 minutes: {one_probe(crowd, roomy, 600.0)} (below 120 s)")
    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30
    print(f"peak memory {peak:.2f} GiB (below 2)")


if __name__ == "__main__":
    main()
