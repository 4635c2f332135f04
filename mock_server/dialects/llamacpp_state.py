"""What llama-server tells of itself: `/v1/models`, `/props`, `/slots`."""

from __future__ import annotations

from typing import Any

from headroom_bench.box import SlotView
from mock_server.dialects.llamacpp_ask import default_settings, short_settings
from mock_server.dialects.llamacpp_builds import Build
from mock_server.front import Front
from mock_server.service import Seat
from mock_server.tokens import VOCAB_TOKENS

_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
    "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

_TEMPLATE_CAPS = {
    "supports_object_arguments": False,
    "supports_parallel_tool_calls": False,
    "supports_preserve_reasoning": False,
    "supports_reasoning_effort": False,
    "supports_string_content": True,
    "supports_system_role": True,
    "supports_tool_calls": False,
    "supports_tools": True,
    "supports_typed_content": True,
}


def models(front: Front, build: Build) -> dict[str, Any]:
    name, facts = front.model, front.facts
    meta = {
        "vocab_type": 2,
        "n_vocab": VOCAB_TOKENS,
        "n_ctx": front.service.ctx_per_slot,
        "n_ctx_train": facts.trained_ctx,
        "n_embd": facts.width,
        "n_params": facts.parameters,
        "size": facts.weight_bytes,
        "ftype": facts.quant,
    }
    listed = {
        "id": name,
        "aliases": [name],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": front.started_unix_s,
        "owned_by": "llamacpp",
        "meta": build.without_later("meta", meta),
    }
    data = [build.without_later("model", listed)]
    return {"models": [_ollama_like(name)], "object": "list", "data": data}


def props(front: Front, build: Build) -> dict[str, Any]:
    name, options = front.model, front.options
    settings = build.settings(default_settings())
    modalities = {"vision": False, "video": False, "audio": False}
    told = {
        "default_generation_settings": {
            "params": short_settings(settings),
            "n_ctx": front.service.ctx_per_slot,
        },
        "total_slots": front.service.slots,
        "model_alias": name,
        "model_ftype": front.facts.quant,
        "model_path": name,
        "modalities": build.without_later("modalities", modalities),
        "media_marker": "<__media__>",
        "endpoint_slots": True,
        "endpoint_props": False,
        "endpoint_metrics": options.metrics,
        **{key: value for ui in build.webui for key, value in _webui(ui).items()},
        "chat_template": _TEMPLATE,
        "chat_template_caps": build.without_later("caps", _TEMPLATE_CAPS),
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "build_info": build.info,
        "is_sleeping": False,
        "cors_proxy_enabled": False,
        "mock": front.lateness(),
    }
    return build.without_later("props", told)


def _webui(name: str) -> dict[str, Any]:
    return {name: False, f"{name}_settings": {}}


def slot(front: Front, build: Build, view: SlotView) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": view.index,
        "n_ctx": front.service.ctx_per_slot,
        "speculative": front.service.box.design.speculation is not None,
        "is_processing": view.request_id is not None,
    }
    job = front.service.jobs.get(view.request_id or "")
    if job is None:
        return told | build.without_later("slot", _past(front.service.seats[view.index]))
    upcoming = {
        "has_next_token": True,
        "has_new_line": False,
        "n_remain": job.answer.tokens - view.generated,
        "n_decoded": view.generated,
    }
    now = {
        "id_task": job.task,
        "n_prompt_tokens": view.prompt_tokens + view.generated,
        "n_prompt_tokens_processed": view.processed_tokens,
        "n_prompt_tokens_cache": view.cached_tokens,
        "params": short_settings(job.settings),
        "next_token": [upcoming],
    }
    return told | build.without_later("slot", now)


def _past(seat: Seat) -> dict[str, Any]:
    """What an idle slot tells of the task that it ran last; nothing where there was none."""
    if seat.task < 0:
        return {}
    upcoming = {"has_next_token": False, "has_new_line": False, "n_remain": -1, "n_decoded": 0}
    return {
        "id_task": seat.task,
        "n_prompt_tokens": seat.held_tokens,
        "n_prompt_tokens_processed": 0,
        "n_prompt_tokens_cache": 0,
        "params": short_settings(seat.settings),
        "next_token": [upcoming],
    }


def _ollama_like(name: str) -> dict[str, Any]:
    details = {
        "parent_model": "",
        "format": "gguf",
        "family": "",
        "families": [""],
        "parameter_size": "",
        "quantization_level": "",
    }
    return {
        "name": name,
        "model": name,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"],
        "parameters": "",
        "details": details,
    }
