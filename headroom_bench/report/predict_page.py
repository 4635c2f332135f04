"""A prediction for a reader: what fits, how fast, what bounds it, how sure it is."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headroom_bench.units import counted, in_words

_BOUNDS = {
    "bandwidth": "memory bandwidth",
    "compute": "compute",
    "host memory": "host memory",
    "overhead": "launches and other fixed time",
}
_RESULTS = (
    "fits", "total_gb", "prompt_tokens", "prefill_tok_s", "prefill_low_tok_s", "prefill_high_tok_s",
    "prefill_confidence", "ttft_s", "context_tokens", "decode_users", "decode_tok_s_per_user",
    "decode_tok_s_total", "low", "high", "decode_bound", "confidence", "published_id",
    "published_tok_s", "error",
)  # fmt: skip
"""Columns of a grid's CSV after those of its rows; `low`, `high` and `confidence` are those of
`decode_tok_s_per_user`, as in `--json`, and others read them by these names."""
_MOST_LEVERS = 4
_LABELS = {
    "MEASURED": "constants of your own measurements of this model on this box",
    "COMMUNITY": "others measured this case; their row stands beside the prediction",
    "INTERPOLATED": "this kind of box was measured, with other models or settings",
    "ESTIMATED": "no measurement of this kind of box and use; taken from data sheets",
}


def print_prediction(document: dict[str, Any], console: Console) -> None:
    """The whole page; a second column where there is something to compare with."""
    other = document.get("vs")
    sides = [document, other] if other else [document]
    console.print(_figures(sides))
    for side in sides:
        for note in side["notes"]:
            name = f"{side['hardware']}: " if other else ""
            console.print(f"note: {escape(name + note)}")
    if document["levers"]:
        console.print()
        console.print(_levers(document))
    for side in sides:
        if "table" in side:
            console.print()
            console.print(_table(side, document["by"]))
    console.print()
    labels = [
        label for side in sides for label in (side["confidence"], side["prefill"]["confidence"])
    ]
    for label in dict.fromkeys(labels):
        console.print(f"{label}: {_LABELS[label]}.")
    console.print("Ranges should hold 85 % of measurements.")


def _figures(sides: Sequence[dict[str, Any]]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    for _ in sides:
        table.add_column(overflow="fold")
    for name, cells in (
        ("box", [f"{s['hardware']}, {s['runtime']}, {s['backend']}" for s in sides]),
        ("model", [f"{s['model']}, {s['quant']}" for s in sides]),
        ("memory", [_memory(s["fit"]) for s in sides]),
        ("room", [_room(s["fit"]) for s in sides]),
        ("prefill", [_prefill(s["prefill"]) for s in sides]),
        ("first token", [_first_token(s) for s in sides]),
        ("decode", [_decode(s) for s in sides]),
        ("one pass", [_pass(s) for s in sides]),
        ("bandwidth", [_bandwidth(s["bandwidth"]) for s in sides]),
        ("simple view", [_simple(s["simple_view"]) for s in sides]),
        ("published", [_published(s["decode"]["published"]) for s in sides]),
        ("prompts", [_published(s["prefill"]["published"]) for s in sides]),
    ):  # fmt: skip
        if any(cells):
            table.add_row(f"[bold]{name}[/bold]", *(escape(cell) for cell in cells))
    if "patience" in sides[0]:
        table.add_row("[bold]patience[/bold]", *map(_patience, sides))
    return table


def _memory(fit: dict[str, Any]) -> str:
    verdict = "fits" if fit["fits"] else "does NOT fit"
    return (
        f"{verdict}: {fit['total_gb']:.1f} of {fit['usable_gb']:.1f} GB "
        f"(weights {fit['weights_gb']:.1f}, KV {fit['kv_gb']:.2f}, other {fit['overhead_gb']:.1f})"
    )


def _room(fit: dict[str, Any]) -> str:
    users = counted(fit["max_users"], "user")
    return f"{fit['max_context_tokens']:,} tokens a slot, or {users} at this"


def _prefill(prefill: dict[str, Any]) -> str:
    return (
        f"{_rate(prefill['tok_s'])} tok/s ({_rate(prefill['low'])} to {_rate(prefill['high'])}, "
        f"{prefill['confidence']}), {prefill['prompt_tokens']:,} tokens from the start, "
        f"bound by {_BOUNDS[prefill['bound']]}"
    )


def _first_token(side: dict[str, Any]) -> str:
    return f"{_seconds(side['ttft_s'])} for {side['prefill']['prompt_tokens']:,} tokens"


def _decode(side: dict[str, Any]) -> str:
    decode = side["decode"]
    total = f", {_rate(decode['tok_s_total'])} in total" if decode["users"] > 1 else ""
    users = f"{decode['users']} users" if decode["users"] > 1 else "one user"
    return (
        f"{_rate(decode['tok_s_per_user'])} tok/s ({_rate(side['low'])} to {_rate(side['high'])}, "
        f"{side['confidence']}){total}, {users} at {decode['context_tokens']:,} tokens, "
        f"bound by {_BOUNDS[decode['bound']]}"
    )


def _pass(side: dict[str, Any]) -> str:
    decode = side["decode"]
    tokens = decode["tokens_per_pass"]
    drafted = f", {tokens:.2f} tokens a user" if tokens != 1 else ""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in decode["shares"].items() if share)
    return (
        f"{decode['iteration_ms']:.2f} ms, {decode['bytes_per_pass'] / 1e9:.2f} GB, "
        f"{decode['flops_per_pass'] / 1e9:.0f} GFLOP{drafted} ({shares})"
    )


def _bandwidth(bandwidth: dict[str, Any]) -> str:
    share = bandwidth["achieved_gb_s"] / bandwidth["spec_gb_s"]
    return (
        f"{bandwidth['achieved_gb_s']:.0f} of {bandwidth['spec_gb_s']:.0f} GB/s ({share:.0%}) "
        "while decoding"
    )


def _simple(view: dict[str, Any]) -> str:
    """What the Methodology page's closed form says, with its own constants."""
    return (
        f"{_rate(view['decode_tok_s'])} tok/s for one user, prompts "
        f"{_rate(view['prefill_tok_s'])} tok/s (Methodology page, {view['status']} constants)"
    )


