"""The run's metrics: names of the contract, right numbers, and what promtool says of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headroom_bench.crowd.world import Request
from headroom_bench.errors import UserError
from headroom_bench.records import RequestRecord
from headroom_bench.segments import Segment
from headroom_bench.telemetry.exporter import RunExporter

CONTRACT = {
    "headroom_requests", "headroom_ttft_seconds", "headroom_ttfv_seconds",
    "headroom_inter_token_seconds", "headroom_e2e_seconds", "headroom_decode_tokens_per_second",
    "headroom_prompt_tokens", "headroom_completion_tokens", "headroom_in_flight",
    "headroom_predicted_ratio", "headroom_harness_lag_seconds",
}  # fmt: skip
"""Metric families; counters gain `_total` in the text."""


def request(persona: str = "p") -> Request:
    ask = Segment("ask", "user", "prose", "x", 5)
    return Request("p-0/c0/t0/r0", "p-0/c0", persona, 0, 0, 0, (ask,), 10)


def record(**fields: object) -> RequestRecord:
    base = RequestRecord("r", "measured", "p-0/c0/t0/r0", "c", "p", 0, 0, 0, "t", None, 0.0)
    for name, value in {"sent_s": 0.0, "ok": True, **fields}.items():
        setattr(base, name, value)
    return base


@pytest.fixture
def exporter() -> Iterator[RunExporter]:
    made = RunExporter("box", {"ttft_p50": 0.1, "decode_p50": 50.0, "e2e_p50": 1.0})
    yield made
    made.stop()


def feed(exporter: RunExporter) -> None:
    for ttft_s in (0.05, 0.2, 0.3):
        exporter.on_sent(request())
        exporter.on_record(
            record(
                ttft_s=ttft_s, ttfv_s=ttft_s, e2e_s=2.0, decode_tok_s=25.0, prompt_tokens=100,
                completion_tokens=3, harness_lag_ms=2.0,
            ),
            [1.0, 1.04, 1.08],
        )  # fmt: skip
    exporter.on_sent(request())
    exporter.on_record(record(ok=False, error_kind="timeout"), [])
    exporter.on_sent(request("other"))


def scrape(exporter: RunExporter) -> str:
    port = exporter.start("127.0.0.1", 0)
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    exporter.stop()
    return text


def values(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_names_of_the_contract(exporter: RunExporter) -> None:
    feed(exporter)
    families = {family.name for family in text_string_to_metric_families(scrape(exporter))}
    assert families == CONTRACT


def test_the_numbers(exporter: RunExporter) -> None:
    feed(exporter)
    got = values(scrape(exporter))
    who = (("persona", "p"), ("target", "box"))
    assert got["headroom_requests_total", (("outcome", "ok"), *who)] == 3
    assert got["headroom_requests_total", (("outcome", "timeout"), *who)] == 1
    assert got["headroom_ttft_seconds_count", who] == 3
    assert got["headroom_ttft_seconds_sum", who] == pytest.approx(0.55)
    assert got["headroom_ttft_seconds_bucket", (("le", "0.05"), *who)] == 1
    assert got["headroom_inter_token_seconds_count", who] == 6
    assert got["headroom_inter_token_seconds_sum", who] == pytest.approx(0.24)
    assert got["headroom_inter_token_seconds_bucket", (("le", "0.03"), *who)] == 0
    assert got["headroom_inter_token_seconds_bucket", (("le", "0.05"), *who)] == 6
    assert got["headroom_inter_token_seconds_bucket", (("le", "+Inf"), *who)] == 6
    assert got["headroom_prompt_tokens_total", who] == 300
    assert got["headroom_completion_tokens_total", who] == 9
    assert got["headroom_in_flight", who] == 0
    assert got["headroom_in_flight", (("persona", "other"), ("target", "box"))] == 1
    assert got["headroom_harness_lag_seconds", ()] == pytest.approx(0.002)
    assert got["headroom_predicted_ratio", (("metric", "ttft_p50"),)] == pytest.approx(2.0)
    assert got["headroom_predicted_ratio", (("metric", "decode_p50"),)] == pytest.approx(0.5)


def test_figures_that_the_harness_spoilt_are_left_out(exporter: RunExporter) -> None:
    exporter.on_sent(request())
    exporter.on_record(record(ttft_s=9.0, valid=False), [1.0])
    got = values(scrape(exporter))
    assert not any(name == "headroom_ttft_seconds_count" for name, _ in got)


def test_tokens_are_counted_of_every_request_that_is_counted(exporter: RunExporter) -> None:
    """Else a rate of tokens over a rate of requests is a mean of nothing."""
    for told in ({}, {"valid": False}, {"ok": False, "error_kind": "reset", "prompt_tokens": None}):
        exporter.on_record(record(**{"prompt_tokens": 100, "completion_tokens": 7, **told}), [1.0])
    got = values(scrape(exporter))
    who = (("persona", "p"), ("target", "box"))
    requests = sum(value for (name, _), value in got.items() if name == "headroom_requests_total")
    assert requests == 3
    assert got["headroom_prompt_tokens_total", who] == 200
    assert got["headroom_completion_tokens_total", who] == 7 * requests


def test_promtool_finds_nothing_to_mend(exporter: RunExporter) -> None:
    if shutil.which("promtool") is None:
        notice = "promtool is not installed (Debian: apt-get install prometheus)"
        if os.environ.get("CI", "").lower() in ("1", "true"):
            pytest.fail(notice)
        pytest.skip(notice)
    feed(exporter)
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=scrape(exporter),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_taken_port_is_one_clear_line(exporter: RunExporter) -> None:
    port = exporter.start("127.0.0.1", 0)
    with pytest.raises(UserError, match=f"--prometheus 127.0.0.1:{port} cannot be opened"):
        RunExporter("box", {}).start("127.0.0.1", port)
