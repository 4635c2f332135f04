"""The iteration rule against published measurements, before any calibration.

Rows by id, with the build's figures; the tolerance is wide on purpose (a fit that never saw the row
is another test's matter).
"""

from __future__ import annotations

import functools

import pytest

from headroom_bench.catalog import find_hardware
from headroom_bench.catalog.published import all_published
from headroom_bench.roofline import Batch, Chunk, Deployment, Roofline
from headroom_bench.roofline.constants import constants_for
from headroom_bench.roofline.published import predicted_tok_s, roofline_of

SPARK, STRIX = "dgx-spark", "strix-halo-128"


@functools.cache
def pricer(
    model: str,
    box: str,
    quant: str,
    backend: str | None = None,
    ubatch: int | None = None,
    build: str | None = None,
) -> Roofline:
    return Deployment.named(
        model=model, hardware=box, quant=quant, backend=backend, ubatch=ubatch, build=build
    ).pricer()


def decode_tok_s(priced: Roofline, users: int, context: float) -> float:
    inside = min(context, priced.window or context)
    batch = Batch(users, round(users * context), round(users * inside), users)
    return users / priced.pass_s(batch)


def prefill_tok_s(priced: Roofline, tokens: int, context: int = 0) -> float:
    return tokens / priced.pass_s(Batch(0, 0, 0, 0, (Chunk(tokens, context),)))


DECODE = [  # row, model, box, quant, backend, users, mean context, tokens a second in total
    ("ggspark26-0084", "gpt-oss-120b", SPARK, "MXFP4", None, 1, 16, 58.72),
    ("ggspark25-0084", "gpt-oss-120b", SPARK, "MXFP4", None, 1, 16, 60.40),
    ("ggspark26-0092", "gpt-oss-120b", SPARK, "MXFP4", None, 1, 32_784, 42.76),
    ("ggspark26-0054", "gpt-oss-120b", SPARK, "MXFP4", None, 8, 528, 159.18),
    ("ggspark26-0058", "gpt-oss-120b", SPARK, "MXFP4", None, 32, 528, 353.31),
    ("ggspark26-0038", "gpt-oss-20b", SPARK, "MXFP4", None, 1, 16, 83.43),
    ("ggspark26-0012", "gpt-oss-20b", SPARK, "MXFP4", None, 32, 528, 681.49),
    ("ggspark26-0176", "Qwen2.5-Coder-7B-Instruct", SPARK, "Q8_0", None, 1, 16, 29.43),
    ("ggspark26-0184", "Qwen2.5-Coder-7B-Instruct", SPARK, "Q8_0", None, 1, 32_784, 22.51),
    ("ggspark26-0150", "Qwen2.5-Coder-7B-Instruct", SPARK, "Q8_0", None, 32, 528, 589.21),
    ("ggspark26-0130", "Qwen3-Coder-30B-A3B", SPARK, "Q8_0", None, 1, 16, 61.06),
    ("ggspark26-0104", "Qwen3-Coder-30B-A3B", SPARK, "Q8_0", None, 32, 528, 346.53),
    ("ggspark26-0222", "Gemma 3 4B", SPARK, "Q4_0", None, 1, 16, 81.05),
    ("llmfit-0237", "Llama 3.1 8B", SPARK, "Q4_K_M", None, 1, 150, 40.61),
    ("ky26feb-0174", "gpt-oss-120b", STRIX, "MXFP4", "vulkan", 1, 64, 54.00),
    ("ky26feb-0178", "gpt-oss-120b", STRIX, "MXFP4", "vulkan", 1, 64, 57.38),
    ("ky26feb-0170", "gpt-oss-120b", STRIX, "MXFP4", "rocm", 1, 64, 50.85),
    ("lhlvs-0011", "gpt-oss-120b", STRIX, "MXFP4", "vulkan", 1, 16, 50.05),
    ("ky26feb-0202", "Llama 2 7B", STRIX, "Q4_0", "vulkan", 1, 64, 55.88),
    ("ky26feb-0114", "Qwen3-Coder-30B-A3B", STRIX, "Q4_K_M", "vulkan", 1, 64, 86.32),
    ("xj24-0039", "Llama 3 8B", "rtx-4090", "Q4_K_M", None, 1, 256, 130.58),
    ("xj24-0045", "Llama 3 8B", "rtx-4090", "F16", None, 1, 256, 54.84),
    ("ggm2u-0084", "gpt-oss-120b", "m2-ultra-192", "MXFP4", None, 1, 16, 85.60),
    ("ggm2u-0176", "Qwen2.5-Coder-7B-Instruct", "m2-ultra-192", "Q8_0", None, 1, 16, 79.68),
]


