"""A server that refuses for now is asked again when it said, and not before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from record_makers import failed

from headroom_bench.crowd.world import Request
from headroom_bench.live.exchange import Exchange
from headroom_bench.live.measured import LONGEST_RETRY_AFTER_S, to_answer
from headroom_bench.segments import Segment

ASK = (Segment("ask", "user", "prose", "x", 1),)


def again_s(told: str, status: int = 429) -> float | None:
    """For an answer that ended at 100 s."""
    exchange = Exchange(status=status, headers={"retry-after": told})
    record = failed("rate_limited", started_at_s=99.0, end_s=100.0)
    request = Request("p-0/c0/t0/r0", "p-0/c0", "p", 0, 0, 0, ASK, 20)
    return to_answer(request, record, exchange).again_s


@pytest.mark.parametrize(
    ("told", "again"),
    [
        ("7", 107.0),
        ("0.5", 100.5),
        ("0", None),
        ("-3", None),
        ("nan", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", None),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 100.0 + LONGEST_RETRY_AFTER_S),
        ("Wed, 21 Oct 2099 07:28:00 -0000", None),
        ("99999999999", 100.0 + LONGEST_RETRY_AFTER_S),
        ("inf", 100.0 + LONGEST_RETRY_AFTER_S),
        ("Mon, 01 Jan 2024 00:00:00 +99999999999999", None),
        ("Wed, 21 Oct 99999999999999 07:28:00 GMT", None),
    ],
)
def test_what_it_says_counts_from_the_end_of_the_answer(told: str, again: float | None) -> None:
    assert again_s(told) == again
    assert again_s(told, 503) == again


def test_a_date_is_understood_too() -> None:
    then = datetime.now(UTC) + timedelta(seconds=20)
    assert again_s(format_datetime(then, usegmt=True)) == pytest.approx(120.0, abs=3.0)


def test_other_answers_have_no_such_time() -> None:
    assert again_s("7", 200) is None
    assert again_s("7", 500) is None
