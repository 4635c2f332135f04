"""A redline for a terminal: who passes, what broke, and the curve of every probe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headroom_bench.report.terminal import VERDICT_STYLE, left_out, where_lived
from headroom_bench.results.statistics import mostly_left_out
from headroom_bench.units import counted, in_words, people, percent

Facts = Mapping[str, Any]

_WANTED = {
    "ttft": "the first token",
    "ttfv": "something to see or hear",
    "e2e": "the whole answer",
}
_SPENT = {
    "queue": "in the queue",
    "prefill": "reading the prompt",
    "reasoning": "hidden reasoning",
    "decode": "writing",
    "network": "on the way",
    "unexplained": "unexplained",
    "device": "in the device itself",
}
"""Phases of a wait, in words."""
_HELP = {
    "queue": "more slots, if memory allows, or a box that answers faster",
    "prefill": "fewer active parameters, a box with more compute, shorter prompts",
    "reasoning": "a model that answers straight away, or one that thinks less",
    "decode": "fewer active parameters or fewer bits a weight, a box with more bandwidth",
    "network": "another link",
}
"""What shortens each."""
_HELP_FAILED = {
    "context_exceeded": "a larger --ctx, or fewer --slots to share it",
    "server_busy": "more slots",
    "abandoned": "a box that answers faster, or more slots",
}
"""What helps whoever gets no answer, by kind of error."""


def print_redline(found: Facts, console: Console) -> None:
    """One redline: the bracket, what broke first, the curve, warnings."""
    console.print(Text(_title(found), style="bold"))
    console.print(_bracket(found))
    if found["mix"]:
        told = ", ".join(f"{count} {name}" for name, count in found["mix"].items())
        console.print(Text(f"the mix at the redline: {told}"))
    if found["broke"]:
        _print_broke(found, console)
    for row in found["limits"]:
        if row["limit"] != (found["broke"] or {}).get("limit"):
            console.print(Text(f"  {row['limit']}: {row['evidence']}"))
    if found["curve"]:
        console.print(_curve(found["curve"]))
    for warning in found["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"))
    console.print(
        Text(
            f"{counted(found['probes'], 'probe')} of {_lengths(found)} "
            f"(the first {in_words(found['warmup_s'])} left out), {found['took_s']:.1f} s",
            style="dim",
        )
    )


_NAMED = ("hardware", "model", "quant", "runtime", "slots")
_SELDOM = ("backend", "kv_k", "kv_v")
"""What rows of a grid are named by: always, and where they differ in it."""


def print_grid(rows: Sequence[Facts], console: Console) -> None:
    """A line for every combination: how many people, what ran out, price, tier."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    named = [*_NAMED, *(name for name in _SELDOM if len({row[name] for row in rows}) > 1)]
    for name in named:
        table.add_column({"hardware": "box"}.get(name, name), overflow="fold")
    for name in ("ctx each", "people", "$ each", "tier~"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("first to run out", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_or_dash(row[name])) for name in named), *map(Text, _grid_cells(row)))
    console.print(table)
    console.print(
        Text(
            "tier~: what the model can be trusted with, 1 to 6, coarse and estimated; "
            "$ each: the box's launch price, a person; ?: some group could not be judged",
            style="dim",
        )
    )


def one_line(row: Facts) -> str:
    """A grid's row as progress."""
    what = f"{row['hardware']}, {row['model']} {row['quant']}, {row['runtime']}"
    if row["error"]:
        return f"{what}: {row['error']}"
    return f"{what}, slots {_or_dash(row['slots'])}: {_served(row)}"


def _title(found: Facts) -> str:
    where = ""
    if found.get("hardware"):
        where = f" ({found['model']} {found['quant']} on {found['hardware']}, {found['runtime']}"
        where += f", {counted(found['slots'], 'slot')})" if found.get("slots") else ")"
    measured = "" if found["world"] == "predicted" else ", measured"
    other = f", with {found['vs']}" if isinstance(found.get("vs"), str) else ""
    return f"redline of crowd {found['crowd']}{where_lived(found)}{where}{other}{measured}"


def _lengths(found: Facts) -> str:
    """How long probes were: longer ones gave whoever seldom asks the turns of a verdict."""
    usual = in_words(found["duration_s"])
    longest_s = max((point["longest_s"] for point in found["curve"]), default=0.0)
    return usual if longest_s <= found["duration_s"] else f"{usual} (up to {in_words(longest_s)})"


def _bracket(found: Facts) -> Text:
    passes, fails = found["redline"]["passes"], found["redline"]["fails"]
    unjudged = [size for size in found["redline"]["unjudged"] if size != fails]
    if passes is None and unjudged:
        told = f"not judged: {people(unjudged[0])}, nobody lost so far, but not all of them seen"
        end = f"; {fails} fail" if fails else ""
        return Text(f"{told} often enough{end}", style="bold yellow")
    if passes is None:
        even = "1 person fails" if fails == 1 else f"{people(fails)}, one of each kind, fail"
        return Text(f"nobody: even {even}", style="bold red")
    line = (
        Text(f"{people(passes)} {'passes' if passes == 1 else 'pass'}", style="bold")
        .append(" (")
        .append(found["verdict"], style=VERDICT_STYLE.get(found["verdict"], ""))
    )
    return line.append("), " + (f"{fails} fail" if fails else "and nobody was seen to fail"))


