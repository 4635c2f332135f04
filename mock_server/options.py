"""What a mock server is told at its start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headroom_bench.target import MOCK_BOX

MAX_BODY_BYTES = 32 << 20
"""Longest request body."""


@dataclass(frozen=True, slots=True)
class MockOptions:
    """One mock server. Sizes are tokens; seconds are life time (wall time times `time_scale`)."""

    dialect: str = "llamacpp"
    hardware: str = str(MOCK_BOX.hardware)
    model: str = str(MOCK_BOX.model)
    quant: str = str(MOCK_BOX.quant)
    runtime: str | None = None
    """None: the one that speaks the dialect."""
    backend: str | None = None
    """None: what the runtime uses on that hardware."""
    slots: int = MOCK_BOX.slots or 1
    ctx: int = MOCK_BOX.ctx or 1
    """Context of the whole server, split over the slots; of each sequence where there are no slots
    (vllm, sglang, mlx), or all share one memory (`kv_unified`)."""
    pool: int | None = None
    """vllm, sglang: tokens of the memory that all sequences share; None: what the weights leave of
    the box's memory."""
    kv_unified: bool | None = None
    """The slots share one memory, which kills every request when it is full. None: as the runtime
    has it with its slots told (LM Studio's share, llama.cpp's do not)."""
    draft: str | None = None
    """What drafts tokens: `mtp`, or the name of a model."""
    draft_tokens: int | None = None
    """Drafted a pass; None: as many as the runtime does. Without `draft` they are looked up in the
    text so far, which costs nothing."""
    max_queue: int | None = None
    """Requests that may wait; others are turned away with 503. None: as the runtime has it."""
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
