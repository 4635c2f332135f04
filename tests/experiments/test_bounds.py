"""What bound a server's time, by hand: one sequence at a time, whoever waits beside it."""

from __future__ import annotations

from typing import Any

import pytest
from record_makers import record

from headroom_bench.experiments.bounds import bound_by_phase, shares_of_bounds, time_spent
from headroom_bench.records import RequestRecord
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.passes import Roofline

READING_S, WRITING_S = 0.0475, 0.676
"""Of a prompt of 400 tokens and an answer of 100 on the box below, as the model prices them."""


def roofline(slots: int) -> Roofline:
    deployment = Deployment.named(
        model="Llama 3.1 8B", hardware="rtx-4090", quant="Q4_K_M", slots=slots, ctx=4_096
    )
    return deployment.pricer()


def asked(**told: Any) -> RequestRecord:
    """One of eight that asked at the same moment: seven others wait."""
    return record(
        **{
            "prompt_tokens": 400,
            "cached_tokens": 0,
            "completion_tokens": 100,
            "concurrent_at_start": 8,
            "ttft_s": 5.2,
            "tpot_s": WRITING_S / 99,
            "e2e_s": 5.9,
            **told,
        }
    )


@pytest.mark.parametrize(
    "told",
    [
        {"server_prefill_s": READING_S, "server_decode_s": WRITING_S},
        {"server_prefill_s": READING_S},
        {},
        {"tpot_s": None},  # all in one piece
        {"tpot_s": None, "server_prefill_s": READING_S, "server_decode_s": WRITING_S},
    ],
)
def test_a_queue_is_nobody_s_compute(told: dict[str, Any]) -> None:
    spent = time_spent([asked(**told)], roofline(slots=1))
    assert spent["prefill"] == {"compute": pytest.approx(READING_S, rel=0.05)}
    assert spent["decode"] == {"bandwidth": pytest.approx(WRITING_S, rel=0.05)}
    assert shares_of_bounds(spent)["bandwidth"] == pytest.approx(0.93, abs=0.01)
    assert bound_by_phase(spent) == {"prefill": "compute", "decode": "bandwidth"}


@pytest.mark.parametrize(("slots", "together"), [(1, 1), (4, 4), (16, 8)])
def test_those_that_are_written_together_share_the_time(slots: int, together: int) -> None:
    told = asked(server_prefill_s=READING_S, server_decode_s=1.0)
    spent = time_spent([told], roofline(slots))
    assert sum(spent["decode"].values()) == pytest.approx(1.0 / together)


def test_what_was_counted_by_nobody_is_left_out() -> None:
    assert shares_of_bounds(time_spent([asked(prompt_tokens=None)], roofline(1))) == {}
    alone = time_spent([asked(completion_tokens=1)], roofline(1))
    assert alone["decode"] == {}
