"""Names and words of vLLM 0.32's `/metrics`, in the order in which it tells them."""

from __future__ import annotations

WORDS = {
    "spec_decode_num_drafts_total": "Number of spec decoding drafts.",
    "spec_decode_num_draft_tokens_total": "Number of draft tokens.",
    "spec_decode_num_accepted_tokens_total": "Number of accepted tokens.",
    "spec_decode_num_accepted_tokens_per_pos_total": "Accepted tokens per draft position.",
    "estimated_flops_per_gpu_total": (
        "Estimated number of floating point operations per GPU (for Model Flops "
        "Utilization calculations)."
    ),
    "estimated_read_bytes_per_gpu_total": (
        "Estimated number of bytes read from memory per GPU (for Model Flops Utilization "
        "calculations)."
    ),
    "estimated_write_bytes_per_gpu_total": (
        "Estimated number of bytes written to memory per GPU (for Model Flops Utilization"
        " calculations)."
    ),
    "num_requests_running": "Number of requests in model execution batches.",
    "num_requests_waiting": "Number of requests waiting to be processed.",
    "num_requests_waiting_by_reason": (
        "Number of waiting requests by reason. Reason labels: 'capacity' = waiting for "
        "scheduling capacity; 'deferred' = deferred by transient constraints (LoRA "
        "budget, KV transfer, blocked status). Sum of all reasons equals "
        "vllm:num_requests_waiting."
    ),
    "engine_sleep_state": (
        "Engine sleep state; awake = 0 means engine is sleeping; awake = 1 means engine "
        "is awake; weights_offloaded = 1 means sleep level 1; discard_all = 1 means sleep"
        " level 2."
    ),
    "kv_cache_usage_perc": "KV-cache usage. 1 means 100 percent usage.",
    "prefix_cache_queries_total": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits_total": "Prefix cache hits, in terms of number of cached tokens.",
    "external_prefix_cache_queries_total": (
        "External prefix cache queries from KV connector cross-instance cache sharing, in"
        " terms of number of queried tokens."
    ),
    "external_prefix_cache_hits_total": (
        "External prefix cache hits from KV connector cross-instance cache sharing, in "
        "terms of number of cached tokens."
    ),
    "mm_cache_queries_total": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits_total": "Multi-modal cache hits, in terms of number of cached items.",
    "num_preemptions_total": "Cumulative number of preemption from the engine.",
    "prompt_tokens_total": "Number of prefill tokens processed.",
    "prompt_tokens_by_source_total": "Number of prompt tokens by source.",
    "prompt_tokens_cached_total": "Number of cached prompt tokens (local + external).",
    "prompt_tokens_cached_by_source_total": (
        "Prefix-cache hit tokens by the cache tier that supplied them: device (local "
        "HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM "
        "instance) or external_unspecified. Counted at admission; sums to "
        "vllm:prefix_cache_hits + vllm:external_prefix_cache_hits."
    ),
    "generation_tokens_total": "Number of generation tokens processed.",
    "request_success_total": "Count of successfully processed requests.",
    "admission_rejections_total": (
        "Number of admission attempts rejected by a queue limit, by reason."
    ),
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "request_max_num_generation_tokens": (
        "Histogram of maximum number of requested generation tokens."
    ),
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": (
        "Histogram of time_per_output_token_seconds per request."
    ),
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": (
        "Histogram of new KV tokens computed during prefill (excluding cached tokens)."
    ),
    "cache_config_info": "Information of the LLMEngine CacheConfig",
}
"""Each family's help. Those of drafts come only where there are drafts."""

_SECONDS = (
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
_FIRST = (*_SECONDS, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
_STEPS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_EACH = (*_STEPS, 20.0, 40.0, 80.0)
_MINUTE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0)
_LONG = (*_MINUTE, 240.0, 480.0, 960.0, 1920.0, 7680.0)


def buckets(ctx: int) -> dict[str, tuple[float, ...]]:
    """The bounds of each histogram. Those of counts end with the longest sequence, `ctx` tokens."""
    counts = tuple(float(m * 10**e) for e in range(8) for m in (1, 2, 5) if m * 10**e <= ctx)
    passes = (1.0, *(float(2**e) for e in range(3, 15)))
    return {
        "request_prompt_tokens": counts,
        "request_generation_tokens": counts,
        "iteration_tokens_total": passes,
        "request_max_num_generation_tokens": counts,
        "request_params_n": (1.0, 2.0, 5.0, 10.0, 20.0),
        "request_params_max_tokens": counts,
        "time_to_first_token_seconds": _FIRST,
        "inter_token_latency_seconds": _EACH,
        "request_time_per_output_token_seconds": _EACH,
        "e2e_request_latency_seconds": _LONG,
        "request_queue_time_seconds": _LONG,
        "request_inference_time_seconds": _LONG,
        "request_prefill_time_seconds": _LONG,
        "request_decode_time_seconds": _LONG,
        "request_num_preemptions": (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
        "request_prefill_kv_computed_tokens": counts,
    }