def _published(found: dict[str, Any] | None) -> str:
    """A row that others measured of this very case, and how far the prediction lies from it."""
    if found is None:
        return ""
    reading = found["prompt_tokens"]
    what = f"reading {reading:,} tokens" if reading else counted(found["users"], "user")
    how = ", ".join(filter(None, (found["driver"], found["build"], found["date"])))
    several = (
        f"; {found['rows']} rows from {_rate(found['low'])} to {_rate(found['high'])}"
        if found["rows"] > 1
        else ""
    )
    return (
        f"{_rate(found['tok_s'])} tok/s, {what} at {found['depth_tokens']:,} tokens "
        f"({found['id']}: {how}); the model gives {_rate(found['predicted_tok_s'])} there, "
        f"{found['deviation']:+.0%}{several}"
    )


def _patience(side: dict[str, Any]) -> str:
    patience, decode = side["patience"], side["decode"]
    why = "" if patience["limited_by"] == "time" else ", all that it holds"
    others = decode["users"] - 1
    meanwhile = f" while {others} decode at {decode['context_tokens']:,}" if others else ""
    return (
        f"{patience['prompt_tokens']:,} tokens answered within {in_words(patience['seconds'])}"
        f"{meanwhile}{why}"
    )


def _levers(document: dict[str, Any]) -> Table:
    """Changes, with the rates after them; the first column tells of which rate and length."""
    levers, decode = document["levers"], document["decode"]
    each = " each" if decode["users"] > 1 else ""
    of_what = {
        "decode": f"decode{each} at {decode['context_tokens']:,} tokens",
        "prefill": f"prefill of {document['prefill']['prompt_tokens']:,} tokens",
    }
    table = Table(box=None, pad_edge=False, title="what would move it", title_justify="left")
    for name in ("", "change", "tok/s", "gain"):
        table.add_column(name, justify="right" if name in ("tok/s", "gain") else "left")
    for what, told in of_what.items():
        for lever in [each for each in levers if each["what"] == what][:_MOST_LEVERS]:
            rate, gain = _rate(lever["tok_s"]), f"x{lever['gain']:.2f}"
            table.add_row(told, escape(lever["change"]), rate, gain)
    return table


