"""Four people at a box of two slots, over loopback: they wait for slots, not for the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_tools import Ran, headroom

TARGET = """
embedded_mock = true
dialect = "llamacpp"
{journal}

[server]
hardware = "dgx-spark"
model = "gpt-oss-20b"
quant = "MXFP4"
slots = 2
ctx = 16384
"""
WORDS = ("--users", "4", "--prompt-tokens", "500", "--output-tokens", "60", "--requests", "12")


def crowded(out: Path, journal: str) -> Ran:
    target = out / "two-slots.toml"
    target.write_text(TARGET.format(journal=journal))
    ran = headroom("run", str(target), *WORDS, "--time-scale", "4", out=out / "results")
    assert ran.code == 0, ran.err
    return ran


@pytest.mark.parametrize("journal", ['journal = "started"', ""], ids=["journal", "none"])
def test_who_waits_for_a_slot_is_not_told_that_it_is_the_network(
    journal: str, tmp_path: Path
) -> None:
    ran = crowded(tmp_path, journal)
    limits = {row["limit"]: row for row in ran.json("summary.json")["limits"]}
    assert "network" not in limits
    assert "more in flight than its 2 slots" in limits["slots"]["evidence"]
    predicted = {row["request_id"]: row for row in ran.rows("predicted.jsonl")}
    late = [row for row in ran.rows("requests.jsonl") if row["concurrent_at_start"] > 2]
    assert len(late) >= 8
    # Which of two that ask together comes first may differ between the worlds, not how long each
    # place in the queue waits.
    queued_s = sorted(predicted[row["request_id"]]["server_queue_s"] for row in late)
    for row, waited_s in zip(sorted(late, key=lambda row: row["ttft_s"]), queued_s, strict=True):
        if journal:
            assert row["server_queue_s"] == pytest.approx(waited_s, rel=0.5)  # a busy machine's
            assert row["server_queue_s"] > 0.7 * (row["ttft_s"] - row["server_prefill_s"])
        else:
            assert row["server_queue_s"] is None
            assert row["ttft_s"] > waited_s > 10 * row["network_s"]
    for row in ran.rows("turns.jsonl"):
        assert row["cause"] != "network"
        assert (row["queue_s"] is None) == (not journal)
