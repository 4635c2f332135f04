"""Every dialect by its name."""

from __future__ import annotations

from collections.abc import Callable

from mock_server.dialect import Dialect
from mock_server.dialects.llamacpp import LlamaCpp
from mock_server.dialects.mlx import Mlx
from mock_server.dialects.ollama import Ollama
from mock_server.dialects.openai import OpenAi
from mock_server.dialects.sglang import Sglang
from mock_server.dialects.vllm import Vllm
from mock_server.front import Front

DIALECTS: dict[str, Callable[[Front], Dialect]] = {
    "llamacpp": LlamaCpp,
    "vllm": Vllm,
    "ollama": Ollama,
    "sglang": Sglang,
    "mlx": Mlx,
    "openai": OpenAi,
}
