"""vLLM 0.32's `/metrics`, with its names, labels and buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

from mock_server.dialects.openai_events import finish_reason
from mock_server.jobs import Job
from mock_server.service import Service

_TTFT: tuple[float, ...] = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_TTFT += (20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_ITL: tuple[float, ...] = (
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_ITL += (20.0, 40.0, 80.0)
_LONG: tuple[float, ...] = (
    0.3,
    0.5,
    0.8,
    1.0,
    1.5,
    2.0,
    2.5,
    5.0,
    10.0,
    15.0,
    20.0,
    30.0,
    40.0,
    50.0,
    60.0,
    120.0,
)
_LONG += (240.0, 480.0, 960.0, 1920.0, 7680.0)
_COUNT = tuple(float(m * 10**e) for e in range(5) for m in (1, 2, 5))
_FINISHED = ("stop", "length", "abort", "error", "repetition")
_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")

_TIMES = {
    "time_to_first_token_seconds": _TTFT,
    "inter_token_latency_seconds": _ITL,
    "request_time_per_output_token_seconds": _ITL,
    "e2e_request_latency_seconds": _LONG,
    "request_queue_time_seconds": _LONG,
    "request_inference_time_seconds": _LONG,
    "request_prefill_time_seconds": _LONG,
    "request_decode_time_seconds": _LONG,
    "request_prompt_tokens": _COUNT,
    "request_generation_tokens": _COUNT,
    "request_max_num_generation_tokens": _COUNT,
    "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
    "request_params_max_tokens": _COUNT,
    "request_num_preemptions": (0.0, 1.0, 2.0, 5.0, 10.0),
    "request_prefill_kv_computed_tokens": _COUNT,
}


class Histogram:
    """Counts of values up to each bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        so_far = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            so_far += count
            shown = "+Inf" if bound is None else bound
            yield f'{name}_bucket{{engine="0",le="{shown}",{labels}}} {float(so_far)}'
        yield f'{name}_count{{engine="0",{labels}}} {float(so_far)}'
        yield f'{name}_sum{{engine="0",{labels}}} {self._sum}'


class VllmMetrics:
    """Counts requests that are over; gauges are read when asked."""

    def __init__(self, model: str, service: Service) -> None:
        self._model = model
        self._service = service
        self._histograms = {name: Histogram(bounds) for name, bounds in _TIMES.items()}
        self._finished: Counter[str] = Counter()
        self._read = 0
        self._cached = 0
        self._generated = 0

    def over(self, job: Job) -> None:
        """The box is done with `job`."""
        reasons = {"cancelled": "abort", "failed": "error"}
        reason = reasons.get(job.outcome) or finish_reason(job).replace("tool_calls", "stop")
        self._finished[reason] += 1
        self._read += job.read_tokens
        self._cached += job.cached
        self._generated += job.generated
        if job.outcome != "done":
            return
        add = {name: histogram.add for name, histogram in self._histograms.items()}
        add["time_to_first_token_seconds"](job.queue_s + job.prompt_s)
        scale_ns = job.decode_s / max(1, job.due_ns[-1] - job.due_ns[0])
        for before, after in zip(job.due_ns, job.due_ns[1:], strict=False):
            add["inter_token_latency_seconds"]((after - before) * scale_ns)
        if job.generated > 1:
            add["request_time_per_output_token_seconds"](job.decode_s / (job.generated - 1))
        add["e2e_request_latency_seconds"](job.queue_s + job.prompt_s + job.decode_s)
        add["request_queue_time_seconds"](job.queue_s)
        add["request_inference_time_seconds"](job.prompt_s + job.decode_s)
        add["request_prefill_time_seconds"](job.prompt_s)
        add["request_decode_time_seconds"](job.decode_s)
        add["request_prompt_tokens"](job.prompt_tokens)
        add["request_generation_tokens"](job.generated)
        add["request_max_num_generation_tokens"](job.generated)
        add["request_params_n"](1)
        add["request_params_max_tokens"](job.wanted_tokens)
        add["request_num_preemptions"](job.preemptions)
        add["request_prefill_kv_computed_tokens"](job.read_tokens)

    def text(self) -> str:
        """Prometheus text."""
        service = self._service
        usage, room = service.box.usage, service.room_tokens
        named = f'model_name="{self._model}"'
        lines: list[str] = []

        def gauge(name: str, value: float, kind: str = "gauge", more: str = "") -> None:
            lines.append(f"# TYPE vllm:{name} {kind}")
            lines.append(f'vllm:{name}{{engine="0",{more}{named}}} {float(value)}')

        gauge("num_requests_running", service.running)
        gauge("num_requests_waiting", service.waiting)
        gauge("kv_cache_usage_perc", service.box.snapshot().memory_share or 0.0)
        gauge("prefix_cache_queries_total", self._read + self._cached, "counter")
        gauge("prefix_cache_hits_total", self._cached, "counter")
        gauge("num_preemptions_total", usage.preempted, "counter")
        gauge("prompt_tokens_total", self._read + self._cached, "counter")
        gauge("prompt_tokens_cached_total", self._cached, "counter")
        gauge("generation_tokens_total", self._generated, "counter")
        if service.box.design.speculation is not None:
            gauge("spec_decode_num_draft_tokens_total", usage.drafted, "counter")
            gauge("spec_decode_num_accepted_tokens_total", usage.accepted, "counter")
        lines.append("# TYPE vllm:prompt_tokens_by_source_total counter")
        by_source = dict(zip(_SOURCES, (self._read, self._cached, 0), strict=True))
        for source, count in by_source.items():
            labels = f'engine="0",{named},source="{source}"'
            lines.append(f"vllm:prompt_tokens_by_source_total{{{labels}}} {float(count)}")
        lines.append("# TYPE vllm:request_success_total counter")
        for reason in _FINISHED:
            labels = f'engine="0",finished_reason="{reason}",{named}'
            lines.append(f"vllm:request_success_total{{{labels}}} {float(self._finished[reason])}")
        for name, histogram in self._histograms.items():
            lines.append(f"# TYPE vllm:{name} histogram")
            lines += histogram.lines(f"vllm:{name}", named)
        lines.append("# TYPE vllm:cache_config_info gauge")
        config = f'block_size="16",enable_prefix_caching="True",engine="0",{self._config(room)}'
        lines.append(f"vllm:cache_config_info{{{config}}} 1.0")
        return "\n".join(lines) + "\n"

    def _config(self, room: int) -> str:
        return f'kv_cache_size_tokens="{room}",num_gpu_blocks="{room // 16}"'