@pytest.mark.parametrize("row", DECODE, ids=lambda row: row[0])
def test_decode(row: tuple[str, str, str, str, str | None, int, float, float]) -> None:
    _, model, box, quant, backend, users, context, measured = row
    priced = pricer(model, box, quant, backend)
    assert decode_tok_s(priced, users, context) == pytest.approx(measured, rel=0.25)


PREFILL = [  # row, model, box, quant, ubatch, tokens, context, tokens a second
    ("ggspark25-0083", "gpt-oss-120b", SPARK, "MXFP4", 2048, 2048, 0, 1919.36),
    ("ggspark25-0091", "gpt-oss-120b", SPARK, "MXFP4", 2048, 2048, 32_768, 1255.85),
    ("ggspark25-0175", "Qwen2.5-Coder-7B-Instruct", SPARK, "Q8_0", 2048, 2048, 0, 2272.74),
    ("ggspark25-0183", "Qwen2.5-Coder-7B-Instruct", SPARK, "Q8_0", 2048, 2048, 32_768, 1296.02),
    ("ggspark25-0037", "gpt-oss-20b", SPARK, "MXFP4", 2048, 2048, 0, 3714.25),
    ("ggspark25-0129", "Qwen3-Coder-30B-A3B", SPARK, "Q8_0", 2048, 2048, 0, 2925.55),
    ("ky26feb-0177", "gpt-oss-120b", STRIX, "MXFP4", 512, 512, 0, 597.02),
    ("ky26feb-0201", "Llama 2 7B", STRIX, "Q4_0", 512, 512, 0, 1355.55),
    ("xj24-0043", "Llama 3 8B", "rtx-4090", "Q4_K_M", 512, 512, 0, 7138.99),
    ("ggm2u-0083", "gpt-oss-120b", "m2-ultra-192", "MXFP4", 2048, 2048, 0, 1648.69),
]


@pytest.mark.parametrize("row", PREFILL, ids=lambda row: row[0])
def test_prefill(row: tuple[str, str, str, str, int, int, int, float]) -> None:
    name, model, box, quant, ubatch, tokens, context, measured = row
    build = "b6989" if name.startswith("ggspark25") else None
    priced = pricer(model, box, quant, None, ubatch, build)
    assert prefill_tok_s(priced, tokens, context) == pytest.approx(measured, rel=0.25)


def test_smaller_pieces_read_a_mixture_slower() -> None:
    small = prefill_tok_s(pricer("gpt-oss-120b", SPARK, "MXFP4", None, 512), 2048)
    large = prefill_tok_s(pricer("gpt-oss-120b", SPARK, "MXFP4", None, 2048), 2048)
    assert small < 0.7 * large  # 1,716 (spkfp4-0018) and 2,444 (ggspark26-0083) tok/s


def test_short_prompts_are_read_slower_than_long_ones() -> None:
    priced = pricer("gpt-oss-120b", SPARK, "MXFP4", None, 2048)
    rates = [prefill_tok_s(priced, tokens) for tokens in (93, 1083, 2048)]
    assert rates == sorted(rates)
    assert prefill_tok_s(priced, 2048, 65_536) < rates[-1]


def test_a_small_model_on_two_cores() -> None:
    assert 50 <= decode_tok_s(pricer("SmolLM2-135M", "cpu-2core", "Q4_1"), 1, 128) <= 70


def test_prompts_on_a_box_that_gave_no_constant() -> None:
    # Jetson AGX Orin: llama.cpp multiplies quantized weights in 8-bit units, whose rate the data
    # sheet tells; 8B to 14B dense models (ait, scorebd) within the guess's own 40 %.
    read = [
        row
        for row in all_published()
        if row.hardware == "jetson-agx-orin-64" and row.kind == "prefill"
    ]
    assert len(read) >= 2
    for row in read:
        assert predicted_tok_s(roofline_of(row), row) == pytest.approx(row.tok_s, rel=0.4)


@pytest.mark.parametrize(
    "box", ["rtx-3090", "rtx-4090", "rtx-5090", "rtx-a6000", "rtx-pro-6000-ws"]
)
def test_what_no_box_told_is_near_what_each_told(box: str) -> None:
    known = constants_for(find_hardware(box), "llama.cpp", "cuda").compute_efficiency
    unknown = constants_for(find_hardware("jetson-agx-thor"), "llama.cpp", "cuda")
    assert (known.status, unknown.compute_efficiency.status) == ("fitted", "assumed")
    assert unknown.compute_efficiency.value == pytest.approx(known.value, rel=0.1)
