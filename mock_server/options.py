"""What a mock server is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headroom_bench.box import context_per_slot

RUNTIMES = {
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "ollama": "ollama",
    "sglang": "sglang",
    "mlx": "mlx",
    "openai": "llama.cpp",
}
"""Each dialect, and the runtime that speaks it."""
WITHOUT_SLOTS = ("vllm", "sglang", "mlx")
MAX_BODY_BYTES = 32 << 20
"""Longest request body."""


@dataclass(frozen=True, slots=True)
class MockOptions:
    """One mock server. Sizes are tokens; seconds are life time (wall time times `time_scale`)."""

    dialect: str = "llamacpp"
    hardware: str = "dgx-spark"
    model: str = "gpt-oss-20b"
    quant: str = "MXFP4"
    runtime: str = "llama.cpp"
    backend: str | None = None
    """None: what the runtime uses on that hardware."""
    slots: int = 4
    ctx: int = 32768
    """Context of the whole server, split over the slots; of each sequence where there are no slots
    (vllm, sglang, mlx), or all share one memory (`kv_unified`)."""
    pool: int | None = None
    """vllm, sglang: tokens of the memory that all sequences share; None: enough for all at once."""
    kv_unified: bool = False
    """llamacpp: the slots share one memory, which kills every request when it is full."""
    draft: int = 0
    """Tokens drafted a pass (speculative decoding)."""
    max_queue: int | None = None
    """Requests that may wait; others are turned away with 503."""
    ubatch: int | None = None
    """Prompt tokens a run over the weights; None: the runtime's default."""
    kv_k: str = "f16"
    kv_v: str = "f16"
    swa_full: bool = False
    host: str = "127.0.0.1"
    port: int = 0
    """0: any free one."""
    journal_file: Path | None = None
    """None: stderr."""
    time_scale: float = 1.0
    seed: int = 0
    alias: str | None = None
    """The model's name in answers; None: made of model and quant."""
    metrics: bool = False
    api_key: str | None = None
    loading_s: float = 0.0
    """How long the model loads, while every route answers 503."""
    reasoning: int = 0
    """Tokens of reasoning before each answer, unless a request declines them."""
    reasoning_on_request: int = 64
    """Tokens of reasoning where `reasoning` is 0 but a request asks for it."""
    journal_format: str = "J8"
    """llamacpp: the form of its journal, and with it the build that is spoken."""
    ping_s: float | None = 30.0
    """llamacpp: silence after which a stream gets a comment; None: never."""
    stream_interval: int = 1
    """vllm: tokens an event holds, unless the request says."""
    cache_report: bool = True
    """vllm, sglang: usage says how many prompt tokens were cached."""
    request_metrics: bool = True
    """vllm: the usage event holds the request's own times."""
    truth_file: Path | None = None
    faults: tuple[str, ...] = ()
    """`NAME[:ARGUMENT…]`, for every request."""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_self_signed: bool = False

    @property
    def model_name(self) -> str:
        return self.alias or f"{self.model}-{self.quant}.gguf"

    @property
    def ctx_per_slot(self) -> int:
        split = self.dialect not in WITHOUT_SLOTS and not self.kv_unified
        return context_per_slot(self.ctx, self.slots) if split else self.ctx

    @property
    def room_tokens(self) -> int:
        """What all sequences can hold together."""
        if self.kv_unified:
            return self.ctx
        return self.pool or self.slots * self.ctx_per_slot
