"""Prices the passes of one deployment: the `Pricer` that drives the virtual box."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headroom_bench.roofline.coefficients import coefficients, host_copy_s
from headroom_bench.roofline.deployment import Deployment
from headroom_bench.roofline.drafting import DraftCost, Drafter, drafter_of
from headroom_bench.roofline.iteration import (
    decode_seconds,
    decode_table,
    pass_seconds,
    token_table,
)
from headroom_bench.roofline.kv import causal_pairs, windowed_pairs
from headroom_bench.roofline.pricer import Batch, Chunk

_FIRST_ROWS = 64

_Row = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class PassCost:
    """Where a pass's time goes, with the drafting before it."""

    t_weights_s: float
    t_kv_s: float
    """KV cache and recurrent state."""
    t_compute_s: float
    t_host_s: float
    """Weights that lie in host memory."""
    t_overhead_s: float
    """Fixed overhead, launches, sorting tokens by expert, links, handing prompts to drafters."""
    total_s: float
    """At most the sum of the five: some of it overlaps, by runtime."""
    weight_bytes: float
    kv_bytes: float
    flops: float
    """Useful ones: what half-empty tiles waste is only in `t_compute_s`."""

    @property
    def seconds(self) -> dict[str, float]:
        """What the time goes into, by what bounds it."""
        return {
            "bandwidth": self.t_weights_s + self.t_kv_s,
            "compute": self.t_compute_s,
            "host memory": self.t_host_s,
            "overhead": self.t_overhead_s,
        }

    @property
    def bound(self) -> str:
        """The largest of `seconds`; "idle" where no weights are read."""
        seconds = self.seconds
        return max(seconds, key=lambda name: seconds[name]) if self.weight_bytes else "idle"

    @property
    def bytes_read(self) -> float:
        """Weights, cache and state."""
        return self.weight_bytes + self.kv_bytes


