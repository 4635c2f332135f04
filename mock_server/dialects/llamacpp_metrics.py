"""llama-server's `/metrics`, with b11549's names and words."""

from __future__ import annotations

from mock_server.service import Service


def metrics_text(service: Service) -> str:
    """Prometheus text. Rates are over the server's life: the real server's start anew with every
    scrape, which makes two scrapers spoil each other's."""
    totals, usage = service.totals, service.box.usage
    snapshot = service.box.snapshot()
    busy = len(snapshot.slots) - snapshot.free
    per_pass = usage.decode_tokens / usage.passes if usage.passes else 0.0
    rows: list[tuple[str, str, str, float]] = [
        (
            "prompt_tokens_total",
            "counter",
            "Number of prompt tokens processed, excluding cached tokens",
            totals.prompt_tokens,
        ),
        (
            "prompt_tokens_cached_total",
            "counter",
            "Number of prompt tokens reused from the cache",
            totals.cached_tokens,
        ),
        (
            "prompt_seconds_total",
            "counter",
            "Total time spent processing prompts",
            totals.prompt_s,
        ),
        (
            "tokens_predicted_total",
            "counter",
            "Number of generation tokens processed",
            totals.generated_tokens,
        ),
        (
            "tokens_predicted_seconds_total",
            "counter",
            "Total time spent generating tokens",
            totals.generation_s,
        ),
        (
            "n_decode_total",
            "counter",
            "Total number of llama_decode() calls, excluding speculative decoding and multimodal "
            "decoding",
            usage.passes,
        ),
        (
            "n_tokens_max",
            "counter",
            "Largest observed sequence length (prompt + generation)",
            totals.longest_tokens,
        ),
        (
            "prompt_tokens_seconds",
            "gauge",
            "Average prompt throughput in tokens/s",
            totals.prompt_tokens / totals.prompt_s if totals.prompt_s else 0.0,
        ),
        (
            "predicted_tokens_seconds",
            "gauge",
            "Average generation throughput in tokens/s",
            totals.generated_tokens / totals.generation_s if totals.generation_s else 0.0,
        ),
        ("requests_processing", "gauge", "Number of requests processing", busy),
        ("requests_deferred", "gauge", "Number of requests deferred", snapshot.queued),
        (
            "n_busy_slots_per_decode",
            "gauge",
            "Average number of busy slots per llama_decode() call",
            per_pass,
        ),
    ]
    if service.box.design.speculation is not None:
        rows += [
            (
                "spec_decode_num_draft_tokens_total",
                "counter",
                "Speculative: Total draft tokens generated",
                usage.drafted,
            ),
            (
                "spec_decode_num_accepted_tokens_total",
                "counter",
                "Speculative: Total draft tokens accepted by the target model",
                usage.accepted,
            ),
        ]
    lines: list[str] = []
    for name, kind, words, value in rows:
        lines += [
            f"# HELP llamacpp:{name} {words}",
            f"# TYPE llamacpp:{name} {kind}",
            f"llamacpp:{name} {value:g}"
            if isinstance(value, float)
            else f"llamacpp:{name} {value}",
        ]
    return "\n".join(lines) + "\n"
