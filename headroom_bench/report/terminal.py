"""The summary for a terminal: measured beside predicted, a block for every persona."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headroom_bench.errors import written_out
from headroom_bench.target import MOCK
from headroom_bench.units import counted, percent

VERDICT_STYLE = {
    "failing": "bold red",
    "tight": "bold yellow",
    "right-sized": "bold green",
    "overkill": "bold cyan",
}
_METRICS = (
    ("TTFT s", "ttft_s", "p95"),
    ("first visible s", "ttfv_s", "p95"),
    ("decode tok/s", "decode_tok_s", None),
    ("E2E s", "e2e_s", "p95"),
    ("turn s", "turn_s", "p95"),
)
"""Label, metric, and the second percentile beside p50."""

_REPEATED = {
    "ttft_p50": "TTFT p50 s",
    "ttft_p95": "TTFT p95 s",
    "decode_p50": "decode p50 tok/s",
    "e2e_p50": "E2E p50 s",
    "e2e_p95": "E2E p95 s",
}
"""What is shown of the differences between repeats."""

Figures = Mapping[str, Any]


def print_summary(summary: Figures, console: Console) -> None:
    """Prints figures, verdicts, limits and warnings."""
    console.print(Text(_title(summary), style="bold"))
    predicted, ratios = summary.get("predicted"), summary.get("ratio") or {}
    for name, ours in summary["by_persona"].items():
        theirs = predicted["by_persona"].get(name) if predicted else None
        console.print(_headline(name, ours, theirs))
        table = _persona(ours, theirs, ratios.get("by_persona", {}).get(name))
        if table.rows:
            console.print(table)
        for line in _counts(ours, theirs):
            console.print(Text(line, style="dim"))
        for row in (ours.get("unmet") or [])[:2]:
            console.print(Text(_limit(row, summary), style="yellow"))
    _print_totals(summary, console)
    _print_repeats(summary.get("repeats"), console)
    _print_prompts(summary.get("prompts"), console)
    console.print(_verdicts(summary))
    _print_limits(summary, console)
    kinds = summary.get("error_kinds") or {}
    if kinds:
        told = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        console.print(Text(f"failed requests: {told}", style="red"))
    for note in summary.get("notes") or []:
        console.print(Text(f"note: {note}"))
    for warning in summary.get("warnings") or []:
        console.print(Text(f"warning: {written_out(warning)}", style="yellow"))


def _title(summary: Figures) -> str:
    model = f" ({written_out(summary['model'])})" if summary.get("model") else ""  # a server's word
    box = f"\nbox: {summary['box']}" if summary.get("box") else ""
    return f"crowd {summary['crowd']}{where_lived(summary)}{model}{box}"


def where_lived(found: Figures) -> str:
    """On which target; the mock's name only where it ran."""
    simulated = found.get("world") == "predicted"
    on = "" if simulated and found["target"] == MOCK else f" on {found['target']}"
    return on + (", simulated" if simulated else "")


def _persona(ours: Figures, theirs: Figures | None, ratios: Figures | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_edge=False)
    table.add_column("p50 / p95", width=15)
    table.add_column("" if theirs is None else "measured", justify="right", width=13)
    if theirs is not None:
        table.add_column("predicted", justify="right", width=13)
        table.add_column("ratio", justify="right", width=5)
    table.add_column("")
    for label, metric, second in _shown(ours, theirs):
        cells = [label, _pair(ours[metric], second)]
        if theirs is not None:
            cells += [_pair(theirs[metric], second), _ratio(ratios, metric)]
        table.add_row(*cells, Text(_at(metric, ours), style="dim"))
    return table


def _shown(ours: Figures, theirs: Figures | None) -> list[tuple[str, str, str | None]]:
    """The metrics that there is something to show of."""
    several = (ours["rounds_per_turn"] or 1) > 1  # else the wait is that of its only request
    return [
        row
        for row in _METRICS
        if (ours[row[1]]["n"] or (theirs is not None and theirs[row[1]]["n"]))
        and (several or row[1] != "turn_s")
    ]


