"""vLLM 0.32's `/metrics`, with its names, words, labels and buckets.

Left out are the families of the HTTP server and of Python, and the birthday (`_created`) of each
counter.
"""

from __future__ import annotations

from collections import Counter

from mock_server.dialects.openai_events import finish_reason
from mock_server.dialects.vllm_metric_names import WORDS, buckets
from mock_server.jobs import Job
from mock_server.prometheus import Histogram, line
from mock_server.service import Service

_FINISHED = ("stop", "length", "abort", "error", "repetition")
_NEVER = {
    "engine_sleep_state": ("sleep_state", ("awake", "weights_offloaded", "discard_all")),
    "admission_rejections_total": ("reason", ("max_num_queued_reqs", "max_num_queued_tokens")),
}
"""Families of which nothing happens here, with their labels: the first engine state is 1."""
_ONLY = {"admission_rejections_total": "model_name", "cache_config_info": "engine"}
"""Families with one of the two usual labels."""

Sample = tuple[dict[str, str], float]


class VllmMetrics:
    """Counts requests that are over; gauges are read when asked."""

    def __init__(self, model: str, service: Service) -> None:
        self._labels = {"engine": "0", "model_name": model}
        self._service = service
        bounds = buckets(service.ctx_per_slot)
        self._histograms = {name: Histogram(bound) for name, bound in bounds.items()}
        self._finished: Counter[str] = Counter()
        self._read = 0
        self._cached = 0
        self._generated = 0
        self._drafts = 0
        self._accepted_at: Counter[int] = Counter()
        self._passes_seen = (0, 0)

    def over(self, job: Job) -> None:
        """The box is done with `job`."""
        self._see_passes()
        reasons = {"cancelled": "abort", "failed": "error"}
        reason = reasons.get(job.outcome) or finish_reason(job).replace("tool_calls", "stop")
        self._finished[reason] += 1
        self._read += job.read_tokens
        self._cached += job.cached
        self._generated += job.generated
        if job.outcome != "done":
            return
        if job.drafted:
            self._see_drafts(job)
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

    def _see_passes(self) -> None:
        """Passes since the last look, each with as many tokens as they had on average."""
        usage = self._service.box.usage
        seen, self._passes_seen = (
            self._passes_seen,
            (usage.passes, usage.prefill_tokens + usage.decode_tokens),
        )
        passes, tokens = (now - before for now, before in zip(self._passes_seen, seen, strict=True))
        if passes:
            self._histograms["iteration_tokens_total"].add(tokens / passes, passes)

    def _see_drafts(self, job: Job) -> None:
        for accepted in job.accepted_by_pass():
            self._drafts += 1
            self._accepted_at.update(range(accepted))

    def text(self) -> str:
        """Prometheus text."""
        self._see_passes()
        samples = self._samples()
        lines: list[str] = []
        for name, words in WORDS.items():
            if name.startswith("spec_decode") and self._service.box.design.speculation is None:
                continue
            histogram = self._histograms.get(name)
            kind = "histogram" if histogram else "counter" if name.endswith("_total") else "gauge"
            lines += [f"# HELP vllm:{name} {words}", f"# TYPE vllm:{name} {kind}"]
            if histogram is not None:
                lines += histogram.lines(f"vllm:{name}", self._labels)
                continue
            for more, value in samples.get(name, [({}, 0.0)]):
                lines.append(line(f"vllm:{name}", self._own(name) | more, value))
        return "\n".join(lines) + "\n"

    def _own(self, family: str) -> dict[str, str]:
        only = _ONLY.get(family)
        return {only: self._labels[only]} if only else self._labels

    def _samples(self) -> dict[str, list[Sample]]:
        """Of all families but histograms; those that are not here are 0."""
        service = self._service
        usage = service.box.usage
        design = service.box.design
        asked = self._read + self._cached
        hits = {"local_compute": self._read, "local_cache_hit": self._cached}
        tiers = ("host", "p2p", "disk", "external_unspecified")
        plain = {
            "num_requests_running": service.running,
            "num_requests_waiting": service.waiting,
            "kv_cache_usage_perc": service.box.snapshot().memory_share or 0.0,
            "prefix_cache_queries_total": asked,
            "prefix_cache_hits_total": self._cached,
            "num_preemptions_total": usage.preempted,
            "prompt_tokens_total": asked,
            "prompt_tokens_cached_total": self._cached,
            "generation_tokens_total": self._generated,
            "spec_decode_num_drafts_total": self._drafts,
            "spec_decode_num_draft_tokens_total": usage.drafted,
            "spec_decode_num_accepted_tokens_total": usage.accepted,
        }
        drafted = range(design.speculation.tokens if design.speculation else 0)
        waiting = {"capacity": service.waiting, "deferred": 0}
        by_label: dict[str, list[Sample]] = {
            "num_requests_waiting_by_reason": _by("reason", waiting),
            "prompt_tokens_by_source_total": _by("source", hits | {"external_kv_transfer": 0}),
            "prompt_tokens_cached_by_source_total": _by(
                "source", {"device": self._cached} | dict.fromkeys(tiers, 0)
            ),
            "request_success_total": _by(
                "finished_reason", {reason: self._finished[reason] for reason in _FINISHED}
            ),
            "spec_decode_num_accepted_tokens_per_pos_total": _by(
                "position", {str(place): self._accepted_at[place] for place in drafted}
            ),
            "cache_config_info": [(self._config(), 1.0)],
        }
        for name, (label, values) in _NEVER.items():
            by_label[name] = _by(label, {value: int(value == "awake") for value in values})
        for name, value in plain.items():
            by_label[name] = [({}, float(value))]
        return by_label

    def _config(self) -> dict[str, str]:
        room, design = self._service.room_tokens, self._service.box.design
        return {
            "block_size": str(design.page_tokens),
            "enable_prefix_caching": str(design.prefix_cache),
            "kv_cache_size_tokens": str(room),
            "num_gpu_blocks": str(room // design.page_tokens),
        }


def _by(label: str, values: dict[str, int]) -> list[Sample]:
    return [({label: name}, float(value)) for name, value in values.items()]
