"""What the prediction beside a run is told of each measured request."""

from __future__ import annotations

import pytest
from record_makers import failed, record

from headroom_bench.experiments.prediction import measured_lengths


def test_a_success_is_as_long_as_the_server_counted() -> None:
    one = record(prompt_tokens=90, sent_tokens=100, completion_tokens=31, reasoning_tokens=4)
    (told,) = measured_lengths([one]).values()
    assert (told.ok, told.prompt_tokens, told.completion_tokens) == (True, 90, 31)
    assert told.reasoning_tokens == 4


@pytest.mark.parametrize(
    ("kind", "served"),
    [
        ("abandoned", True),
        ("interrupted", True),
        ("timeout", True),
        ("truncated", True),
        ("server_error", True),
        ("connect_failed", False),
        ("rate_limited", False),
        ("unavailable", False),
        ("context_exceeded", False),
    ],
)
def test_a_failure_is_told_with_how_long_it_kept_the_server_busy(kind: str, served: bool) -> None:
    gone = failed(kind, started_at_s=1.0, sent_s=1.5, end_s=9.0, prompt_tokens=None, sent_tokens=70)
    (told,) = measured_lengths([gone]).values()
    assert (told.ok, told.served) == (False, served)
    assert told.lasted_s == 8.0
    assert told.prompt_tokens == 70, "nobody counted them but we"


def test_what_was_never_sent_was_never_served() -> None:
    (told,) = measured_lengths([failed("reset", sent_s=None)]).values()
    assert not told.served