def _headline(name: str, ours: Figures, theirs: Figures | None) -> Text:
    users = f" × {ours['users']}" if ours["users"] else ""
    line = Text(f"\n{name}{users}", style="bold")
    asked, turns = counted(ours["requests"], "request"), counted(ours["turns"], "turn")
    failed = f", {ours['errors']:,} failed" if ours["errors"] else ""
    line.append(f"  {asked}{left_out(ours)}, {turns}{failed}: ", style="not bold")
    line.append_text(_outcome(ours))
    if theirs is not None:
        of = f"{counted(theirs['turns'], 'turn')}, " if theirs["turns"] != ours["turns"] else ""
        line.append(f"\npredicted: {of}", style="not bold").append_text(_outcome(theirs))
    return line


def left_out(figures: Figures) -> str:
    """How many of the requests no figure is of, because the harness was too late for them."""
    count = figures["left_out"]
    return f" ({count:,} left out: {count / figures['requests']:.0%})" if count else ""


def _outcome(figures: Figures) -> Text:
    share = figures["target_met_share"]
    met = "" if share is None else f"{percent(share)} met, "
    word = figures["verdict"]
    return Text(met, style="not bold").append(word, style=VERDICT_STYLE.get(word, ""))


def _at(metric: str, figures: Figures) -> str:
    """What the figure was taken at: a rate or a wait without it is no measurement."""
    prompt = _whole(figures["prompt_tokens"]["p50"])
    if figures["prompt_tokens"]["p50"] is None and figures["sent_tokens"]["p50"] is not None:
        prompt = f"{_whole(figures['sent_tokens']['p50'])} sent"  # no server's count to tell
    if metric == "decode_tok_s":
        return f"at {prompt} tokens"
    if metric == "e2e_s":
        return f"{_whole(figures['completion_tokens']['p50'])} generated{_of_asked(figures)}"
    if metric == "ttft_s":
        return f"{prompt} prompt, {_whole(figures['cached_tokens']['p50'])} cached"
    if metric == "turn_s":
        return f"the wait, {figures['rounds_per_turn']:.3g} requests a turn"
    return ""


def _of_asked(figures: Figures) -> str:
    """How long answers were, where they were clearly shorter than asked for."""
    share = figures.get("answered_share")
    return "" if share is None or share >= 0.95 else f", {share:.0%} of asked"


def _pair(metric: Figures, second: str | None) -> str:
    first = _number(metric["p50"])
    if second is None or metric[second] is None:
        return first
    return f"{first} / {_number(metric[second])}"


def _ratio(ratios: Figures | None, metric: str) -> str:
    ratio = ratios[metric]["ratio"] if ratios else None
    return "–" if ratio is None else f"{ratio:.2f}"


