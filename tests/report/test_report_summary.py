"""summary.json and what the terminal shows of it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from record_makers import failed, record
from rich.console import Console

from headroom_bench.crowd.persona import Target
from headroom_bench.judge.limits import limits_of
from headroom_bench.judge.verdict import Load
from headroom_bench.records import RequestRecord
from headroom_bench.report.progress import Goal, Progress, Tally
from headroom_bench.report.ratios import RATIOS, ratios
from headroom_bench.report.summary import Window, WorldOutcome, build_summary
from headroom_bench.report.terminal import print_summary

TARGETS = {"chat": Target("ttfv", 2.0, 5.0, 0.95)}
HEAD = {"run_id": "run", "target": "mock", "crowd": "demo", "model": "Llama 3.1 8B"}
HARNESS = {"lag_p99_ms": 0.4, "cpu_share": 0.12, "valid": True, "transport": "httptools"}

GOOD = [record(user=n % 4, turn=n // 4, ttft_s=0.2 + n / 100) for n in range(40)]


def outcome(records: Sequence[RequestRecord], load: Load = Load(0.5, 0.1)) -> WorldOutcome:
    return WorldOutcome(records, load, limits_of(records, load, {"bandwidth": 0.8}))


def summarised(
    measured: Sequence[RequestRecord],
    predicted: Sequence[RequestRecord] | None = None,
    *,
    targets: Any = TARGETS,
    window: Window = Window(0.0, 30.0),
    harness: Any = HARNESS,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    theirs = None if predicted is None else outcome(predicted)
    people = dict.fromkeys(targets, PEOPLE)
    return build_summary(
        HEAD, outcome(measured), theirs, targets, people, window, harness, warnings
    )


PEOPLE = 5

RUNS = {
    "good": (GOOD, GOOD),
    "alone": (GOOD, None),
    "nothing": ([], None),
    "nothing measured": ([], GOOD),
    "nothing predicted": (GOOD, []),
    "all failed": ([failed(user=n) for n in range(30)], GOOD),
    "some failed": ([*GOOD, failed(user=9), failed("abandoned", user=8)], GOOD),
    "one": (GOOD[:1], GOOD[:1]),
}


@pytest.mark.parametrize("run", RUNS)
def test_the_shape_is_what_users_rely_on(run: str) -> None:
    summary = summarised(*RUNS[run])
    assert {
        "run_id", "target", "duration_s", "requests", "errors", "by_persona", "totals",
        "predicted", "ratio", "verdict", "limits", "harness", "warnings",
    } <= summary.keys()  # fmt: skip
    for world in (summary, summary["predicted"]):
        if world is None:
            continue
        assert {"prompt_tok_s", "completion_tok_s", "requests_per_s", "concurrency_mean",
                "busy_share"} <= world["totals"].keys()  # fmt: skip
        figures = world["by_persona"]["chat"]
        assert {"users", "requests", "prefill_tok_s", "target_met_share", "verdict", "turn_s",
                "rounds_per_turn", "abandoned_share"} <= figures.keys()  # fmt: skip
        for metric in ("ttft_s", "ttfv_s", "itl_s", "tpot_s", "e2e_s", "decode_tok_s"):
            assert figures[metric].keys() == {"p50", "p95", "p99", "mean", "n"}
    if summary["ratio"] is not None:
        assert {"ttft_p50", "ttft_p95", "decode_p50", "e2e_p50"} <= summary["ratio"].keys()


@pytest.mark.parametrize("run", RUNS)
def test_it_is_json_without_nan(run: str) -> None:
    summary = summarised(*RUNS[run])
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_a_window_of_no_length_is_json_of_the_same_shape() -> None:
    summary = summarised([], window=Window(30.0, 0.0))
    json.dumps(summary, allow_nan=False)
    assert summary["totals"]["concurrency_mean"] is None
    shown(summary)


def test_figures_come_from_the_window_and_leave_out_what_we_cut_off() -> None:
    records = [
        record(0, started_at_s=1.0),
        record(1, started_at_s=12.0, sent_s=12.0, end_s=14.0),
        failed("interrupted", user=2, started_at_s=12.0),
        failed(user=3, started_at_s=13.0),
    ]
    summary = summarised(records, window=Window(10.0, 30.0))
    assert (summary["requests"], summary["errors"]) == (2, 1)
    assert summary["error_kinds"] == {"reset": 1}
    assert summary["by_persona"]["chat"]["users"] == PEOPLE, (
        "whoever did not come to ask counts too"
    )
    assert summary["totals"]["requests_per_s"] == 1 / 20


def test_throughput_is_of_all_that_was_under_way_in_the_window() -> None:
    """Begun in the warm-up and at work until 12 s: no figure of its own, but the server's time and
    tokens. The prediction's life, half as long, is measured by its own length."""
    early = record(0, started_at_s=8.0, sent_s=8.0, ttft_s=3.0, e2e_s=4.0, end_s=12.0)
    late = record(1, started_at_s=12.0, sent_s=12.0, ttft_s=1.0, e2e_s=2.0, end_s=14.0)
    quick = replace(late, end_s=13.0, e2e_s=1.0, ttft_s=0.5)
    theirs = replace(outcome([early, quick]), ended_s=13.0)
    people, window = {"chat": 2}, Window(10.0, 14.0)
    summary = build_summary(
        HEAD, outcome([early, late]), theirs, TARGETS, people, window, HARNESS, ()
    )
    assert summary["requests"] == summary["predicted"]["requests"] == 1
    for world, seconds in ((summary, 4.0), (summary["predicted"], 3.0)):
        assert world["totals"]["window_s"] == seconds
        assert world["totals"]["concurrency_mean"] == pytest.approx(1.0)
        assert world["totals"]["completion_tok_s"] == pytest.approx(2 * 31 / seconds)
        assert world["totals"]["prompt_tok_s"] == pytest.approx((100 / 3 + 100) / seconds)


