"""Two views of one truth: for one lone user the closed form and the simulation agree."""

from __future__ import annotations

import dataclasses
from statistics import median

import pytest

from headroom_bench.crowd.crowd import plain_crowd
from headroom_bench.crowd.persona import probe_persona
from headroom_bench.experiments.predict import Question, predict, pricer_of
from headroom_bench.experiments.prediction import predict_crowd
from headroom_bench.simulate.world import Naming


@pytest.mark.parametrize(
    ("question", "answer_tokens"),
    [
        (Question("dgx-spark", "gpt-oss-120b", "MXFP4", prompt=6000), 200),
        (Question("dgx-spark", "GLM-4.7-Flash", "Q8_0", prompt=700, ubatch=2048), 300),
        (Question("rtx-4090", "Llama 3.1 8B", "Q4_K_M", prompt=900), 300),
        (Question("strix-halo-128", "Qwen3.6 35B-A3B", "UD-Q4_K_XL", prompt=3000), 100),
        (Question("m3-ultra-512", "Qwen3 235B-A22B", "Q4_K_M", prompt=5000), 64),
        (Question("dgx-spark", "Gemma 3 4B", "Q4_0", prompt=1000, kv_k="q8_0"), 400),
        (Question("dgx-spark", "gpt-oss-120b", "MXFP4", runtime="vllm", prompt=6000), 200),
        (Question("dgx-spark", "Llama 3.1 8B", "FP8", runtime="vllm", prompt=900, boxes=2), 100),
        (Question("dgx-spark", "Llama 3.1 8B", "FP8", runtime="sglang", prompt=9000), 100),
        (Question("dgx-spark", "Qwen3 30B-A3B", "Q4_K_M", runtime="ollama", prompt=5000), 100),
        (Question("m3-ultra-512", "Qwen3 8B", "MLX 4-bit g64", runtime="mlx", prompt=5000), 100),
        (Question("rtx-4090", "gpt-oss-120b", "MXFP4", prompt=900), 50),  # experts in host memory
    ],
)
def test_one_lone_user(question: Question, answer_tokens: int) -> None:
    assert question.prompt
    middle = question.prompt + answer_tokens // 2
    predicted = predict(dataclasses.replace(question, context=middle))
    deployment = dataclasses.replace(
        pricer_of(question).deployment, ctx=question.prompt + answer_tokens + 64
    )
    crowd = plain_crowd(probe_persona(question.prompt, answer_tokens, 0.0), 1, seed=1)
    naming = Naming("run", "target", deployment.model.name)
    outcome, _ = predict_crowd(crowd, deployment, naming, max_requests=1)
    record = outcome.records[0]
    assert record.prompt_tokens == question.prompt
    assert record.ttft_s == pytest.approx(predicted["ttft_s"], rel=0.01)
    rate = predicted["decode"]["tok_s_per_user"]
    assert record.decode_tok_s == pytest.approx(rate, rel=0.01)


def test_a_short_way_to_the_box_is_as_none() -> None:
    """In a loop without think time the next prompt comes right after the pass that ended an answer,
    not into the one that follows at once, however near its user is."""
    deployment = dataclasses.replace(
        pricer_of(Question("dgx-spark", "gpt-oss-20b", "MXFP4")).deployment, slots=4, ctx=8192
    )
    crowd = plain_crowd(probe_persona(2000, 200, 0.0), 4, seed=1)
    naming = Naming("run", "target", deployment.model.name)
    waits_s = []
    for one_way_s in (0.0, 0.0002):
        outcome, _ = predict_crowd(crowd, deployment, naming, duration_s=60, one_way_s=one_way_s)
        waits_s.append(median(record.ttft_s or 0.0 for record in outcome.records))
    assert waits_s[0] == pytest.approx(waits_s[1], rel=0.02)
