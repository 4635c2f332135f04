"""Many predictions at once: every model on every box in every format at every context.

The same shapes, rates and equations as for one deployment, with arrays in place of floats. Axes are
always (models, boxes, quantizations, contexts).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headroom_bench.catalog import Hardware, Model, Quant, Runtime
from headroom_bench.roofline.backends import as_used, backend_of
from headroom_bench.roofline.coefficients import Rates, Shape, combine, rates_of, shape_of
from headroom_bench.roofline.constants import constants_for
from headroom_bench.roofline.deployment import PASS_TOKENS, as_served, default_ubatch
from headroom_bench.roofline.iteration import (
    Array,
    Coefficients,
    decode_seconds,
    decode_table,
    multiplied_tokens,
    pass_seconds,
    token_table,
)
from headroom_bench.roofline.kernels import weight_class
from headroom_bench.roofline.kv import KvBytes, kv_bytes
from headroom_bench.roofline.links import ONE_BOX
from headroom_bench.roofline.memory import OVERHEAD_GB, usable_gb
from headroom_bench.roofline.offload import HostShare, has_second_tier, host_byte_s, spilled
from headroom_bench.roofline.weights import weight_bytes

_NO_WINDOW = float(1 << 40)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(3)


@dataclass(frozen=True, slots=True)
class Grid:
    """Shape (models, boxes, quantizations, contexts) each. Rates are tokens a second."""

    decode_tok_s: Array
    """Of one user, at the context."""
    prefill_tok_s: Array
    """Of a prompt as long as the context."""
    total_gb: Array
    fits: NDArray[np.bool_]


def price_grid(
    models: Sequence[Model],
    boxes: Sequence[Hardware],
    quants: Sequence[Quant],
    contexts: Sequence[int],
    runtime: Runtime,
    users: int = 1,
) -> Grid:
    """Decode, prefill and fit of all combinations, `users` decoding at once, f16 caches.

    What does not fit is priced with the rest in host memory where the runtime does that. Raises
    `UserError` for a model of unknown shape, and a box that the runtime does not run on.
    """
    kvs = [kv_bytes(model, "f16", "f16") for model in models]
    quants = [as_served(quant, runtime) for quant in quants]
    shape, always, routed, total = _shapes(models, quants, kvs)
    rates = _rates(boxes, quants, runtime)
    ubatch = _on_boxes([float(default_ubatch(runtime, box)) for box in boxes])
    context = np.asarray(contexts, dtype=np.float64)
    window = _on_models([float(kv.window_tokens or _NO_WINDOW) for kv in kvs])
    cache = users * _sequence_bytes(kvs, context, ubatch)
    need = total + cache + OVERHEAD_GB * 1e9
    held = total / 1e9 + OVERHEAD_GB
    usable = np.concatenate([usable_gb(box, runtime, held) * 1e9 for box in boxes], axis=1)
    tiers = _on_boxes([float(has_second_tier(box, runtime.id)) for box in boxes])
    parts = spilled((need - usable) * tiers, routed, always)
    host = HostShare(*parts, _on_boxes([host_byte_s(box) for box in boxes]))
    priced = combine(shape, rates, ONE_BOX, host)
    inside = np.minimum(context, window)
    row = decode_table(priced, float(users))
    seconds = decode_seconds(priced, row, users * context, users * inside)
    return Grid(
        decode_tok_s=1 / seconds,
        prefill_tok_s=context / prompt_seconds(priced, context, ubatch, window),
        total_gb=np.broadcast_to(need / 1e9, seconds.shape),
        fits=np.broadcast_to(need <= usable, seconds.shape),
    )


def prompt_seconds(c: Coefficients, prompt: Any, ubatch: Any, window: Any) -> Any:
    """Reading lone prompts of so many tokens from the start, in pieces of `ubatch`.

    Exact where the terms add (p = 1): three Gauss nodes, which stand for the depths of the pieces,
    are exact for sums. Else they are near.
    """
    whole = np.floor(prompt / ubatch)
    rest = prompt - whole * ubatch
    before = whole * ubatch
    inside = _windowed(before, window)
    # Each pass of a prompt needs the output matrix once.
    passes = np.ceil(prompt / np.maximum(PASS_TOKENS, ubatch))
    seconds = c.head_s * multiplied_tokens(c, 1.0) * passes
    seconds = seconds + _pieces(c, whole, np.minimum(ubatch, prompt), 0.0 * whole, inside, window)
    left = _windowed(prompt, window) - inside
    return seconds + _pieces(c, 1.0 * (rest > 0), np.maximum(rest, 1.0), before, left, window)


def _pieces(c: Coefficients, count: Any, tokens: Any, start: Any, pairs: Any, window: Any) -> Any:
    """`count` pieces of so many tokens from `start` on; `pairs` in windows over all of them."""
    woken, weights, busy, fixed = token_table(c, tokens)
    n = np.maximum(count, 1.0)
    below = np.minimum(n, np.ceil(np.maximum(window - start, 0.0) / tokens))
    read = (start + tokens * (below - 1) / 2) * below + (n - below) * window
    memory = weights + c.state_s + c.window_s * (read / n + tokens)
    compute = busy * c.body_s + c.scan_s * tokens + c.tile_s * woken * (busy > 0)
    compute = compute + c.window_pair_s * pairs / n
    span = tokens * (n - 1.0)

    def at(depth: Any) -> Any:
        seen = tokens * depth + tokens * (tokens + 1) / 2
        return pass_seconds(
            memory + c.kv_s * (depth + tokens), compute + c.pair_s * seen, fixed, c.prompt_p
        )

    if np.all(np.asarray(c.prompt_p) == 1.0):
        return count * at(start + span / 2)
    nodes = zip(_NODES, _WEIGHTS, strict=True)
    return count * sum(w / 2 * at(start + span * (x + 1) / 2) for x, w in nodes)


def _windowed(tokens: Any, window: Any) -> Any:
    growing = np.minimum(tokens, window)
    return growing * (growing + 1) / 2 + (tokens - growing) * window


def _sequence_bytes(kvs: list[KvBytes], context: Array, ubatch: Array) -> Array:
    """As `memory.sequence_bytes`, for all at once."""
    inside = np.minimum(context, _on_models([float(kv.window_tokens or 0) for kv in kvs]) + ubatch)
    full, window = _on_models([kv.full for kv in kvs]), _on_models([kv.window for kv in kvs])
    grown: Array = full * context + window * inside + _on_models([kv.state for kv in kvs])
    return grown


def _shapes(
    models: Sequence[Model], quants: Sequence[Quant], kvs: list[KvBytes]
) -> tuple[Shape, Array, Array, Array]:
    """All shapes as one, and bytes: always read, routed, in all."""
    weights = [[weight_bytes(model, quant) for quant in quants] for model in models]
    shapes = [
        [shape_of(model, w, kv, "f16", "f16") for w in row]
        for model, kv, row in zip(models, kvs, weights, strict=True)
    ]
    stacked = {
        field.name: _table([[getattr(shape, field.name) for shape in row] for row in shapes])
        for field in dataclasses.fields(Shape)
    }
    return (
        Shape(**stacked),
        _table([[w.always_read for w in row] for row in weights]),
        _table([[w.routed for w in row] for row in weights]),
        _table([[w.total for w in row] for row in weights]),
    )


def _rates(boxes: Sequence[Hardware], quants: Sequence[Quant], runtime: Runtime) -> Rates:
    backends = [backend_of(box, runtime, None) for box in boxes]
    boxes = [as_used(box, backend) for box, backend in zip(boxes, backends, strict=True)]
    fitted = [constants_for(b, runtime.id, e) for b, e in zip(boxes, backends, strict=True)]
    kinds = [weight_class(quant) for quant in quants]
    found = [
        {kind: rates_of(box, known, kind) for kind in set(kinds)}
        for box, known in zip(boxes, fitted, strict=True)
    ]
    stacked: dict[str, Any] = {
        field.name: np.array(
            [[getattr(row[kind], field.name) for kind in kinds] for row in found]
        ).reshape(1, len(boxes), len(quants), 1)
        for field in dataclasses.fields(Rates)
    }
    return Rates(**(stacked | {"p": found[0][kinds[0]].p}))


def _table(rows: list[list[float]]) -> Array:
    """(models, quantizations) on its axes of the grid."""
    return np.array(rows, dtype=np.float64)[:, None, :, None]


def _on_models(values: list[float]) -> Array:
    return np.array(values)[:, None, None, None]


def _on_boxes(values: list[float]) -> Array:
    return np.array(values)[None, :, None, None]
