"""llama-server's `/metrics`, with the names and words of the builds that were recorded."""

from __future__ import annotations

from dataclasses import replace

from mock_server.dialects.llamacpp_builds import Build
from mock_server.jobs import Job
from mock_server.service import Service, Totals

_PER_PLACE = "spec_decode_num_accepted_tokens_per_pos_total"
_NEWEST = (
    (
        "prompt_tokens_total",
        "counter",
        "Number of prompt tokens processed, excluding cached tokens",
    ),
    ("prompt_tokens_cached_total", "counter", "Number of prompt tokens reused from the cache"),
    ("prompt_seconds_total", "counter", "Total time spent processing prompts"),
    ("tokens_predicted_total", "counter", "Number of generation tokens processed"),
    ("tokens_predicted_seconds_total", "counter", "Total time spent generating tokens"),
    (
        "n_decode_total",
        "counter",
        "Total number of llama_decode() calls, excluding speculative decoding and multimodal "
        "decoding",
    ),
    ("n_tokens_max", "counter", "Largest observed sequence length (prompt + generation)"),
    (
        "spec_decode_num_draft_tokens_total",
        "counter",
        "Speculative: Total draft tokens generated",
    ),
    (
        "spec_decode_num_accepted_tokens_total",
        "counter",
        "Speculative: Total draft tokens accepted by the target model",
    ),
    (
        "spec_decode_num_drafts_total",
        "counter",
        "Speculative: Total speculative decoding verification steps",
    ),
    ("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s"),
    ("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s"),
    ("requests_processing", "gauge", "Number of requests processing"),
    ("requests_deferred", "gauge", "Number of requests deferred"),
    ("n_busy_slots_per_decode", "gauge", "Average number of busy slots per llama_decode() call"),
)
"""b11549: name, kind, words."""
_COUNTERS = (
    ("prompt_tokens_total", "counter", "Number of prompt tokens processed."),
    ("prompt_seconds_total", "counter", "Prompt process time"),
    ("tokens_predicted_total", "counter", "Number of generation tokens processed."),
    ("tokens_predicted_seconds_total", "counter", "Predict process time"),
    ("n_decode_total", "counter", "Total number of llama_decode() calls"),
    ("n_tokens_max", "counter", "Largest observed n_tokens."),
)
_BUSY = "n_busy_slots_per_decode"
_BUSY_WORDS = "Average number of busy slots per llama_decode() call"
_GAUGES = (
    ("prompt_tokens_seconds", "gauge", "Average prompt throughput in tokens/s."),
    ("predicted_tokens_seconds", "gauge", "Average generation throughput in tokens/s."),
    ("requests_processing", "gauge", "Number of requests processing."),
    ("requests_deferred", "gauge", "Number of requests deferred."),
)
_FAMILIES = {
    "J8": _NEWEST,
    "J6": (*_COUNTERS, *_GAUGES, (_BUSY, "gauge", _BUSY_WORDS)),
    "J4": (*_COUNTERS, (_BUSY, "counter", _BUSY_WORDS), *_GAUGES),
}
"""By the form of the journal: name, kind, words."""


class LlamaCppMetrics:
    """Counters of the server's life, and the two rates since the last look: each scrape starts them
    anew, so that two scrapers spoil each other's."""

    def __init__(self, service: Service, build: Build) -> None:
        self._service = service
        self._families = _FAMILIES[build.journal]
        self._seen = Totals()
        self._drafts = 0
        design = service.box.design
        self._accepted_at = [0] * (design.speculation.tokens if design.speculation else 0)
        service.on_over.append(self._over)

    def _over(self, job: Job) -> None:
        if job.outcome != "done" or not job.drafted:
            return
        for accepted in job.accepted_by_pass():
            self._drafts += 1
            for place in range(accepted):
                self._accepted_at[place] += 1

    def text(self) -> str:
        """Prometheus text; the rates begin anew."""
        values = self._values()
        lines: list[str] = []
        for name, kind, words in self._families:
            value = values[name]
            shown = f"{value:g}" if isinstance(value, float) else str(value)
            lines += _family(name, kind, words)
            lines.append(f"llamacpp:{name} {shown}")
        if self._families is _NEWEST and any(self._accepted_at):
            lines += _family(_PER_PLACE, "counter", "Accepted tokens per draft position")
            for place, count in enumerate(self._accepted_at):
                lines.append(f'llamacpp:{_PER_PLACE}{{position="{place}"}} {count}')
        return "\n".join(lines) + "\n"

    def _values(self) -> dict[str, float]:
        totals, usage = self._service.totals, self._service.box.usage
        seen, self._seen = self._seen, replace(totals)
        snapshot = self._service.box.snapshot()
        read_s = totals.prompt_s - seen.prompt_s
        made_s = totals.generation_s - seen.generation_s
        read = totals.prompt_tokens - seen.prompt_tokens
        made = totals.generated_tokens - seen.generated_tokens
        return {
            "prompt_tokens_total": totals.prompt_tokens,
            "prompt_tokens_cached_total": totals.cached_tokens,
            "prompt_seconds_total": totals.prompt_s,
            "tokens_predicted_total": totals.generated_tokens,
            "tokens_predicted_seconds_total": totals.generation_s,
            "n_decode_total": usage.passes,
            "n_tokens_max": totals.longest_tokens,
            "spec_decode_num_draft_tokens_total": usage.drafted,
            "spec_decode_num_accepted_tokens_total": usage.accepted,
            "spec_decode_num_drafts_total": self._drafts,
            "prompt_tokens_seconds": read / read_s if read_s else 0,
            "predicted_tokens_seconds": made / made_s if made_s else 0,
            "requests_processing": len(snapshot.slots) - snapshot.free,
            "requests_deferred": snapshot.queued,
            "n_busy_slots_per_decode": usage.decode_tokens / usage.passes if usage.passes else 0,
        }


def _family(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP llamacpp:{name} {words}", f"# TYPE llamacpp:{name} {kind}"]
