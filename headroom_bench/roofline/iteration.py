"""The time of one pass: one definition, used for a single pass and for thousands at once.

    t = ((t_weights + t_kv)^p + t_compute^p)^(1/p) + overhead + launches

after the Headroom article's iteration rule, with the p-norm in place of its maximum: under
llama.cpp the terms add (p = 1), tuned engines overlap them. Everything here is plain arithmetic
that works on floats and on NumPy arrays alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Number = TypeVar("Number", float, Array)


@dataclass(frozen=True, slots=True)
class Coefficients:
    """A deployment in seconds: what each unit of work of a pass costs."""

    always_s: float
    """Streaming the weights that every pass reads."""
    expert_s: float
    """Streaming one expert in every MoE layer."""
    experts: int
    experts_per_token: int
    expert_exponent: float
    kv_s: float
    """Reading one cached token, layers that keep everything."""
    window_s: float
    """Reading one cached token, layers that keep a window."""
    state_s: float
    """Reading and writing one sequence's recurrent state."""
    body_s: float
    """Multiplying one token through everything but the output matrix."""
    head_s: float
    """Multiplying one token through the output matrix."""
    pair_s: float
    """One (query, key) pair, layers that keep everything."""
    window_pair_s: float
    tile_s: float
    """What a woken expert loses to a half-empty tile while a prompt is read."""
    overhead_s: float
    launch_s: float
    """Starting one expert's kernels in every MoE layer."""
    batch_s: float
    """Sorting tokens by expert in every MoE layer, from two tokens on."""
    p: float


def woken_experts(tokens: Number, experts: int, per_token: int, exponent: float) -> Number:
    """Distinct experts a layer that n tokens wake: E (1 - (1 - k/E)^(n^exponent)).

    Headroom article: n sequences route as n^0.65 independent ones; the exponent is the model's.
    """
    chance: Number = 1.0 - (1.0 - per_token / experts) ** (tokens**exponent)
    return experts * chance


def pass_seconds(memory_s: Number, compute_s: Number, fixed_s: float, p: float) -> Number:
    """The p-norm of memory and compute time, plus what nothing hides."""
    if p == 1.0:
        return memory_s + compute_s + fixed_s
    hidden: Number = (memory_s**p + compute_s**p) ** (1.0 / p)
    return hidden + fixed_s


def token_table(c: Coefficients, tokens: Array) -> tuple[Array, Array, Array, Array]:
    """For passes of so many decoding tokens: woken experts, memory_s, compute_s, fixed_s.

    memory_s is the weights' and the recurrent states'. compute_s has every token going through the
    output matrix and seeing itself. What grows with the context is not in them.
    """
    woken = np.zeros_like(tokens)
    if c.experts:
        woken = woken_experts(tokens, c.experts, c.experts_per_token, c.expert_exponent)
    memory = c.always_s + c.expert_s * woken + c.state_s * tokens
    compute = tokens * (c.body_s + c.head_s + c.pair_s + c.window_pair_s)
    fixed = c.overhead_s + c.launch_s * woken + c.batch_s * (tokens >= 2)
    return woken, memory, compute, fixed


def decode_seconds(
    c: Coefficients,
    row: tuple[float, float, float, float],
    kv_tokens: Number,
    window_tokens: Number,
) -> Number:
    """A decode-only pass: a row of `token_table`, and contexts summed over its sequences."""
    _, memory, compute, fixed = row
    memory_s: Number = memory + c.kv_s * kv_tokens + c.window_s * window_tokens
    compute_s: Number = compute + c.pair_s * kv_tokens + c.window_pair_s * window_tokens
    return pass_seconds(memory_s, compute_s, fixed, c.p)
