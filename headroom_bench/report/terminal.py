"""The summary as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

_VERDICT_STYLE = {
    "failing": "bold red",
    "tight": "bold yellow",
    "right-sized": "bold green",
    "overkill": "bold cyan",
}


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """Prints measured beside predicted, the verdict, limits and warnings."""
    predicted = summary.get("predicted")
    console.print(_persona_table(summary, predicted))
    _print_totals(summary, console)
    console.print(_verdict_line("measured", summary) if predicted is None else _both(summary))
    for limit in summary.get("limits") or []:
        console.print(f"  {limit['limit']}: {limit['evidence']}", highlight=False)
    kinds = summary.get("error_kinds") or {}
    if kinds:
        told = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        console.print(Text(f"failed requests: {told}", style="red"))
    for warning in summary.get("warnings") or []:
        console.print(Text(f"warning: {warning}", style="yellow"))


def _persona_table(summary: Mapping[str, Any], predicted: Mapping[str, Any] | None) -> Table:
    table = Table(title=_title(summary), title_justify="left", header_style="bold")
    table.add_column("persona")
    table.add_column("users", justify="right")
    table.add_column("requests", justify="right")
    table.add_column("prompt tok\n(cached) p50", justify="right")
    table.add_column("TTFT s\np50 / p95", justify="right")
    table.add_column("decode tok/s\np50 @ context", justify="right")
    table.add_column("E2E s\np50 / p95", justify="right")
    table.add_column("turns met", justify="right")
    table.add_column("verdict")
    for name, ours in summary["by_persona"].items():
        table.add_row(name, str(ours["users"]), _requests(ours), *_figures(ours))
        theirs = predicted["by_persona"].get(name) if predicted else None
        if theirs:
            cells = ["  predicted", "", str(theirs["requests"]), *_figures(theirs)]
            table.add_row(*cells, style="dim", end_section=True)
    return table


def _title(summary: Mapping[str, Any]) -> str:
    crowd = summary.get("crowd")
    return f"{summary['target']}" + (f", crowd {crowd}" if crowd else "")


def _requests(figures: Mapping[str, Any]) -> str:
    failed = figures["errors"]
    return f"{figures['requests']} ({failed} failed)" if failed else str(figures["requests"])


def _figures(figures: Mapping[str, Any]) -> list[str]:
    share = figures["target_met_share"]
    context = figures["prompt_tokens"]["p50"]
    decode = _number(figures["decode_tok_s"]["p50"])
    return [
        f"{_whole(context)} ({_whole(figures['cached_tokens']['p50'])})",
        _pair(figures["ttft_s"]),
        f"{decode} @ {_whole(context)}" if context is not None else decode,
        _pair(figures["e2e_s"]),
        "–" if share is None else f"{share:.0%}",
        figures["verdict"],
    ]


def _pair(metric: Mapping[str, Any]) -> str:
    return f"{_number(metric['p50'])} / {_number(metric['p95'])}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _print_totals(summary: Mapping[str, Any], console: Console) -> None:
    figures, harness = summary["totals"], summary["harness"]
    line = (
        f"{summary['requests']} requests in {summary['duration_s']:.1f} s, "
        f"{_number(figures['completion_tok_s'])} generated tok/s, "
        f"{_number(figures['prompt_tok_s'])} prompt tok/s, "
        f"{_number(figures['concurrency_mean'])} in flight on average"
    )
    console.print(line, highlight=False)
    if harness.get("lag_p99_ms") is not None:
        console.print(
            f"client: {harness['lag_p99_ms']:.2f} ms late at p99, "
            f"{harness['cpu_share']:.0%} of a core, carried by {harness['transport']}",
            style="dim",
            highlight=False,
        )


def _verdict_line(label: str, summary: Mapping[str, Any]) -> Text:
    word = summary["verdict"]
    line = Text(f"verdict ({label}): ")
    return line.append(word, style=_VERDICT_STYLE.get(word, "bold"))


def _both(summary: Mapping[str, Any]) -> Text:
    line = _verdict_line("measured", summary)
    line.append("   ")
    line.append_text(_verdict_line("predicted", summary["predicted"]))
    ratio = summary.get("ratio") or {}
    shown = [
        f"{name.replace('_', ' ')} {value:.2f}"
        for name, value in ratio.items()
        if value is not None
    ]
    return line.append(f"\nmeasured / predicted: {', '.join(shown)}") if shown else line
