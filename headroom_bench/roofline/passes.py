"""Prices the passes of one deployment: the `Pricer` that drives the virtual box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headroom_bench.roofline.deployment import Deployment, coefficients
from headroom_bench.roofline.iteration import decode_seconds, pass_seconds, token_table
from headroom_bench.roofline.kv import causal_pairs, windowed_pairs
from headroom_bench.roofline.pricer import Batch, Chunk

_FIRST_ROWS = 64


@dataclass(frozen=True, slots=True)
class PassCost:
    """Where a pass's time goes."""

    t_weights_s: float
    t_kv_s: float
    """KV cache and recurrent state."""
    t_compute_s: float
    t_overhead_s: float
    """Fixed overhead, kernel launches, sorting tokens by expert."""
    total_s: float
    """At most the sum of the four: some of it overlaps, by runtime."""
    weight_bytes: float
    kv_bytes: float
    flops: float
    """Useful ones: what half-empty tiles waste is only in `t_compute_s`."""
    bound: str
    """bandwidth, compute or overhead: the largest; "idle" for an empty pass."""

    @property
    def bytes_read(self) -> float:
        """Weights, cache and state."""
        return self.weight_bytes + self.kv_bytes


@dataclass(frozen=True, slots=True)
class _Piece:
    """One run over the weights. Times in seconds."""

    weights_s: float
    kv_s: float
    compute_s: float
    waste_s: float
    """Half-empty tiles of experts that read a prompt."""
    fixed_s: float


class Roofline:
    """The iteration rule of one deployment. Implements `Pricer`."""

    def __init__(self, deployment: Deployment) -> None:
        """Raises `UserError` for a model whose shape is only partly published."""
        self.deployment = deployment
        self.coefficients = coefficients(deployment)
        self._window = deployment.kv().window_tokens
        self._rows: list[tuple[float, float, float, float]] = []
        self._row(_FIRST_ROWS)

    @property
    def window(self) -> int | None:
        """The sliding window's tokens, where the model has one that is not kept in full."""
        return self._window

    def pass_s(self, batch: Batch) -> float:
        """Seconds of one pass; 0 for an empty one."""
        if batch.chunks:
            return sum(self._piece_s(piece) for piece in self._pieces(batch))
        n = batch.decodes
        if n == 0:
            return 0.0
        row = self._rows[n] if n < len(self._rows) else self._row(n)
        return decode_seconds(self.coefficients, row, batch.kv_tokens, batch.window_tokens)

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        """Seconds of the next `k` passes of a decode-only batch whose contexts grow, shape (k,).

        Raises `ValueError` for a batch with chunks: its next pass is another batch.
        """
        if batch.chunks:
            raise ValueError("only decode-only batches repeat")
        if batch.decodes == 0:
            return np.zeros(k)
        grown = np.arange(k, dtype=np.float64)
        kv = batch.kv_tokens + batch.decodes * grown
        inside = batch.window_tokens + batch.windows_growing * grown
        return decode_seconds(self.coefficients, self._row(batch.decodes), kv, inside)

    def breakdown(self, batch: Batch) -> PassCost:
        """The same pass by what takes the time, with bytes and FLOPs."""
        pieces = list(self._pieces(batch))
        weights = sum(piece.weights_s for piece in pieces)
        kv = sum(piece.kv_s for piece in pieces)
        useful = sum(piece.compute_s for piece in pieces)
        compute = useful + sum(piece.waste_s for piece in pieces)
        fixed = sum(piece.fixed_s for piece in pieces)
        shares = {"bandwidth": weights + kv, "compute": compute, "overhead": fixed}
        return PassCost(
            t_weights_s=weights,
            t_kv_s=kv,
            t_compute_s=compute,
            t_overhead_s=fixed,
            total_s=sum(self._piece_s(piece) for piece in pieces),
            weight_bytes=weights * self.deployment.bandwidth_bytes_s(),
            kv_bytes=kv * self.deployment.kv_bandwidth_bytes_s(),
            flops=useful * self.deployment.compute_flops_s(),
            bound=max(shares, key=lambda name: shares[name]) if pieces else "idle",
        )

    def _row(self, tokens: int) -> tuple[float, float, float, float]:
        """The table's row for so many tokens; the table grows by doubling."""
        have = len(self._rows)
        if tokens >= have:
            new = np.arange(have, max(tokens + 1, 2 * have), dtype=np.float64)
            columns = token_table(self.coefficients, new)
            self._rows += zip(*(column.tolist() for column in columns), strict=True)
        return self._rows[tokens]

    def _piece_s(self, piece: _Piece) -> float:
        memory, compute = piece.weights_s + piece.kv_s, piece.compute_s + piece.waste_s
        return pass_seconds(memory, compute, piece.fixed_s, self.coefficients.p)

    def _pieces(self, batch: Batch) -> Iterator[_Piece]:
        """The runs over the weights that a pass takes: decoding tokens ride with the first.

        Each streams the weights again, with the experts that its tokens wake.
        """
        decodes, ends = batch.decodes, len(batch.chunks)
        for parts in _cut(batch.chunks, self.deployment.ubatch, decodes):
            if decodes or parts:
                # The last token of each prompt needs the output matrix, once a pass.
                yield self._piece(batch, decodes, parts, decodes + ends)
            decodes = ends = 0

    def _piece(self, batch: Batch, decodes: int, parts: list[Chunk], outputs: int) -> _Piece:
        c, window = self.coefficients, self._window
        kv = batch.kv_tokens if decodes else 0
        inside = batch.window_tokens if decodes else 0
        pairs, window_pairs = float(kv + decodes), float(inside + decodes)
        for part in parts:
            pairs += causal_pairs(part.tokens, part.context_tokens)
            kv += part.context_tokens + part.tokens
            if window is not None:
                window_pairs += windowed_pairs(part.tokens, part.context_tokens, window)
                inside += min(part.context_tokens, window) + part.tokens
        prompt = sum(part.tokens for part in parts)
        states = c.state_s * (decodes + len(parts))
        _, memory, _, fixed = self._row(decodes + prompt)
        return _Piece(
            weights_s=memory - c.state_s * (decodes + prompt),
            kv_s=c.kv_s * kv + c.window_s * inside + states,
            compute_s=c.body_s * (decodes + prompt)
            + c.head_s * outputs
            + c.pair_s * pairs
            + c.window_pair_s * window_pairs,
            waste_s=c.tile_s * self._row(prompt)[0],
            fixed_s=fixed,
        )


def _cut(chunks: tuple[Chunk, ...], ubatch: int, decodes: int) -> Iterator[list[Chunk]]:
    """Chunks laid end to end and cut every `ubatch` tokens, `decodes` of the first being taken."""
    room, parts = max(ubatch - decodes, 0), list[Chunk]()
    for chunk in chunks:
        done = 0
        while done < chunk.tokens:
            if room == 0:
                yield parts
                room, parts = ubatch, []
            taken = min(room, chunk.tokens - done)
            parts.append(Chunk(taken, chunk.context_tokens + done))
            done, room = done + taken, room - taken
    yield parts
