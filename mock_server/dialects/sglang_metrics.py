"""SGLang's `/metrics` (0.5.23): its names as read in its source; the buckets are ours."""

from __future__ import annotations

from mock_server.jobs import Job
from mock_server.prometheus import Histogram, line
from mock_server.service import Service

_SECONDS = (0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0)
_TOKEN_S = (0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4)
_HISTOGRAMS = {
    "time_to_first_token_seconds": (*_SECONDS, 200.0, 400.0),
    "inter_token_latency_seconds": (*_TOKEN_S, 0.8, 1.0, 2.0, 4.0, 8.0),
    "request_time_per_output_token_seconds": (*_TOKEN_S, 0.8, 1.0, 2.0, 4.0, 8.0),
    "e2e_request_latency_seconds": (*_SECONDS, 200.0, 400.0, 800.0, 1600.0),
    "queue_time_seconds": (*_SECONDS, 200.0, 400.0),
}
_STAGE = "per_stage_req_latency_seconds"
_STAGES = ("prefill_waiting", "prefill_forward", "decode_forward")


class SglangMetrics:
    """Counts requests that are over; gauges are read when asked."""

    def __init__(self, model: str, service: Service) -> None:
        self._labels = {"model_name": model}
        self._service = service
        self._histograms = {name: Histogram(bounds) for name, bounds in _HISTOGRAMS.items()}
        self._stages = {stage: Histogram((*_SECONDS, 200.0, 400.0)) for stage in _STAGES}
        self._seen = (0.0, 0)

    def over(self, job: Job) -> None:
        """The box is done with `job`."""
        if job.outcome != "done":
            return
        add = {name: histogram.add for name, histogram in self._histograms.items()}
        add["time_to_first_token_seconds"](job.queue_s + job.prompt_s)
        add["e2e_request_latency_seconds"](job.queue_s + job.prompt_s + job.decode_s)
        add["queue_time_seconds"](job.queue_s)
        if job.generated > 1:
            each_s = job.decode_s / (job.generated - 1)
            add["request_time_per_output_token_seconds"](each_s)
            add["inter_token_latency_seconds"](each_s, job.generated - 1)
        for stage, spent_s in zip(_STAGES, (job.queue_s, job.prompt_s, job.decode_s), strict=True):
            self._stages[stage].add(spent_s)

    def text(self) -> str:
        """Prometheus text."""
        service, totals = self._service, self._service.totals
        usage = service.box.usage
        asked = totals.prompt_tokens + totals.cached_tokens
        held = sum(view.held_tokens for view in service.box.snapshot().slots if view.request_id)
        steps = totals.generated_tokens - totals.accepted
        counters = {
            "prompt_tokens_total": asked,
            "generation_tokens_total": totals.generated_tokens,
            "cached_tokens_total": totals.cached_tokens,
        }
        gauges = {
            "num_running_reqs": service.running,
            "num_queue_reqs": service.waiting,
            "num_used_tokens": held,
            "token_usage": held / service.room_tokens,
            "gen_throughput": self._throughput(),
            "cache_hit_rate": totals.cached_tokens / asked if asked else 0.0,
            "num_retracted_reqs": usage.preempted,
        }
        if service.box.design.speculation is not None:
            gauges["spec_accept_length"] = totals.generated_tokens / steps if steps else 0.0
            gauges["spec_accept_rate"] = usage.accepted / usage.drafted if usage.drafted else 0.0
        lines: list[str] = []
        for kind, rows in (("counter", counters), ("gauge", gauges)):
            for name, value in rows.items():
                lines.append(f"# TYPE sglang:{name} {kind}")
                lines.append(line(f"sglang:{name}", self._labels, value))
        for name, histogram in self._histograms.items():
            lines.append(f"# TYPE sglang:{name} histogram")
            lines += histogram.lines(f"sglang:{name}", self._labels)
        lines.append(f"# TYPE sglang:{_STAGE} histogram")
        for stage, histogram in self._stages.items():
            lines += histogram.lines(f"sglang:{_STAGE}", self._labels | {"stage": stage})
        return "\n".join(lines) + "\n"

    def _throughput(self) -> float:
        """Tokens a second since the last look; the server's own is since its last log line."""
        now, made = self._service.wall.box_s(), self._service.box.usage.decode_tokens
        (before, had), self._seen = self._seen, (now, made)
        return (made - had) / (now - before) if now > before else 0.0