def _served(row: Facts) -> str:
    return "not judged" if row["people"] is None else people(row["people"])


def _print_broke(found: Facts, console: Console) -> None:
    broke = found["broke"]
    if broke["persona"] is None:
        console.print(Text(f"what ran out: {broke['limit']}: {broke['evidence']}"))
        return
    met = f"{percent(broke['target_met_share'])} of {broke['turns']} turns met"
    limit = broke["limit"] or "what is not known"
    console.print(Text(f"what broke first: {broke['persona']} ({met}), by {limit}"))
    for row in broke["causes"]:
        console.print(Text(f"  {row['limit']}: {row['evidence']}"))
    for group in broke["groups"]:
        console.print(Text(_wanted(group)))
    if found["redline"]["passes"] is not None:
        return
    for group in broke["groups"]:
        console.print(Text(_remedy(group)))
    out = [row["persona"] for row in broke["groups"] if not row.get("passes_alone")]
    if 0 < len(out) < len(found["curve"][0]["by_persona"]):
        without = " ".join(f"--without {name}" for name in out)
        console.print(Text(f"The redline of the others: {without}"))


def _wanted(group: Facts) -> str:
    """What a group wanted, and where its time went."""
    target = group["target"]
    told = f"  {group['persona']} wants {_WANTED[target['metric']]} within {target['limit_s']:g} s"
    if target["min_tok_s"]:
        told += f" at {target['min_tok_s']:g} tokens a second"
    met = percent(group["target_met_share"])
    told += f" in {100 * target['share']:g}% of turns; {met} had it"
    if group["too_slow_share"]:
        told += f" ({group['too_slow_share']:.1%} came in time, but too slowly)"
    if group["wait_s"] is None:
        return f"{told}: none was answered"
    spent = sorted(group["spent_s"].items(), key=lambda item: -item[1])
    parts = [f"{seconds:.2f} {_SPENT[phase]}" for phase, seconds in spent if seconds >= 0.005]
    return f"{told}. A turn took {group['wait_s']:.2f} s on average: {', '.join(parts)}"


def _remedy(group: Facts) -> str:
    """What would help a group that fails where hardly anybody is."""
    name, alone = group["persona"], group.get("passes_alone")
    if alone:
        return f"{name} passes alone on this box: it is those beside it who hold it up."
    told = f"{name} fails even alone on this box. " if alone is False else ""
    return f"{told}What would help {name}: {_helps(group)}."


def _helps(group: Facts) -> str:
    failed = group["failed_share"]
    kind = next(iter(failed), None)
    if kind in _HELP_FAILED and failed[kind] > (1 - group["target_met_share"]) / 2:
        return _HELP_FAILED[kind]
    spent = {phase: group["spent_s"].get(phase, 0.0) for phase in _HELP}
    return _HELP[max(spent, key=lambda name: spent[name])]


def _curve(points: Sequence[Facts]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("people", "worst met", "used p95", "busy", "requests", "seeds"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    table.add_column("worst group")
    for point in points:
        name, worst = _worst(point["by_persona"])
        table.add_row(
            str(point["people"]),
            _met(worst["target_met_share"]),
            _or_dash(worst["used_p95"]),
            _percent(point["busy_share"]),
            _requests(point),
            str(point["trials"]),
            Text(point["verdict"], style=VERDICT_STYLE.get(point["verdict"], "")),
            name,
        )
    return table


def _requests(point: Facts) -> Text:
    """How many, and of how many no figure is, which only a real server's probes have."""
    spoilt = point.get("left_out", 0)
    told = f"{point['requests']:,}" + (left_out(point) if spoilt else "")
    return Text(told, style="bold yellow" if mostly_left_out(spoilt, point["requests"]) else "")


def _worst(groups: Mapping[str, Facts]) -> tuple[str, Facts]:
    known = {n: g for n, g in groups.items() if g["target_met_share"] is not None} or groups
    name = min(
        known,
        key=lambda n: (known[n]["target_met_share"] or 0.0, -(known[n]["used_p95"] or 0.0)),
    )
    return name, known[name]


def _grid_cells(row: Facts) -> list[str]:
    """What a grid found."""
    ctx = "–" if row["ctx_each"] is None else f"{row['ctx_each']:,}"
    if row["error"]:
        return [ctx, "–", "–", "–", row["error"]]
    each = row["usd_per_person"]
    ran_out = f"{row['persona']}: {row['limit']}" if row["persona"] else _or_dash(row["limit"])
    return [
        ctx,
        "?" if row["people"] is None else f"{row['people']}{'' if row['fails_at'] else '+'}",
        "–" if each is None else f"{each:,.0f}",
        _or_dash(row["tier"]),
        ran_out,
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _met(share: float | None) -> str:
    return "–" if share is None else percent(share)


def _or_dash(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
