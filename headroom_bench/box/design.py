"""How a server is built: its memory, its batches, its caches, what it does when they are full."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from headroom_bench.box.speculation import Speculation

MemoryKind = Literal["split_slots", "unified_slots", "paged", "dynamic_batch"]
"""split_slots: a fixed share each. unified_slots: slots over one pool, which kills all when it
runs out. paged: one pool in pages, shared prefixes stored once, preemption when it runs out.
dynamic_batch: a cache of its own for each sequence, no slots."""

Rewind = Literal["any", "checkpoints", "extend"]
"""How a cached sequence can be cut back to the part that a prompt shares. any: to any token.
checkpoints: to saved states only (llama.cpp, models with windows or recurrent states). extend: not
at all (MLX, the same models)."""

Overflow = Literal["reject", "cut"]
"""What happens to a prompt longer than the context. cut: Ollama drops its oldest messages."""


@dataclass(frozen=True, slots=True)
class BoxDesign:
    """One server's design. Sizes are tokens unless named otherwise.

    Raises ValueError for a size below 1, a pool that cannot hold one whole sequence (vLLM does not
    start then), or a paged design without a pool.
    """

    memory: MemoryKind
    ctx: int
    """Most tokens of one sequence, prompt and answer."""
    parallel: int
    """Sequences at once: slots, vLLM's max_num_seqs, MLX's decode concurrency."""
    pool_tokens: int | None = None
    """What all sequences share; None: as much as they need (split slots, MLX)."""
    page_tokens: int = 16
    """Paged: tokens of one block (vLLM 16, TensorRT-LLM 32, SGLang 1)."""
    reserve_answer: bool = False
    """Paged: admit only with room for the longest answer (TensorRT-LLM GUARANTEED_NO_EVICT)."""
    batch_tokens: int = 2048
    """Tokens of one pass: llama.cpp n_batch, vLLM max_num_batched_tokens."""
    chunk_tokens: int | None = None
    """Most tokens that one pass reads of one prompt (MLX prefill_step_size)."""
    prompts_a_pass: int | None = None
    """Most prompts that one pass reads of (MLX prompt_concurrency)."""
    mixed: bool = True
    """Decodes and prompts share a pass; else a pass that reads prompts decodes nothing (SGLang
    without mixed chunk, MLX)."""
    prefix_cache: bool = True
    """Keep what was read for prompts to come."""
    rewind: Rewind = "any"
    host_tokens: int = 0
    """Tokens of evicted slots that host memory holds (llama.cpp --cache-ram); 0: none."""
    cached_prompts: int = 10
    """Dynamic batch: whole caches kept, least recently used out first (MLX)."""
    overflow: Overflow = "reject"
    counts_answer: bool = False
    """A prompt is too long when prompt and wanted answer exceed the context (vLLM)."""
    max_queue: int | None = None
    """Requests that may wait; more are turned away (Ollama 512)."""
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        sizes = (self.ctx, self.parallel, self.page_tokens, self.batch_tokens, self.cached_prompts)
        optional = (self.pool_tokens, self.chunk_tokens, self.prompts_a_pass, self.max_queue)
        if min(sizes) < 1 or any(size is not None and size < 1 for size in optional):
            raise ValueError("slots, ctx_per_slot, batch_tokens and other sizes must be at least 1")
        if self.host_tokens < 0:
            raise ValueError("host_tokens must not be negative")
        if self.memory == "paged" and self.pool_tokens is None:
            raise ValueError("a paged design needs pool_tokens")
        if self.memory == "split_slots" and self.pool_tokens is not None:
            raise ValueError("split slots share no pool")
        if self.pool_tokens is not None and self.usable_pool < self.ctx:
            raise ValueError(
                f"the pool of {self.pool_tokens} tokens cannot hold one sequence of {self.ctx}"
            )

    @property
    def usable_pool(self) -> int:
        """Tokens of the pool in whole pages. There must be a pool."""
        assert self.pool_tokens is not None
        page = self.page_tokens if self.memory == "paged" else 1
        return self.pool_tokens // page * page


def split_slots(slots: int, ctx_per_slot: int, batch_tokens: int = 2048) -> BoxDesign:
    """The plainest: so many slots of so many tokens. Raises ValueError for a size below 1."""
    return BoxDesign("split_slots", ctx_per_slot, slots, batch_tokens=batch_tokens)