def test_what_broke_first_is_named_with_its_cause() -> None:
    slow = [
        record(user=n % 4, turn=n // 4, ttft_s=3.0, ttfv_s=3.0, network_s=2.5) for n in range(40)
    ]
    summary = summarised(slow)
    assert summary["broke"]["persona"] == "chat"
    assert summary["broke"]["limit"] == summary["by_persona"]["chat"]["unmet"][0]["limit"]
    assert summary["broke"]["limit"] == "network"
    assert "failing (chat first, by network)" in " ".join(shown(summary))
    over_radio = replace(outcome(slow), on_radio={"chat"})
    told = build_summary(
        HEAD, over_radio, None, TARGETS, {"chat": 4}, Window(0.0, 30.0), HARNESS, ()
    )
    assert told["broke"]["limit"] == "radio"
    assert summarised(GOOD)["broke"] is None


def test_a_turn_of_several_requests_shows_what_was_waited_for() -> None:
    rounds = [
        record(user=n, step=step, turn_rounds=2, e2e_s=1.5, ttfv_s=0.25)
        for n in range(20)
        for step in (0, 1)
    ]
    page = shown(summarised(rounds))
    (row,) = (line for line in page if line.startswith("turn s"))
    assert row.split()[2:5] == ["1.750", "/", "1.750"]
    assert "2 requests a turn" in row
    assert not any(line.startswith("turn s") for line in shown(summarised(GOOD)))


def test_ratios_are_measured_over_predicted() -> None:
    slower = [record(n, ttft_s=0.5, decode_tok_s=10.0, e2e_s=3.0) for n in range(20)]
    faster = [record(n, ttft_s=0.4, decode_tok_s=20.0, e2e_s=1.5) for n in range(20)]
    found = ratios(slower, faster)
    assert found == pytest.approx(
        {
            "n": 20,
            "ttft_p50": 1.25,
            "ttft_p95": 1.25,
            "decode_p50": 0.5,
            "e2e_p50": 2.0,
            "e2e_p95": 2.0,
        }
    )


def test_ratios_that_cannot_be_had_are_null() -> None:
    nothing = {"n": 0, **dict.fromkeys(RATIOS)}
    assert ratios([], GOOD) == ratios(GOOD, []) == ratios([failed()], GOOD) == nothing
    few = ratios(GOOD[:19], GOOD)
    assert few["ttft_p95"] is None
    assert few["ttft_p50"] is not None


def test_the_prediction_counts_the_same_requests_whenever_it_has_them_begin() -> None:
    late = [replace(good, started_at_s=1e6, e2e_s=1.0) for good in GOOD]
    more = [*late, replace(GOOD[0], request_id="nobody-9/c0/t0/r0")]
    summary = summarised(GOOD, more)
    assert summary["predicted"]["requests"] == summary["requests"] == len(GOOD)
    assert summary["ratio"]["n"] == len(GOOD)


SLOW = [
    replace(one, ttft_s=3.0, ttfv_s=3.0, e2e_s=9.0, decode_tok_s=6.0, valid=False)
    for one in GOOD[:16]
]
"""Spoilt by the harness, which was late."""


def test_both_worlds_are_of_the_same_requests_where_some_are_left_out() -> None:
    slow_twins = [replace(one, valid=True) for one in SLOW]
    summary = summarised([*SLOW, *GOOD[16:]], [*slow_twins, *GOOD[16:]])
    ours, theirs = (w["by_persona"]["chat"] for w in (summary, summary["predicted"]))
    for figure in ("ttft_s", "ttfv_s", "decode_tok_s", "e2e_s", "turn_s", "left_out", "turns",
                   "target_met_share", "verdict", "used_p95"):  # fmt: skip
        assert theirs[figure] == ours[figure], figure
    assert (ours["left_out"], ours["turns"], ours["target_met_share"]) == (16, 24, 1.0)
    assert summary["ratio"]["by_persona"]["chat"]["ttft_s"] == {"ratio": 1.0, "n": 24}
    assert summary["predicted"]["verdict"] == summary["verdict"] == "right-sized"
    assert "40 requests (16 left out: 40%), 24 turns: " in "\n".join(shown(summary))


def test_a_ratio_is_of_what_both_worlds_have_and_the_page_says_of_how_many() -> None:
    """People whom the model has give up are no answers there."""
    gone = [
        failed("abandoned", user=n % 4, turn=n // 4, turn_rounds=1) for n in range(len(GOOD) // 2)
    ]
    summary = summarised(GOOD, [*gone, *GOOD[len(gone) :]])
    assert summary["ratio"]["by_persona"]["chat"]["ttft_s"] == {"ratio": 1.0, "n": 20}
    page = shown(summary)
    (row,) = (line for line in page if line.startswith("TTFT s"))
    assert "1.00" in row
    told = "  TTFT, first visible, decode, E2E: n 40 and 20, the ratio is of what both have"
    assert told in page
    assert not any(": n " in line for line in shown(summarised(GOOD, GOOD)))


def test_where_most_was_left_out_nothing_is_judged_and_no_ratio_given() -> None:
    """8 of 172 turns that came through are no fair sample."""
    spoilt = [replace(one, valid=False) for one in GOOD[:21]]
    people = [record(user=n, persona="other") for n in range(60)]
    targets = {"chat": TARGETS["chat"], "other": None}
    some = summarised([*spoilt, *GOOD[21:], *people], [*GOOD, *people], targets=targets)
    assert some["ratio"]["by_persona"]["chat"] is None
    assert some["ratio"]["by_persona"]["other"]["ttft_s"]["ratio"] == 1.0
    for world in (some, some["predicted"]):
        assert world["by_persona"]["chat"]["verdict"] == "not enough data"
        assert world["by_persona"]["chat"]["target_met_share"] is None
    page = shown(some)
    assert any("40 requests (21 left out: 52%), 0 turns: not enough data" in line for line in page)
    (first, second) = (line for line in page if line.startswith("TTFT s"))
    assert "–" in first
    assert "1.00" in second
    whole = summarised([*spoilt, *GOOD[21:]], GOOD)
    assert whole["ratio"] is None
    assert whole["verdict"] == "not enough data"
    assert "40 requests (21 left out: 52%) in 30.0 s" in "\n".join(shown(whole))


def test_a_persona_without_a_target_has_figures_and_no_verdict() -> None:
    summary = summarised(GOOD, targets={"chat": None})
    assert summary["verdict"] == "no target"
    assert summary["by_persona"]["chat"]["ttft_s"]["n"] == 40


# --- the terminal -------------------------------------------------------------------------------


def shown(summary: dict[str, Any], width: int = 80) -> list[str]:
    page = io.StringIO()
    print_summary(summary, Console(file=page, width=width, color_system=None))
    lines = page.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    return lines


@pytest.mark.parametrize("run", RUNS)
def test_every_run_can_be_shown(run: str) -> None:
    lines = shown(summarised(*RUNS[run]))
    assert lines[0] == "crowd demo on mock (Llama 3.1 8B)"
    assert any(line.startswith("verdict (measured): ") for line in lines)


def test_headlines_stay_on_their_lines_at_80_columns() -> None:
    names = ("voice-command", "meeting-summariser")
    many = [
        record(user=n, persona=name, ttft_s=123.456, ttfv_s=234.567, e2e_s=3456.789,
               prompt_tokens=131_072, cached_tokens=131_000, completion_tokens=16_384,
               decode_tok_s=1234.5)
        for name in names for n in range(1200)
    ]  # fmt: skip
    many += [failed(user=n, persona=name) for name in names for n in range(99)]
    lines = shown(summarised(many, many, targets=dict.fromkeys(names, TARGETS["chat"])))
    for name in names:
        (headline,) = [line for line in lines if line.startswith(name)]
        assert headline.endswith("0% met, failing")
    assert len([line for line in lines if line.startswith("predicted: ")]) == 2
    rows = [line for line in lines if line.startswith("TTFT s")]
    assert rows[0].split() == ["TTFT", "s", "123.5", "/", "123.5", "123.5", "/", "123.5", "1.00",
                               "131k", "prompt,", "131k", "cached"]  # fmt: skip


def test_measured_stands_beside_predicted() -> None:
    lines = shown(summarised(GOOD, [replace(good, e2e_s=1.0) for good in GOOD]))
    (row,) = [line for line in lines if line.startswith("E2E s")]
    assert row.split()[2:] == ["2.000", "/", "2.000", "1.000", "/", "1.000", "2.00", "31", "generated"]  # fmt: skip  # noqa: E501


def test_failures_and_warnings_are_told() -> None:
    lines = shown(summarised([*GOOD, failed(user=9)], warnings=["the clock [bold]ran[/bold] away"]))
    assert "failed requests: 1 × reset" in lines
    assert "warning: the clock [bold]ran[/bold] away" in lines


def test_names_are_shown_as_they_are() -> None:
    """A model called like markup must not vanish into it."""
    summary = summarised(GOOD)
    summary["model"] = "qwen[/red]"
    summary["limits"] = [{"limit": "slots", "share": 1.0, "evidence": "all [red] taken"}]
    lines = shown(summary)
    assert lines[0] == "crowd demo on mock (qwen[/red])"
    assert "  slots: all [red] taken" in lines


def test_what_a_server_calls_its_model_cannot_steer_a_terminal() -> None:
    summary = summarised(GOOD, warnings=["it said \x1b]0;x\x07"]) | {"model": "m\x1b[2J"}
    page = "\n".join(shown(summary))
    assert "\x1b" not in page
    assert r"m\x1b[2J" in page
    assert r"it said \x1b]0;x\x07" in page


def test_progress_is_one_plain_line_now_and_then() -> None:
    page = io.StringIO()
    console = Console(file=page, width=100, color_system=None)
    with Progress(console, Goal(30.0, None), lambda: 12.0) as progress:
        progress.update(Tally())
        assert page.getvalue() == ""  # not yet: it is quiet where nobody watches it change
        progress._last_plain -= 60
        progress.update(Tally(1234, 2, 56_789, 3))
    assert page.getvalue() == (
        "12 s of 30 s: 1,234 requests ended, 2 failed, 3 in flight, 56,789 tokens generated\n"
    )


def test_progress_towards_a_number_of_requests_counts_those() -> None:
    page = io.StringIO()
    console = Console(file=page, width=100, color_system=None)
    with Progress(console, Goal(None, 40), lambda: 12.0) as progress:
        progress._last_plain -= 60
        progress.update(Tally(1, 0, 1, 3))
    assert page.getvalue() == "12 s: 1 of 40 requests ended, 3 in flight, 1 token generated\n"


def test_turns_that_missed_say_what_took_their_time() -> None:
    queued = [
        replace(one, ttft_s=4.0, ttfv_s=4.0, e2e_s=6.0, server_queue_s=3.5) for one in GOOD[:6]
    ]
    summary = summarised([*queued, *GOOD[6:]])
    (row,) = summary["by_persona"]["chat"]["unmet"]
    assert (row["limit"], row["share"]) == ("slots", 1.0)
    assert row["evidence"] == "6 of 6 unmet turns waited longest in the queue"
    assert row["evidence"] in "\n".join(shown(summary))
    assert summarised(GOOD)["by_persona"]["chat"]["unmet"] == []


def test_what_is_left_out_and_what_counts_it_is_said() -> None:
    page = " ".join(shown(summarised([replace(GOOD[0], valid=False), *GOOD[1:]])))
    assert "40 requests (1 left out: 2%) in 30.0 s" in page
    assert "those rates and busy are of all that was served; verdicts, limits" in page
    assert "all that was served" not in " ".join(shown(summarised(GOOD)))


def test_limits_that_a_model_tells_of_a_measured_run_are_marked() -> None:
    slow = [replace(one, network_s=0.1) for one in GOOD]
    page = shown(summarised(slow))
    assert "  bandwidth (predicted): 80% of the server's time in passes bound by bandwidth" in page
    assert any(line.startswith("  network: the way took 0.100 s of ") for line in page)
    simulated = shown(summarised(slow) | {"world": "predicted"})
    assert "  bandwidth: 80% of the server's time in passes bound by bandwidth" in simulated


def test_totals_name_the_window_that_they_are_of() -> None:
    late = [record(started_at_s=12.0)]
    assert any(
        line.startswith("1 request in 20.0 s after a warm-up of 10 s, ")
        for line in shown(summarised(late, window=Window(10.0, 30.0)))
    )
    page = shown(summarised(late))
    assert any(line.startswith("1 request in 30.0 s, ") for line in page)
    assert any("  1 request, 1 turn: " in line for line in page)


def test_a_rate_names_what_was_sent_where_nobody_counted_it() -> None:
    """A server without usage: the prompt's own length is known all the same."""
    silent = [replace(one, prompt_tokens=None, cached_tokens=None, sent_tokens=500) for one in GOOD]
    page = shown(summarised(silent))
    (rate,) = (line for line in page if line.startswith("decode tok/s"))
    assert rate.rstrip().endswith("at 500 sent tokens")
    (first,) = (line for line in page if line.startswith("TTFT s"))
    assert first.rstrip().endswith("500 sent prompt, – cached")


def test_the_mock_is_named_only_where_it_ran() -> None:
    simulated = summarised(GOOD) | {"world": "predicted"}
    assert shown(simulated)[0] == "crowd demo, simulated (Llama 3.1 8B)"
    mine = simulated | {"target": "my-server"}
    assert shown(mine)[0] == "crowd demo on my-server, simulated (Llama 3.1 8B)"


def test_a_share_below_its_target_does_not_read_as_if_it_reached_it() -> None:
    """189 of 200 in time are 94.5 %, and 95 % are wanted."""
    fast = [record(user=n, ttft_s=0.3) for n in range(200)]
    late = [replace(one, ttfv_s=60.0) for one in fast]
    (line,) = (row for row in shown(summarised([*late[:11], *fast[11:]])) if "turns: " in row)
    assert line.endswith(" 200 turns: 94.5% met, failing")
    (line,) = (row for row in shown(summarised([*late[:10], *fast[10:]])) if "turns: " in row)
    assert " 200 turns: 95% met, " in line
    assert "failing" not in line
