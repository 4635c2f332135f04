"""llama-server's timing journal, as three builds print it.

J8 (b11549) and J6 (b9713): one complete line a value, with a prefix of time and level. J4 (b7551):
no prefix; the timing block is a header that ends with a blank, and three lines without an id.
"""

from __future__ import annotations

from collections.abc import Callable

from headroom_bench.box import BoxDesign
from mock_server.dialects.llamacpp_builds import Build
from mock_server.jobs import Job
from mock_server.logs import Lines, Log
from mock_server.timings import timings


class LlamaCppLog(Log):
    """The journal of one server."""

    def __init__(
        self,
        lines: Lines,
        clock: Callable[[], float],
        build: Build,
        model_file: str,
        design: BoxDesign,
    ) -> None:
        super().__init__(lines, clock)
        self._build = build
        self._old = build.journal == "J4"
        self._model_file = model_file
        self._slots = design.parallel
        self._ctx = design.ctx
        self._unified = design.memory == "unified_slots"

    # --- the server ---------------------------------------------------------------------------

    def starting(self) -> None:
        if not self._old:
            self._server("I", "init", "initializing ...")
            self._server("I", "init", f"build_info: {self._build.info}")
            self._server("I", "init", "loading model")
        else:
            number = self._build.info.strip("b").partition("-")[0]
            self.write(f"build: {number} (mock) with mock for mock")
        self._server("I", "load_model", f"loading model '{self._model_file}'")

    def ready(self, url: str) -> None:
        if self._old:
            self._server("I", "load_model", f"initializing slots, n_slots = {self._slots}")
            for slot in range(self._slots):
                self._slot("load_model", slot, -1, f"new slot, n_ctx = {self._ctx}")
            self.write("main: model loaded")
            self.write(f"main: server is listening on {url}")
            return
        unified = "true" if self._unified else "false"
        shape = f"n_slots = {self._slots}, n_ctx_slot = {self._ctx}, kv_unified = '{unified}'"
        self._server("I", "load_model", f"initializing, {shape}")
        self._server("I", "init", "model loaded")
        self._server("I", "init", f"listening on {url}")

    def note(self, text: str) -> None:
        self._server("W", "mock", text)

    def stopping(self) -> None:
        self._server("I", "operator()", "operator(): cleaning up before exit...")

    # --- one task -----------------------------------------------------------------------------

    def seated(self, job: Job) -> None:
        whole = job.cached == job.prompt_tokens - 1 and job.cached > 0
        shared = job.cached + whole
        if shared > 0.1 * job.prompt_tokens:
            kept = min(1.0, shared / max(1, job.slot_held))
            alike = f"{self._build.similarity_name} = {shared / job.prompt_tokens:.3f}"
            chosen = f"LCP similarity, {alike} (> 0.100 thold), f_keep = {kept:.3f}"
        else:
            chosen = f"LRU, t_last = {job.slot_used_us}"
        self._slot("get_availabl", job.slot, -1, f"selected slot by {chosen}")
        child = ", is_child = 0" if not self._old else ""
        self._slot("launch_slot_", job.slot, job.task, f"processing task{child}")
        if self._old:
            new = f"new prompt, n_ctx_slot = {self._ctx}, n_keep = 0"
            self._updated(job, f"{new}, task.n_tokens = {job.prompt_tokens}")
        if whole:
            counts = f"n_past = {job.prompt_tokens}, task.n_tokens() = {job.prompt_tokens}"
            told = f"need to evaluate at least 1 token for each active slot ({counts})"
            self._updated(job, told, "W")
            self._updated(job, f"n_past was set to {job.prompt_tokens - 1}", "W")
        if self._old:
            told = f"n_tokens = {job.cached}, memory_seq_rm [{job.cached}, end)"
            self._updated(job, told)

    def reading(self, job: Job, spent_s: float) -> None:
        held = job.cached + job.processed
        progress = held / job.prompt_tokens
        if self._old:
            told = f"n_tokens = {held}, batch.n_tokens = {job.processed}, progress = {progress:.6f}"
            self._updated(job, f"prompt processing progress, {told}")
            return
        text = f"prompt processing, n_tokens = {held:6d}, progress = {progress:.2f}, "
        text += f"t = {spent_s:6.2f} s / {job.processed / spent_s:.2f} tokens per second"
        self._slot("print_timing", job.slot, job.task, text)

    def sampled(self, job: Job, tok_s: float, tok_s_recent: float) -> None:
        name = self._build.generated_name
        if not name:  # J4 has no such line
            return
        text = f"{name} = {job.generated:6d}, tg = {tok_s:6.2f} t/s"
        if not self._build.rate_over_all:
            text += f", tg_3s = {tok_s_recent:6.2f} t/s"
        self._slot("print_timing", job.slot, job.task, text)

    def done(self, job: Job, graphs_reused: int) -> None:
        t = timings(job, over_all=self._build.rate_over_all)
        lines = [
            f"prompt eval time = {_cost(t.prompt_ms, t.prompt_n)} "
            f"({_rates(t.prompt_per_token_ms, t.prompt_per_second)})",
            f"       eval time = {_cost(t.predicted_ms, t.predicted_n)} "
            f"({_rates(t.predicted_per_token_ms, t.predicted_per_second)})",
            f"      total time = {_cost(t.prompt_ms + t.predicted_ms, t.prompt_n + t.predicted_n)}",
        ]
        counts = f"({job.accepted:5d} accepted / {job.drafted:5d} generated)"
        share = job.accepted / job.drafted if job.drafted else 0.0
        if self._old:
            if job.drafted:
                lines.append(f"draft acceptance rate = {share:.5f} {counts}")
            self._slot("print_timing", job.slot, job.task, "")
            for line in lines:
                self.write(line)
            return
        lines.append(f"   graphs reused = {graphs_reused:10d}")
        if job.drafted:
            steps = max(1, job.generated - 1 - job.accepted)
            mean = f", mean len = {1 + job.accepted / steps:5.2f}"
            mean = mean if self._build.journal == "J8" else ""
            lines.append(f"draft acceptance = {share:.5f} {counts}{mean}")
        for line in lines:
            self._slot("print_timing", job.slot, job.task, line)

    def released(self, job: Job) -> None:
        text = f"stop processing: n_tokens = {job.held_tokens}, truncated = {int(job.truncated)}"
        self._slot("release", job.slot, job.task, text)

    def cancelled(self, job: Job) -> None:
        self._server("W", "stop", f"cancel task, id_task = {job.task}")

    def failed(self, task: int, message: str) -> None:
        self._server("E", "send_error", f"task id = {task}, error: {message}")

    # --- inside -------------------------------------------------------------------------------

    def _updated(self, job: Job, text: str, level: str = "I") -> None:
        name = "operator()" if self._build.journal == "J8" else "update_slots"
        self._slot(name, job.slot, job.task, text, level)

    def _slot(self, function: str, slot: int, task: int, text: str, level: str = "I") -> None:
        self._prefixed(level, f"slot {function:>12}: id {slot:2d} | task {task} | {text}")

    def _server(self, level: str, function: str, text: str) -> None:
        self._prefixed(level, f"srv  {function:>12}: {text}")

    def _prefixed(self, level: str, text: str) -> None:
        prefix = f"{stamp(self._clock())} {level} " if self._build.prefix_shown else ""
        self.write(prefix + text)


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
