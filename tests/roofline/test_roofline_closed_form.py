"""The Methodology page's closed form beside the iteration rule: they agree where they should.

One user, a dense model, an architecture that the page fitted (Ada): within 15 % to 57k tokens.
They part where the page has no term: launches of mixtures and hybrids, several users, kernels of
other architectures (the page's one M3 Max point), and prompts, which it derives from decode.
"""

from __future__ import annotations

import pytest

from headroom_bench.roofline import Batch, Deployment
from headroom_bench.roofline.closed_form import ETA, R_ADA, T_FIXED_S, simple_view


def deployment(model: str, hardware: str, quant: str = "Q4_K_M") -> Deployment:
    return Deployment.named(model=model, hardware=hardware, quant=quant)


def decode_tok_s(served: Deployment, context: int) -> float:
    inside = min(context, served.kv().window_tokens or context)
    return 1 / served.pricer().pass_s(Batch(1, context, inside, 0))


@pytest.mark.parametrize("model", ["Llama 3.1 8B", "Qwen3 8B", "Qwen2.5 14B"])
@pytest.mark.parametrize("context", [512, 4096, 16_384, 57_000])
def test_dense_models_on_ada_agree(model: str, context: int) -> None:
    served = deployment(model, "rtx-4090")
    page = simple_view(served, context)
    assert page.status == "fitted"
    assert page.decode_tok_s == pytest.approx(decode_tok_s(served, context), rel=0.15)


def test_the_pages_own_arithmetic() -> None:
    served = deployment("Llama 3.1 8B", "rtx-4090")
    weights, kv = served.weights().always_read, served.kv().full_read * 1000
    seconds = (weights + kv) / (1008e9 * 0.927) + 2.25e-3
    page = simple_view(served, 1000)
    assert page.decode_tok_s == pytest.approx(1 / seconds)
    assert page.prefill_tok_s == pytest.approx(R_ADA / seconds)


def test_offloaded_weights_dominate_both_views_alike() -> None:
    served = deployment("gpt-oss-120b", "rtx-4090", "MXFP4")
    assert simple_view(served, 512).decode_tok_s == pytest.approx(
        decode_tok_s(served, 512), rel=0.12
    )


def test_where_they_part() -> None:
    # Launches of 48 recurrent and MoE layers: the page knows none.
    hybrid = deployment("Qwen3-Next 80B-A3B", "strix-halo-128", "Q8_0")
    with_page_eta = simple_view(hybrid, 512).decode_tok_s / ETA["rdna3.5"].value * 0.857
    assert with_page_eta > 1.15 * decode_tok_s(hybrid, 512)
    # Prompts of a mixture: the page has decode * 72.8 * active / total.
    mixture = deployment("Qwen3 30B-A3B", "rtx-4090")
    assert simple_view(mixture, 2048).prefill_tok_s < 0.5 * 4000


def test_every_constant_keeps_its_flag() -> None:
    flags = {c.status for c in (*ETA.values(), *T_FIXED_S.values())}
    assert flags == {"fitted", "assumed"}
    assert [name for name, c in ETA.items() if c.status == "fitted"] == ["ada", "ampere", "apple"]
    assert simple_view(deployment("Llama 3.1 8B", "rtx-3090"), 512).prefill_status == "assumed"