def _counts(ours: Figures, theirs: Figures | None) -> list[str]:
    """Of how many values the columns are, where one world has some that the other lacks."""
    if theirs is None:
        return []
    rows: dict[tuple[int, int], list[str]] = {}
    for label, metric, _ in _shown(ours, theirs):
        pair = ours[metric]["n"], theirs[metric]["n"]
        if pair[0] != pair[1]:
            rows.setdefault(pair, []).append(label.rpartition(" ")[0])
    return [
        f"  {', '.join(labels)}: n {pair[0]:,} and {pair[1]:,}, the ratio is of what both have"
        for pair, labels in rows.items()
    ]


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _whole(value: float | None) -> str:
    """Tokens; from 100,000 on in thousands, so that a row stays on its line."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value < 99_999.5 else f"{value / 1000:,.0f}k"


def _print_totals(summary: Figures, console: Console) -> None:
    figures, harness = summary["totals"], summary["harness"]
    line = (
        f"\n{counted(summary['requests'], 'request')}{left_out(summary)} in {_window(summary)}, "
        f"{_number(figures['concurrency_mean'])} in flight on average; "
        f"{_number(figures['prompt_tok_s'])} prompt and "
        f"{_number(figures['completion_tok_s'])} generated tokens a second"
    )
    console.print(line, highlight=False)
    if summary["left_out"]:
        console.print(
            "those rates and busy are of all that was served; verdicts, limits and all other "
            "figures are without those left out",
            style="dim",
        )
    if harness.get("lag_p99_ms") is not None:
        times = harness.get("headroom_times")
        far = f" ({times:.0f} times this load would fill it)" if times else ""
        console.print(
            f"client: {harness['lag_p99_ms']:.1f} ms late at p99, "
            f"{harness['cpu_share']:.0%} of a core{far}, carried by {harness['transport']}",
            style="dim",
            highlight=False,
        )


def _window(summary: Figures) -> str:
    """The time that all figures are of."""
    warmup_s = summary["warmup_s"]
    length = f"{max(0.0, summary['duration_s'] - warmup_s):.1f} s"
    return length if not warmup_s else f"{length} after a warm-up of {warmup_s:g} s"


def _print_repeats(repeats: Figures | None, console: Console) -> None:
    """How far repeats differ: each main figure's mean, and its standard deviation."""
    if repeats is None:
        return
    done = counted(repeats["done"], "repeat")
    known = {name: row for name, row in repeats["between"].items() if row["stdev"] is not None}
    told = "; ".join(f"{_REPEATED[name]} {_differs(row)}" for name, row in known.items())
    line = f"{done} of {repeats['asked']}"
    console.print(Text(f"{line}; from one to the next: {told}" if told else line, style="dim"))


def _differs(row: Figures) -> str:
    share = f" ({row['stdev'] / row['mean']:.0%})" if row["mean"] else ""
    return f"{_number(row['mean'])} ± {_number(row['stdev'])}{share}"


def _print_prompts(prompts: Figures | None, console: Console) -> None:
    if not prompts:
        return
    if not prompts["filler"]:
        sessions = counted(prompts["sessions"], "recorded session")
        told = f"{sessions}; lengths are theirs, not the crowd's"
    elif prompts["lengths"] is None:
        told = f"{prompts['kind']} filler"
    else:
        told = f"{prompts['kind']} filler, lengths {prompts['lengths']}"
        if prompts["lengths"] == "counted":
            told += " by the server on sample texts"
        if prompts["lengths"] != "exact":
            told += " and corrected by what it counts"
    if prompts.get("shared_share") is not None:
        told += f"; {prompts['shared_share']:.0%} of new text is everybody's"
    if prompts.get("as_prose"):
        told += f"; {', '.join(prompts['as_prose'])} written as prose"
    console.print(f"prompts: {told}", style="dim", highlight=False)


def _verdicts(summary: Figures) -> Text:
    predicted = summary.get("predicted")
    word = summary["verdict"]
    label = "predicted" if summary.get("world") == "predicted" else "measured"
    line = Text(f"verdict ({label}): ").append(word, style=VERDICT_STYLE.get(word, "bold"))
    line.append(_first_to_break(summary))
    if predicted is not None:
        word = predicted["verdict"]
        line.append("; predicted: ").append(word, style=VERDICT_STYLE.get(word, "bold"))
        line.append(_first_to_break(predicted))
    busy = summary["totals"].get("busy_share")
    return line if busy is None else line.append(f"; busy {busy:.0%} of the time")


def _first_to_break(figures: Figures) -> str:
    broke = figures.get("broke")
    return f" ({broke['persona']} first, by {broke['limit']})" if broke else ""


def _limit(row: Figures, summary: Figures) -> str:
    simulated = summary.get("world") == "predicted"
    mark = " (predicted)" if row.get("modelled") and not simulated else ""
    return f"  {row['limit']}{mark}: {row['evidence']}"


def _print_limits(summary: Figures, console: Console) -> None:
    """What the model tells of a measured run is marked as that."""
    limits = list(summary.get("limits") or [])
    predicted = summary.get("predicted") or {}
    seen = {row["limit"] for row in limits}
    for row in limits:
        console.print(Text(_limit(row, summary)))
    for row in predicted.get("limits") or []:
        if row["limit"] not in seen:
            console.print(Text(f"  {row['limit']} (predicted): {row['evidence']}"))
