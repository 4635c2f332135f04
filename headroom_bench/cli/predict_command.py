"""`headroom-bench predict`: one deployment, or many, in closed form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from headroom_bench.cli import options as flags
from headroom_bench.cli.consoles import page
from headroom_bench.cli.given import refuse
from headroom_bench.errors import UserError


def predict(
    call: typer.Context,
    hardware: flags.Hardware = None,
    model: flags.Model = None,
    quant: flags.Quant = None,
    runtime: flags.Runtime = None,
    backend: flags.Backend = None,
    build: Annotated[
        str | None, typer.Option("--build", help="llama.cpp build (b6989); default the newest.")
    ] = None,
    context: Annotated[
        str | None, typer.Option("--context", help="Tokens cached while decoding (32k).")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", help="Tokens of one prompt; default: the context.")
    ] = None,
    users: Annotated[int, typer.Option("--users", help="Users that decode at once.", min=1)] = 1,
    slots: flags.Slots = None,
    kv_type: Annotated[
        str | None, typer.Option("--kv-type", help="Type of K and V caches (f16, q8_0, fp8).")
    ] = None,
    kv_k: flags.KvK = None,
    kv_v: flags.KvV = None,
    ubatch: flags.Ubatch = None,
    kv_unified: flags.KvUnified = None,
    swa_full: Annotated[
        bool, typer.Option("--swa-full", help="Window layers keep everything.")
    ] = False,
    draft: Annotated[
        str | None,
        typer.Option("--draft", help="Drafter and tokens a pass.", metavar="mtp|MODEL[:N]"),
    ] = None,
    acceptance_rate: Annotated[
        float | None, typer.Option("--acceptance-rate", help="Accepted / drafted tokens.")
    ] = None,
    boxes: Annotated[int, typer.Option("--boxes", help="Boxes that share it.", min=1)] = 1,
    link: Annotated[
        str | None, typer.Option("--link", help="Network between them; default: the box's own.")
    ] = None,
    identical: Annotated[
        bool, typer.Option("--identical", help="All users send one prompt at temperature 0.")
    ] = False,
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", help="Constants of your own measurements.", metavar="FILE"),
    ] = None,
    vs: Annotated[
        str | None,
        typer.Option("--vs", help="Another box, or what else differs.", metavar="NAME|KEY=VALUE,…"),
    ] = None,
    patience: Annotated[
        str | None, typer.Option("--patience", help="The largest prompt answered in time (5s).")
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", help="A table over context or users.", metavar="AXIS")
    ] = None,
    grid: Annotated[
        Path | None,
        typer.Option("--grid", help="One prediction a row of a CSV file.", metavar="FILE"),
    ] = None,
    as_json: flags.Json = False,
) -> int:
    """Predict memory, prefill, first token and decoding of a model on a box; no server needed."""
    words = {
        "hardware": hardware, "model": model, "quant": quant, "runtime": runtime,
        "backend": backend, "build": build, "context": context, "prompt": prompt,
        "users": str(users), "slots": _text(slots), "kv_type": kv_type, "kv_k": kv_k, "kv_v": kv_v,
        "ubatch": _text(ubatch), "draft": draft, "boxes": str(boxes), "link": link,
        "acceptance_rate": _text(acceptance_rate), "swa_full": _text(swa_full),
        "kv_unified": _text(kv_unified), "identical": _text(identical),
        "calibration": calibration,
    }  # fmt: skip
    given = {name: word for name, word in words.items() if word}
    if grid is not None:
        refuse(call, {"vs", "patience", "by"}, "--grid answers its rows alone")
        return _grid(grid, given, as_json)
    missing = [f"--{name}" for name in ("hardware", "model") if name not in given]
    if missing:
        raise UserError(f"predict needs {' and '.join(missing)} (or --grid FILE)")
    document = _document(given, vs, patience, by)
    if as_json:
        typer.echo(json.dumps(document, indent=1))
        return 0
    from headroom_bench.report.predict_page import print_prediction

    print_prediction(document, page())
    return 0


def _document(
    words: dict[str, str], vs: str | None, patience: str | None, by: str | None
) -> dict[str, Any]:
    from headroom_bench.experiments import predict_more as more
    from headroom_bench.experiments.predict import predict as predict_one
    from headroom_bench.units import parse_duration_s

    question = more.question_of(words)
    document = predict_one(question)
    document["levers"] = more.levers(question, document)
    if patience is not None:
        budget_s = parse_duration_s(patience, "--patience")
        document["patience"] = more.patience(question, budget_s)
    if by is not None:
        document["by"], document["table"] = by, more.table_by(question, by)
    if vs is not None:
        other = more.question_of(words | _differences(vs))
        document["vs"] = predict_one(other)
        if patience is not None:
            document["vs"]["patience"] = more.patience(other, budget_s)
        if by is not None:
            document["vs"]["table"] = more.table_by(other, by)
    return document


def _differences(vs: str) -> dict[str, str]:
    """As words of a question; a new box takes its own backend."""
    from headroom_bench.experiments.differences import differences
    from headroom_bench.experiments.predict_more import COLUMNS

    found = differences(vs, COLUMNS)
    return ({"backend": ""} if {"hardware", "runtime"} & set(found) else {}) | found


def _grid(path: Path, defaults: dict[str, str], as_json: bool) -> int:
    from headroom_bench.experiments.predict_more import predict_file

    answers = predict_file(path, defaults)
    if as_json:
        typer.echo(json.dumps([document for _, document in answers], indent=1))
        return 0
    from headroom_bench.report.predict_page import grid_csv

    typer.echo(grid_csv(answers), nl=False)
    return 0


def _text(value: float | bool | None) -> str | None:
    """A flag's value as the word that a file's row would hold."""
    if isinstance(value, bool):
        return "true" if value else None
    return None if value is None else str(value)
