"""Ollama's journal: its own lines (slog and GIN) around those of the llama-server that it runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from headroom_bench.box import BoxDesign
from mock_server.dialects.llamacpp_builds import BUILDS
from mock_server.dialects.llamacpp_log import LlamaCppLog
from mock_server.logs import Lines, Peer


class OllamaLog(LlamaCppLog):
    """llama-server's lines come without time and level, as Ollama starts it."""

    def __init__(
        self,
        lines: Lines,
        clock: Callable[[], float],
        model_file: str,
        design: BoxDesign,
    ) -> None:
        build = replace(BUILDS["J8"], prefix_shown=False)
        super().__init__(lines, clock, build, model_file, design)

    def ready(self, url: str) -> None:
        super().ready("http://127.0.0.1:0")
        self._slog("INFO", "routes.go:1700", f'"Listening on {url} (version 0.33.2-mock)"')

    def note(self, text: str) -> None:
        self._slog("WARN", "mock", f'"{text}"')

    def cut(self, limit: int, prompt_tokens: int, kept: int, left: int) -> None:
        """A prompt of `prompt_tokens` was cut to `left`, the first `kept` of them untouched."""
        counts = f"limit={limit} prompt={prompt_tokens} keep={kept} new={left}"
        self._slog("WARN", "runner.go:153", f'"truncating input prompt" {counts}')

    def dropped(self, tokens: int) -> None:
        """The chat route threw whole messages of so many tokens away."""
        told = '"truncating input messages which exceed context length"'
        self._slog("DEBUG", "prompt.go:60", f"{told} truncated={tokens}")

    def answered(self, peer: Peer, method: str, path: str, status: int, took_s: float) -> None:
        when = time.strftime("%Y/%m/%d - %H:%M:%S")
        took = f"{took_s:.6g}s" if took_s >= 1 else f"{took_s * 1e3:.6g}ms"
        line = f'[GIN] {when} | {status} | {took:>13} | {peer[0]:>15} | {method:<8} "{path}"'
        self.write(line)

    def _slog(self, level: str, source: str, message: str) -> None:
        when = datetime.now().astimezone().isoformat(timespec="milliseconds")
        self.write(f"time={when} level={level} source={source} msg={message}")