def _table(side: dict[str, Any], by: str) -> Table:
    title = escape(f"{side['hardware']}, by {by}: {_held_fixed(side['table'][0], by)}")
    table = Table(box=None, pad_edge=False, title=title, title_justify="left")
    first = "tokens" if by == "context" else "users"
    for name in (
        first, "memory GB", "prefill tok/s", "first token", "decode tok/s each", "range each",
        "tok/s in all",
    ):  # fmt: skip
        table.add_column(name, justify="right")
    table.add_column("bound by")
    table.add_column("label")
    for row in side["table"]:
        table.add_row(
            f"{row['context_tokens' if by == 'context' else 'users']:,}",
            f"{row['total_gb']:.1f}" + ("" if row["fits"] else " !"),
            _rate(row["prefill_tok_s"]),
            _seconds(row["ttft_s"]),
            _rate(row["decode_tok_s_per_user"]),
            f"{_rate(row['low'])}-{_rate(row['high'])}",
            _rate(row["decode_tok_s_total"]),
            row["decode_bound"],
            row["confidence"],
        )
    return table


def _held_fixed(row: dict[str, Any], by: str) -> str:
    """What all rows of a table have in common."""
    if by == "users":
        prompt, context = row["prompt_tokens"], row["context_tokens"]
        return f"prompts of {prompt:,} tokens, decoding at {context:,} each"
    several = f"{row['users']} users" if row["users"] > 1 else "one user"
    return f"prompt and context of so many tokens, {several}"


def grid_csv(answers: Sequence[tuple[dict[str, str], dict[str, Any]]]) -> str:
    """Rows of a grid with their results, as CSV."""
    names = list(answers[0][0]) if answers else []
    out = io.StringIO()
    writer = csv.DictWriter(out, [*names, *_RESULTS], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for asked, document in answers:
        writer.writerow({**asked, **_result(document)})
    return out.getvalue()


def _result(document: dict[str, Any]) -> dict[str, Any]:
    if "error" in document:
        return {"error": document["error"]}
    decode, prefill = document["decode"], document["prefill"]
    published = decode["published"]
    return {
        "fits": str(document["fit"]["fits"]).lower(),
        "total_gb": f"{document['fit']['total_gb']:.3f}",
        "prompt_tokens": prefill["prompt_tokens"],
        "prefill_tok_s": f"{prefill['tok_s']:.2f}",
        "prefill_low_tok_s": f"{prefill['low']:.2f}",
        "prefill_high_tok_s": f"{prefill['high']:.2f}",
        "prefill_confidence": prefill["confidence"],
        "ttft_s": f"{document['ttft_s']:.4f}",
        "context_tokens": decode["context_tokens"],
        "decode_users": decode["users"],
        "decode_tok_s_per_user": f"{decode['tok_s_per_user']:.3f}",
        "decode_tok_s_total": f"{decode['tok_s_total']:.3f}",
        "low": f"{document['low']:.3f}",
        "high": f"{document['high']:.3f}",
        "decode_bound": decode["bound"],
        "confidence": document["confidence"],
        "published_id": published["id"] if published else "",
        "published_tok_s": f"{published['tok_s']:.3f}" if published else "",
    }


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"