_NO_DRAFT = DraftCost(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def _drafting_of(batch: Batch) -> tuple[int, float]:
    """Sequences that are drafted for, and their mean context."""
    many = max(batch.decodes, 1)
    return many, batch.kv_tokens / many


@dataclass(frozen=True, slots=True)
class _Piece:
    """One run over the weights. Times in seconds."""

    weights_s: float
    kv_s: float
    compute_s: float
    """All of it."""
    decoding_s: float
    """What of it decoding tokens and the output matrix take."""
    fixed_s: float
    host_s: float
    """What of `fixed_s` reading host memory takes."""
    woken: float
    """Distinct experts a layer."""
    cached: float
    """Cached tokens read, layers that keep everything."""
    inside: float
    """The same, layers that keep a window."""
    states: int
    tokens: int
    outputs: int
    pairs: float
    window_pairs: float


class Roofline:
    """The iteration rule of one deployment. Implements `Pricer`."""

    def __init__(self, deployment: Deployment) -> None:
        """Raises `UserError` for a model whose shape is only partly published."""
        self.deployment = deployment
        self.coefficients = coefficients(deployment)
        self._window = deployment.kv().window_tokens
        self._tokens: list[_Row] = []
        self._decodes: list[tuple[float, float, float]] = []
        self._grow(_FIRST_ROWS)
        self._drafter: Drafter | None = drafter_of(deployment)

    @property
    def window(self) -> int | None:
        """The sliding window's tokens, where the model has one that is not kept in full."""
        return self._window

    def pass_s(self, batch: Batch) -> float:
        """Seconds of one pass; 0 for an empty one."""
        if _decode_only(batch):
            if batch.decodes == 0:
                return 0.0
            row = self._decode_row(batch.decodes)
            seconds: float = decode_seconds(
                self.coefficients, row, batch.kv_tokens, batch.window_tokens
            )
            return seconds
        return sum(self._piece_s(piece) for piece in self._pieces(batch)) + self._beside_s(batch)

    def passes_s(self, batch: Batch, k: int) -> NDArray[np.float64]:
        """The next `k` passes of a decode-only batch; see `Pricer`. Shape (k,).

        Raises ValueError for a batch with prompts or drafts.
        """
        if batch.chunks or batch.verify or batch.draft_passes or batch.moved_tokens:
            raise ValueError("only decode-only batches repeat")
        if batch.decodes == 0:
            return np.zeros(k)
        grown = np.arange(k, dtype=np.float64)
        kv = batch.kv_tokens + batch.decodes * grown
        inside = batch.window_tokens + batch.windows_growing * grown
        if not batch.lockstep:
            row = self._decode_row(batch.decodes)
        else:
            row = self._lockstep_row(batch.decodes, batch.decodes - batch.lockstep)
        seconds: NDArray[np.float64] = decode_seconds(self.coefficients, row, kv, inside)
        return seconds

    def breakdown(self, batch: Batch) -> PassCost:
        """The same pass by what takes the time, with bytes and FLOPs."""
        pieces = list(self._pieces(batch))
        beside, times, draft = self._beside_s(batch), batch.draft_passes, self._drafted(batch)
        weights = sum(piece.weights_s for piece in pieces) + times * draft.weights_s
        kv = sum(piece.kv_s for piece in pieces) + times * draft.kv_s
        compute = sum(piece.compute_s for piece in pieces) + times * draft.compute_s
        host = sum(piece.host_s for piece in pieces)
        drafted = times * (draft.weights_s + draft.kv_s + draft.compute_s)
        fixed = sum(piece.fixed_s for piece in pieces) - host + max(0.0, beside - drafted)
        stored, cache = self.deployment.weights(), self.deployment.kv()
        params = self.deployment.model.params()
        pair, window_pair = self.deployment.model.attention_flops_per_pair()
        expert_bytes = stored.one_expert * stored.moe_layers
        return PassCost(
            t_weights_s=weights,
            t_kv_s=kv,
            t_compute_s=compute,
            t_host_s=host,
            t_overhead_s=fixed,
            total_s=sum(self._piece_s(piece) for piece in pieces) + beside,
            weight_bytes=times * draft.weight_bytes
            + sum(stored.always_read + expert_bytes * p.woken for p in pieces),
            kv_bytes=times * draft.kv_bytes + sum(
                cache.full_read * p.cached + cache.window_read * p.inside
                + 2 * cache.state * p.states
                for p in pieces
            ),
            flops=times * draft.flops + sum(
                2 * (params.body_active * p.tokens + params.output * p.outputs)
                + pair * p.pairs + window_pair * p.window_pairs
                for p in pieces
            ),
        )  # fmt: skip

    def attention_s(self, chunk: Chunk) -> float:
        """Seconds that attention takes of reading a piece of a prompt."""
        c, window = self.coefficients, self._window
        pairs = causal_pairs(chunk.tokens, chunk.context_tokens)
        if window is None:
            return float(c.pair_s * pairs)
        inside = windowed_pairs(chunk.tokens, chunk.context_tokens, window)
        return float(c.pair_s * pairs + c.window_pair_s * inside)

    def _grow(self, tokens: int) -> None:
        """Tables up to so many tokens; they grow by doubling."""
        have = len(self._tokens)
        new = np.arange(have, max(tokens + 1, 2 * have), dtype=np.float64)
        table = token_table(self.coefficients, new)
        self._tokens += _rows(table, len(new))
        self._decodes += _rows(decode_table(self.coefficients, new, table), len(new))

    def _row(self, tokens: int) -> _Row:
        """`token_table`'s row for so many tokens."""
        if tokens >= len(self._tokens):
            self._grow(tokens)
        return self._tokens[tokens]

    def _decode_row(self, sequences: int) -> tuple[float, float, float]:
        if sequences >= len(self._decodes):
            self._grow(sequences)
        return self._decodes[sequences]

    def _lockstep_row(self, sequences: int, routed: int) -> tuple[float, float, float]:
        """The decode row of sequences of which only `routed` wake experts of their own."""
        memory, compute, fixed = self._decode_row(sequences)
        c, busy = self.coefficients, self._row(sequences)[2] > 0
        spared = self._row(sequences)[0] - self._row(routed)[0]
        return (
            memory - self._expert_s(sequences) * spared,
            compute - c.expert_tiles * c.tile_s * spared * busy,
            fixed - c.host_expert_s * spared,
        )

    def _expert_s(self, tokens: int) -> float:
        """Streaming one expert in every MoE layer, in a pass of so many tokens (as `token_table`
        has it)."""
        c, busy = self.coefficients, self._row(tokens)[2] > 0
        return float(c.expert_s * (1.0 if busy else 1.0 + c.token_share * (tokens - 1)))

    def _piece_s(self, piece: _Piece) -> float:
        c, memory = self.coefficients, piece.weights_s + piece.kv_s
        if c.prompt_p == c.p:
            return pass_seconds(memory, piece.compute_s, piece.fixed_s, c.p)
        prompts = max(piece.compute_s - piece.decoding_s, 0.0)
        reading = pass_seconds(memory, prompts, 0.0, c.prompt_p)
        return pass_seconds(reading, piece.decoding_s, piece.fixed_s, c.p)

    def _beside_s(self, batch: Batch) -> float:
        """What comes before a pass: drafting, and caches copied from or to host memory."""
        spent = batch.moved_tokens * host_copy_s(self.deployment) if batch.moved_tokens else 0.0
        if batch.draft_passes and self._drafter:
            spent += batch.draft_passes * self._drafter.pass_s(*_drafting_of(batch))
        if batch.chunks and self._drafter:
            spent += self._drafter.read_s(batch.chunks)
        return spent

    def _drafted(self, batch: Batch) -> DraftCost:
        """One drafting pass before this one."""
        if not batch.draft_passes or self._drafter is None:
            return _NO_DRAFT
        return self._drafter.cost(*_drafting_of(batch))

    def _pieces(self, batch: Batch) -> Iterator[_Piece]:
        """The runs over the weights that a pass takes: decoding tokens ride with the first.

        Each streams the weights again, with the experts that its tokens wake.
        """
        first, ends = True, len(batch.chunks)
        decoding = batch.decodes + batch.verify
        for parts in _cut(batch.chunks, self.deployment.ubatch, decoding):
            if parts or (first and decoding):
                # The last token of each prompt needs the output matrix, once a pass.
                yield self._piece(batch if first else None, parts, ends if first else 0)
            first = False

    def _piece(self, decoders: Batch | None, parts: list[Chunk], ends: int) -> _Piece:
        c, window = self.coefficients, self._window
        decodes = decoders.decodes if decoders else 0
        verify = decoders.verify if decoders else 0
        kv = float(decoders.kv_tokens) if decoders else 0.0
        inside = float(decoders.window_tokens) if decoders else 0.0
        queries = decodes + verify
        each = queries / decodes if decodes else 0.0
        q_pairs, q_window_pairs = kv * each + queries, inside * each + queries
        pairs = window_pairs = 0.0
        for part in parts:
            pairs += causal_pairs(part.tokens, part.context_tokens)
            kv += part.context_tokens + part.tokens
            if window is not None:
                window_pairs += windowed_pairs(part.tokens, part.context_tokens, window)
                inside += min(part.context_tokens, window) + part.tokens
        prompt = sum(part.tokens for part in parts)
        tokens, states = queries + prompt, decodes + len(parts)
        outputs = queries + ends
        routed = tokens - (decoders.lockstep if decoders else 0)
        woken, weights, busy, fixed = self._row(tokens)
        table = self._tokens  # long enough now for all that are fewer
        if routed != tokens:
            spared = woken - table[routed][0]
            woken -= spared
            weights -= self._expert_s(tokens) * spared
            fixed -= c.host_expert_s * spared
        tiles = woken if c.expert_tiles else table[prompt][0]
        lost = c.tile_s * tiles if busy else 0.0
        decoding = (
            table[queries][2] * c.body_s
            + self._row(outputs)[2] * c.head_s
            + c.query_s * q_pairs
            + c.query_window_s * q_window_pairs
        )
        return _Piece(
            weights_s=weights,
            kv_s=c.kv_s * kv + c.window_s * inside + c.state_s * states,
            compute_s=decoding
            + (busy - table[queries][2]) * c.body_s
            + c.scan_s * prompt
            + lost
            + c.pair_s * pairs
            + c.window_pair_s * window_pairs,
            decoding_s=decoding,
            fixed_s=fixed + (c.several_s if decodes >= 2 else 0.0),
            host_s=c.host_s + c.host_expert_s * woken,
            woken=woken,
            cached=kv,
            inside=inside,
            states=states,
            tokens=tokens,
            outputs=outputs,
            pairs=pairs + q_pairs,
            window_pairs=window_pairs + q_window_pairs,
        )


def _rows(columns: tuple[Any, ...], n: int) -> list[Any]:
    """A table's columns, some of them the same for all rows, as n tuples of floats."""
    return list(zip(*(np.broadcast_to(c, (n,)).tolist() for c in columns), strict=True))


def _decode_only(batch: Batch) -> bool:
    """Nothing but sequences that each get one more token, all routing on their own."""
    return not (
        batch.chunks or batch.verify or batch.draft_passes or batch.lockstep or batch.moved_tokens
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
