"""The time of one pass: one definition, used for a single pass and for thousands at once.

    t = ((t_weights + t_kv)^p + t_compute^p)^(1/p) + overhead + launches

after the Headroom article's iteration rule, with the p-norm in place of its maximum: under
llama.cpp the terms add (p = 1), tuned engines overlap them. Everything here is plain arithmetic
that works on floats and on NumPy arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Number = TypeVar("Number", float, Array)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A deployment in seconds: what each unit of work of a pass costs.

    Floats for one deployment; arrays that broadcast for many (`grid`).
    """

    always_s: Any
    """Streaming the weights that every pass reads, from the box's own memory."""
    expert_s: Any
    """Streaming one expert in every MoE layer, from the box's own memory."""
    host_s: Any
    """Reading what of `always_s` lies in host memory."""
    host_expert_s: Any
    """Reading what of one expert in every MoE layer lies in host memory."""
    experts: Any
    """0 for a dense model."""
    experts_per_token: Any
    expert_exponent: Any
    kv_s: Any
    """Reading one cached token, layers that keep everything."""
    window_s: Any
    """Reading one cached token, layers that keep a window."""
    state_s: Any
    """Reading and writing one sequence's recurrent state."""
    body_s: Any
    """Multiplying one token through everything but the output matrix, matrix kernels."""
    head_s: Any
    """Multiplying one token through the output matrix, matrix kernels."""
    pair_s: Any
    """One (query, key) pair of a prompt, layers that keep everything."""
    window_pair_s: Any
    query_s: Any
    """One (query, key) pair of a decoding token, layers that keep everything."""
    query_window_s: Any
    scan_s: Any
    """Updating the recurrent states with one token of a prompt."""
    tile_s: Any
    """What a woken expert loses to half-empty tiles."""
    overhead_s: Any
    """Fixed, with all launches that do not depend on the batch."""
    sort_s: Any
    """Sorting tokens by expert in every MoE layer, from two tokens on."""
    several_s: Any
    """Launches more, from two decoding sequences on."""
    exchange_s: Any
    """Sending one token's activations between boxes in every exchange."""
    token_share: Any
    """Weight-reading time that each token more adds while vector kernels are used."""
    vector_tokens: Any
    tile_tokens: Any
    expert_tiles: Any
    """1 where decoding loses `tile_s`, too, once matrix kernels are used."""
    graph_tokens: Any
    prompt_p: Any
    """Exponent of the p-norm for runs that read prompts; `p` is that of decoding."""
    p: float


def woken_experts(tokens: Any, experts: Any, per_token: Any, exponent: Any) -> Any:
    """Distinct experts a layer that n tokens wake: E (1 - (1 - k/E)^(n^exponent)).

    Headroom article: n sequences route as n^0.65 independent ones; the exponent is the model's.
    """
    share = per_token / np.maximum(experts, 1)
    return experts * (1.0 - (1.0 - share) ** (tokens**exponent))


def pass_seconds(memory_s: Number, compute_s: Number, fixed_s: Number, p: Any) -> Number:
    """The p-norm of memory and compute time, plus what nothing hides. `p` may be an array."""
    if isinstance(p, float) and p == 1.0:
        return memory_s + compute_s + fixed_s
    hidden: Number = (memory_s**p + compute_s**p) ** (1.0 / p)
    return hidden + fixed_s


def multiplied_tokens(c: Coefficients, tokens: Any) -> Any:
    """Tokens that the matrix kernels are busy with: 0 while vector kernels do (their work is in
    `token_share`), whole tiles after that, or the next captured CUDA graph.

    llama.cpp switches between 8 and 9 tokens (MMVQ_MAX_BATCH_SIZE, mul_mat_vec_max_cols); vLLM
    captures graphs for 1, 2, 4 and multiples of 8 sequences.
    """
    tiled = np.ceil(tokens / c.tile_tokens) * c.tile_tokens
    step = np.maximum(c.graph_tokens, 1)
    captured = np.where(tokens <= 4, 2.0 ** np.ceil(np.log2(np.maximum(tokens, 1))), step)
    captured = np.where(tokens > step, np.ceil(tokens / step) * step, captured)
    graphs = (c.graph_tokens > 0) & (tokens <= 512)
    return np.where(tokens <= c.vector_tokens, 0.0, np.where(graphs, captured, tiled))


def token_table(c: Coefficients, tokens: Any) -> tuple[Any, Any, Any, Any]:
    """For passes of so many tokens: woken experts, weights_s, multiplied tokens, fixed_s.

    What belongs to sequences and contexts (states, cache, attention) is not in them.
    """
    woken = woken_experts(tokens, c.experts, c.experts_per_token, c.expert_exponent)
    busy = multiplied_tokens(c, tokens)
    weights = c.always_s + c.expert_s * woken
    weights = weights * np.where(busy > 0, 1.0, 1.0 + c.token_share * (tokens - 1.0))
    host = c.host_s + c.host_expert_s * woken
    fixed = c.overhead_s + host + c.sort_s * (tokens >= 2) + c.exchange_s * tokens
    return woken, weights, busy, fixed


def decode_table(
    c: Coefficients, sequences: Any, table: tuple[Any, Any, Any, Any] | None = None
) -> tuple[Any, Any, Any]:
    """For decode-only passes of so many sequences: memory_s, compute_s, fixed_s.

    `table` is `token_table` for the same numbers, where it is at hand.

    compute_s has every token going through the output matrix and seeing itself. What grows with
    the context is not in them.
    """
    woken, weights, busy, fixed = table or token_table(c, sequences)
    memory = weights + c.state_s * sequences
    compute = busy * (c.body_s + c.head_s) + c.expert_tiles * c.tile_s * woken * (busy > 0)
    compute = compute + (c.query_s + c.query_window_s) * sequences
    return memory, compute, fixed + c.several_s * (sequences >= 2)


def decode_seconds(
    c: Coefficients, row: tuple[Any, Any, Any], kv_tokens: Any, window_tokens: Any
) -> Any:
    """A decode-only pass: a row of `decode_table`, and contexts summed over its sequences."""
    memory, compute, fixed = row
    memory_s = memory + c.kv_s * kv_tokens + c.window_s * window_tokens
    compute_s = compute + c.query_s * kv_tokens + c.query_window_s * window_tokens
    return pass_seconds(memory_s, compute_s, fixed, c.p)
