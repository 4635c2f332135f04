"""Which layers see only a window, where a model says it by a rule rather than layer by layer."""

from __future__ import annotations

WINDOW_EVERY = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3_text": 6,
    "gemma3n": 5,
    "gemma3n_text": 5,
    "gemma4": 6,
    "gemma4_text": 6,
    "gpt-oss": 2,
    "gpt_oss": 2,
    "cohere2": 4,
    "exaone4": 4,
    "olmo2": 4,
    "olmo3": 4,
    "llama4": 4,
    "llama4_text": 4,
    "phi3": 0,
    "mistral": 0,
    "mixtral": 0,
    "starcoder2": 0,
}
"""Every n-th layer sees everything, the others a window; 0: all see a window. By `model_type` of
transformers (its configuration defaults) and by architecture of llama.cpp (`set_swa_pattern`)."""


def windowed(layer: int, every: int) -> bool:
    """Whether layer `layer`, counted from 0, sees only the window. `every` as in `WINDOW_EVERY`."""
    return every == 0 or layer % every < every - 1


def pattern_in_words(local: int, whole: int) -> str:
    """`5 local : 1 global`, rounded where the counts are no multiples."""
    if not whole:
        return "all layers"
    return f"{max(round(local / whole), 1)} local : 1 global"
