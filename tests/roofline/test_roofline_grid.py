"""The vectorised grid against one prediction at a time."""

from __future__ import annotations

import random

import pytest

from headroom_bench.catalog import find_quant, find_runtime, hardware, models
from headroom_bench.experiments.predict import Question, predict
from headroom_bench.roofline.backends import backends_of
from headroom_bench.roofline.grid import price_grid

MODELS = [model for model in models() if not model.partial]
QUANTS = [find_quant(name) for name in ("Q4_K_M", "Q8_0", "F16", "MXFP4", "UD-Q4_K_XL")]
CONTEXTS = [300, 2048, 5000, 40_000]


@pytest.mark.parametrize(
    ("runtime", "prefill_rel"), [("llama.cpp", 1e-9), ("vllm", 1e-6), ("tensorrt-llm", 0.01)]
)
def test_a_cell_is_what_one_prediction_says(runtime: str, prefill_rel: float) -> None:
    draw = random.Random(runtime)
    server = set(find_runtime(runtime).backends)
    known = [box for box in hardware() if server & set(backends_of(box))]
    some, boxes = draw.sample(MODELS, 14), draw.sample(known, 14)
    grid = price_grid(some, boxes, QUANTS, CONTEXTS, find_runtime(runtime))
    assert grid.decode_tok_s.shape == (14, 14, len(QUANTS), len(CONTEXTS))
    for _ in range(60):
        at = tuple(draw.randrange(n) for n in grid.decode_tok_s.shape)
        model, box, quant, context = (
            group[i] for group, i in zip((some, boxes, QUANTS, CONTEXTS), at, strict=True)
        )
        one = predict(
            Question(box.id, model.id, quant.name, runtime=runtime, context=context)  # type: ignore[attr-defined, arg-type]
        )
        where = f"{model}, {box}, {quant}, {context}"
        decode = one["decode"]["tok_s_per_user"]
        assert grid.decode_tok_s[at] == pytest.approx(decode, rel=1e-9), where
        prefill = one["prefill"]["tok_s"]
        assert grid.prefill_tok_s[at] == pytest.approx(prefill, rel=prefill_rel), where
        assert grid.total_gb[at] == pytest.approx(one["fit"]["total_gb"], rel=1e-9), where
        assert grid.fits[at] == one["fit"]["fits"], where


def test_several_users_share_a_pass() -> None:
    runtime = find_runtime("llama.cpp")
    one, eight = (
        price_grid(MODELS[:5], hardware()[:5], QUANTS[:2], [2000], runtime, users=n) for n in (1, 8)
    )
    assert (eight.decode_tok_s < one.decode_tok_s).all()
    assert (8 * eight.decode_tok_s > one.decode_tok_s).all()
    assert (eight.total_gb > one.total_gb).all()
