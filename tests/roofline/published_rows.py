"""Published rows that the tests name, and what the model says of each.

`data/published.csv` holds them as published: row id, box, model, build, users, tokens in the cache
when the timed tokens start (`depth_tokens`), tokens timed, rate in tokens a second.
"""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

from headroom_bench.roofline import Batch, Chunk, Deployment, Roofline

_FILE = Path(__file__).parent / "data" / "published.csv"


@dataclass(frozen=True)
class Row:
    id: str
    hardware: str
    model: str
    quant: str
    backend: str
    build: str | None
    kind: str
    users: int
    prompt_tokens: int
    depth_tokens: int
    generated_tokens: int
    ubatch: int
    kv_type: str
    tok_s: float

    @property
    def series(self) -> str:
        return self.id.rsplit("-", 1)[0]


@functools.cache
def rows() -> dict[str, Row]:
    with _FILE.open(newline="") as file:
        found = [
            Row(
                **{name: line[name] for name in ("id", "hardware", "model", "quant", "backend")},
                build=line["build"] or None,
                kind=line["kind"],
                users=int(line["users"]),
                prompt_tokens=int(line["prompt_tokens"] or 0),
                depth_tokens=int(line["depth_tokens"]),
                generated_tokens=int(line["generated_tokens"]),
                ubatch=int(line["ubatch"]),
                kv_type=line["kv_type"],
                tok_s=float(line["tok_s"]),
            )
            for line in csv.DictReader(file)
        ]
    return {row.id: row for row in found}


@functools.cache
def pricer(
    model: str,
    hardware: str,
    quant: str,
    backend: str | None,
    build: str | None,
    kv_type: str,
    ubatch: int,
) -> Roofline:
    kv_k, _, kv_v = kv_type.partition("/")
    return Deployment.named(
        model=model, hardware=hardware, quant=quant, backend=backend, build=build,
        kv_k=kv_k, kv_v=kv_v or kv_k, ubatch=ubatch,
    ).pricer()  # fmt: skip


def predicted_tok_s(row: Row) -> float:
    """The rate that the model gives for a row, at the mean depth of its timed tokens."""
    priced = pricer(
        row.model, row.hardware, row.quant, row.backend, row.build, row.kv_type, row.ubatch
    )
    if row.kind == "prefill":
        chunk = Chunk(row.prompt_tokens, row.depth_tokens)
        return row.prompt_tokens / priced.pass_s(Batch(0, 0, 0, 0, (chunk,)))
    context = row.depth_tokens + row.generated_tokens / 2
    inside = min(context, priced.window or context)
    batch = Batch(row.users, round(row.users * context), round(row.users * inside), row.users)
    return row.users / priced.pass_s(batch)


def error(row: Row) -> float:
    """Predicted over published, less 1."""
    return predicted_tok_s(row) / row.tok_s - 1
