"""llama-server's timing journal as b11549 prints it: one line a value, to a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from mock_server.timings import Timings


class Journal:
    """Writes lines stamped with `clock` (seconds of the server's life). Whole lines, when they
    happen, so that a reader can follow. A stream that breaks is given up."""

    def __init__(self, stream: TextIO, clock: Callable[[], float]) -> None:
        self._stream: TextIO | None = stream
        self._clock = clock
        self._lines: list[str] = []
        self._held = False

    def hold(self) -> None:
        """Keep lines until `let_go`: what one pass says is written at once, for a write a line
        would make the pass late."""
        self._held = True

    def let_go(self) -> None:
        self._held = False
        self._flush()

    # --- the server ---------------------------------------------------------------------------

    def starting(self, build_info: str, model_file: str) -> None:
        self._server("I", "init", "initializing ...")
        self._server("I", "init", f"build_info: {build_info}")
        self._server("I", "init", "loading model")
        self._server("I", "load_model", f"loading model '{model_file}'")

    def ready(self, slots: int, ctx_per_slot: int, url: str) -> None:
        shape = f"n_slots = {slots}, n_ctx_slot = {ctx_per_slot}, kv_unified = 'false'"
        self._server("I", "load_model", f"initializing, {shape}")
        self._server("I", "init", "model loaded")
        self._server("I", "init", f"listening on {url}")

    def note(self, text: str) -> None:
        """Something that only a mock has to say."""
        self._server("W", "mock", text)

    def stopping(self) -> None:
        self._server("I", "operator()", "operator(): cleaning up before exit...")

    # --- one task -----------------------------------------------------------------------------

    def selected_by_age(self, slot: int, last_used_us: int) -> None:
        self._slot("get_availabl", slot, -1, f"selected slot by LRU, t_last = {last_used_us}")

    def selected_by_prefix(self, slot: int, similarity: float, kept: float) -> None:
        chosen = f"f_sim_best = {similarity:.3f} (> 0.100 thold), f_keep = {kept:.3f}"
        self._slot("get_availabl", slot, -1, f"selected slot by LCP similarity, {chosen}")

    def launched(self, slot: int, task: int) -> None:
        self._slot("launch_slot_", slot, task, "processing task, is_child = 0")

    def whole_prompt_cached(self, slot: int, task: int, prompt_tokens: int) -> None:
        counts = f"n_past = {prompt_tokens}, task.n_tokens() = {prompt_tokens}"
        text = f"need to evaluate at least 1 token for each active slot ({counts})"
        self._slot("operator()", slot, task, text, "W")
        self._slot("operator()", slot, task, f"n_past was set to {prompt_tokens - 1}", "W")

    def reading(self, slot: int, task: int, held: int, progress: float, t_s: float, n: int) -> None:
        """A long prompt's progress: `held` tokens in the slot, `n` of them read in `t_s`."""
        text = f"prompt processing, n_tokens = {held:6d}, progress = {progress:.2f}, "
        text += f"t = {t_s:6.2f} s / {n / t_s:.2f} tokens per second"
        self._slot("print_timing", slot, task, text)

    def generating(self, slot: int, task: int, n: int, tok_s: float, tok_s_3s: float) -> None:
        text = f"n_gen = {n:6d}, tg = {tok_s:6.2f} t/s, tg_3s = {tok_s_3s:6.2f} t/s"
        self._slot("print_timing", slot, task, text)

    def timed(self, slot: int, task: int, timings: Timings, graphs_reused: int) -> None:
        """The block at a request's end."""
        t = timings
        lines = (
            f"prompt eval time = {_cost(t.prompt_ms, t.prompt_n)} "
            f"({_rates(t.prompt_per_token_ms, t.prompt_per_second)})",
            f"       eval time = {_cost(t.predicted_ms, t.predicted_n)} "
            f"({_rates(t.predicted_per_token_ms, t.predicted_per_second)})",
            f"      total time = {_cost(t.prompt_ms + t.predicted_ms, t.prompt_n + t.predicted_n)}",
            f"   graphs reused = {graphs_reused:10d}",
        )
        for line in lines:
            self._slot("print_timing", slot, task, line)

    def released(self, slot: int, task: int, held_tokens: int, truncated: bool) -> None:
        text = f"stop processing: n_tokens = {held_tokens}, truncated = {int(truncated)}"
        self._slot("release", slot, task, text)

    def cancelled(self, task: int) -> None:
        self._server("W", "stop", f"cancel task, id_task = {task}")

    def refused(self, task: int, message: str) -> None:
        self._server("E", "send_error", f"task id = {task}, error: {message}")

    # --- inside -------------------------------------------------------------------------------

    def _slot(self, function: str, slot: int, task: int, text: str, level: str = "I") -> None:
        self._write(level, f"slot {function:>12}: id {slot:2d} | task {task} | {text}")

    def _server(self, level: str, function: str, text: str) -> None:
        self._write(level, f"srv  {function:>12}: {text}")

    def _write(self, level: str, text: str) -> None:
        self._lines.append(f"{stamp(self._clock())} {level} {text}\n")
        if not self._held:
            self._flush()

    def _flush(self) -> None:
        lines, self._lines = self._lines, []
        if self._stream is None or not lines:
            return
        try:
            self._stream.write("".join(lines))
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk: serving goes on
            self._stream = None


def stamp(seconds: float) -> str:
    """`M.SS.mmm.uuu`; the minutes have no bound."""
    millis, micros = divmod(int(seconds * 1e6), 1000)
    whole, millis = divmod(millis, 1000)
    minutes, whole = divmod(whole, 60)
    return f"{minutes}.{whole:02d}.{millis:03d}.{micros:03d}"


def _cost(ms: float, tokens: int) -> str:
    return f"{ms:10.2f} ms / {tokens:5d} tokens"


def _rates(ms_per_token: float, tok_s: float) -> str:
    return f"{ms_per_token:8.2f} ms per token, {tok_s:8.2f} tokens per second"
