"""Around one prediction: tables, the patience budget, what would move it, many rows of a file."""

from __future__ import annotations

import csv
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from headroom_bench.catalog import quants
from headroom_bench.errors import UserError
from headroom_bench.experiments.predict import (
    MOST,
    Question,
    first_token_s,
    predict,
    pricer_of,
)
from headroom_bench.paths import typed_path
from headroom_bench.roofline.calibration import Calibration
from headroom_bench.roofline.links import LAYER_SPLIT
from headroom_bench.target import draft_of
from headroom_bench.units import parse_size, parse_whole

CONTEXTS = (512, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
USERS = (1, 2, 4, 8, 9, 16, 32, 64)
_LEAST_GAIN = 1.02
"""A change that brings less is no lever."""


def table_by(
    question: Question, axis: str, values: Sequence[int] | None = None
) -> list[dict[str, Any]]:
    """Predictions over `context` or `users`, one row each, as far as the model goes.

    Raises `UserError` for another axis.
    """
    if axis == "users":
        asked = [dataclasses.replace(question, users=n, slots=None) for n in values or USERS]
    elif axis == "context":
        limit = pricer_of(question).deployment.model.max_context or CONTEXTS[-1]
        points = values or [n for n in CONTEXTS if n <= limit]
        asked = [dataclasses.replace(question, context=n, prompt=n) for n in points]
    else:
        raise UserError(f"a table goes by context or users, not by {axis!r}")
    return [_row(predict(each)) for each in asked]


def _row(document: dict[str, Any]) -> dict[str, Any]:
    """The figures of a prediction that a table shows."""
    decode, prefill = document["decode"], document["prefill"]
    return {
        "prompt_tokens": prefill["prompt_tokens"],
        "context_tokens": decode["context_tokens"],
        "users": decode["users"],
        "fits": document["fit"]["fits"],
        "total_gb": document["fit"]["total_gb"],
        "prefill_tok_s": prefill["tok_s"],
        "prefill_bound": prefill["bound"],
        "ttft_s": document["ttft_s"],
        "decode_tok_s_per_user": decode["tok_s_per_user"],
        "decode_tok_s_total": decode["tok_s_total"],
        "decode_bound": decode["bound"],
        "low": document["low"],
        "high": document["high"],
        "confidence": document["confidence"],
    }


def patience(question: Question, seconds: float) -> dict[str, Any]:
    """The largest prompt whose first token arrives within so many seconds, as `ttft_s` of a
    prediction is defined: with several users, while all others decode.

    At most what the model's context and the memory allow a slot. Raises `UserError`.
    """
    roofline = pricer_of(question)
    most = predict(question)["fit"]["max_context_tokens"]
    low, high = 0, max(most, 0)
    while low < high:
        middle = (low + high + 1) // 2
        if first_token_s(question, roofline, middle) <= seconds:
            low = middle
        else:
            high = middle - 1
    return {
        "seconds": seconds,
        "prompt_tokens": low,
        "ttft_s": first_token_s(question, roofline, low) if low else None,
        "limited_by": "memory or context" if low == most else "time",
    }


def levers(question: Question, document: dict[str, Any]) -> list[dict[str, Any]]:
    """What would move a prediction, each change alone, most telling first.

    `gain` is the rate after the change over the rate before; changes below 2 % are left out.
    """
    decode_before = document["decode"]["tok_s_per_user"]
    prefill_before = document["prefill"]["tok_s"]
    found = []
    for change, changed in _changes(question):
        try:
            after = changed()
        except UserError:  # this change cannot be had here: no link, no such cache type
            continue
        for what, before, rate in (
            ("decode", decode_before, after["decode"]["tok_s_per_user"]),
            ("prefill", prefill_before, after["prefill"]["tok_s"]),
        ):
            if rate / before >= _LEAST_GAIN:
                gain = {"what": what, "change": change, "tok_s": rate, "gain": rate / before}
                found.append(gain)
    return sorted(found, key=lambda lever: (lever["what"], -lever["gain"]))


def _changes(question: Question) -> Iterable[tuple[str, Callable[[], dict[str, Any]]]]:
    """(name, prediction after it) of changes that a user could make."""

    def with_values(**values: Any) -> Callable[[], dict[str, Any]]:
        return lambda: predict(dataclasses.replace(question, **values))

    deployment = pricer_of(question).deployment
    if smaller := _next_smaller(question):
        yield f"quantization {smaller}", with_values(quant=smaller)
    if question.kv_k == "f16":
        yield "KV cache in q8_0", with_values(kv_k="q8_0", kv_v="q8_0")
    prompt, context = question.lengths
    if context >= 2:
        yield f"context {context // 2:,}", with_values(context=context // 2, prompt=prompt)
    if deployment.ubatch < 2048 and deployment.runtime.id in LAYER_SPLIT:
        yield "ubatch 2048", with_values(ubatch=2048)
    if not question.draft and deployment.model.native_speculative:
        yield "drafting 3 tokens (MTP)", with_values(draft="mtp", draft_tokens=3)
    if question.boxes == 1 and deployment.runtime.id not in LAYER_SPLIT:
        yield "a second box, tensor parallel", with_values(boxes=2)
    if question.users > 1:
        yield f"{question.users // 2} users", with_values(users=question.users // 2, slots=None)


def _next_smaller(question: Question) -> str | None:
    """The largest format of the same kind of file that has at most 80 % of the bits."""
    deployment = pricer_of(question).deployment
    if deployment.model.stored or deployment.model.native_quant:
        return None  # a file, or a model published in few bits already
    bits = deployment.quant.bits_per_weight
    fits = [
        quant
        for quant in quants()
        if quant.format == deployment.quant.format
        and quant.bits_per_weight <= 0.8 * bits
        and not quant.estimated
        and quant.kind != "ternary"
    ]
    return max(fits, key=lambda quant: quant.bits_per_weight).name if fits else None


_TEXT = ("hardware", "model", "quant", "runtime", "backend", "build", "kv_k", "kv_v", "link")
_SIZES = ("prompt", "context")
_COUNTS = ("users", "slots", "ubatch", "boxes")
_FLAGS = ("swa_full", "kv_unified", "identical")
COLUMNS = (
    *_TEXT, *_SIZES, *_COUNTS, *_FLAGS, "kv_type", "draft", "acceptance_rate", "calibration",
)  # fmt: skip
"""Of a grid file, named like the flags."""


def predict_file(
    path: Path, defaults: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """The rows of a CSV file, each with its prediction, in the file's order.

    `defaults`, by column, stand for empty cells and columns that are not there. A row that cannot
    be answered has `error` instead. Raises `UserError` where the file itself cannot be read, or has
    a column that no flag is named like.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = [_column(name) for name in reader.fieldnames or ()]
            wrong = _wrong_columns(names, defaults)
            if wrong is not None:
                raise UserError(f"{path}, line 1: {wrong}; columns are {', '.join(COLUMNS)}")
            rows = []
            for row in reader:
                if None in row:
                    raise UserError(f"{path}, line {reader.line_num}: more cells than columns")
                rows.append({_column(name): (cell or "").strip() for name, cell in row.items()})
    except OSError as why:
        raise UserError(f"{path}: cannot be read: {why.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as why:
        raise UserError(f"{path}: cannot be read as CSV: {why}") from None
    return [(row, _answer({**defaults, **_filled(row)})) for row in rows]


def _column(name: str) -> str:
    """`kv-type`, as the flag is written, for `kv_type`."""
    return name.strip().replace("-", "_")


def _wrong_columns(names: Sequence[str], defaults: Mapping[str, str]) -> str | None:
    for name in names:
        if name not in COLUMNS:
            return f"unknown column {name!r}"
        if names.count(name) > 1:
            return f"column {name!r} stands there twice"
    return None if {"hardware", "model"} <= {*names, *defaults} else "no hardware or no model"


def _filled(row: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if value}


def _answer(row: Mapping[str, str]) -> dict[str, Any]:
    try:
        return predict(question_of(row))
    except UserError as why:
        return {"error": str(why)}


def question_of(row: Mapping[str, str]) -> Question:
    """A question from words, empty ones meaning the default. Raises `UserError`."""
    given = _filled(row)
    values: dict[str, Any] = {name: given[name] for name in _TEXT if name in given}
    values |= {name: parse_size(given[name], name) for name in _SIZES if name in given}
    values |= {name: _count(given[name], name) for name in _COUNTS if name in given}
    values |= {name: _flag(given[name], name) for name in _FLAGS if name in given}
    if "kv_type" in given:
        values = {"kv_k": given["kv_type"], "kv_v": given["kv_type"]} | values
    if "draft" in given:
        from headroom_bench.designs import DRAFTED_TOKENS  # most predictions draft nothing

        values["draft"], drafted = draft_of(given["draft"])
        values["draft_tokens"] = drafted or DRAFTED_TOKENS
    if "acceptance_rate" in given:
        values["acceptance_rate"] = _share(given["acceptance_rate"])
    if "calibration" in given:
        values["calibration"] = _calibration(given["calibration"])
    for name in ("hardware", "model"):
        if name not in values:
            raise UserError(f"{name} is missing")
    return Question(**values)


@functools.cache
def _calibration(path: str) -> Calibration:
    """Read once, though many rows of a file name it. Raises `UserError`."""
    from headroom_bench.experiments.predict_calibration import read_calibration

    return read_calibration(typed_path(path))


def _count(text: str, name: str) -> int:
    return parse_whole(text, name, MOST[name])


def _flag(text: str, name: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in words:
        raise UserError(f"{name} {text!r} is neither true nor false")
    return words[text.lower()]


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"acceptance_rate {text!r} is not a number between 0 and 1") from None
