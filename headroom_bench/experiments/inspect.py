"""What a model is made of: shape, weights by part and type, bytes a pass, cache, memory, fit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headroom_bench.catalog import (
    Model,
    Quant,
    find_hardware,
    find_model,
    find_quant,
    find_runtime,
    twin,
)
from headroom_bench.catalog.stored import PARTS, Stored
from headroom_bench.roofline.deployment import Deployment, default_ubatch, quant_of
from headroom_bench.roofline.kv import kv_bytes
from headroom_bench.roofline.memory import OVERHEAD_GB, fit, sequence_bytes, weights_gb
from headroom_bench.roofline.remedies import remedies
from headroom_bench.roofline.weights import WeightBytes, bytes_by_role, weight_bytes

SHOWN_KV_TYPES = ("f16", "q8_0", "q4_0", "fp8")
DEFAULT_CONTEXT = 8192
_TYPE_IN_NAME = re.compile(
    r"(?<![A-Za-z0-9])(Q\d_K|Q\d_\d|MXFP4|NVFP4|BF16|F16|F32)(?![0-9])", re.I
)


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """What to look at. `context` is tokens a slot."""

    name: str
    context: int | None = None
    slots: int = 1
    kv_k: str = "f16"
    kv_v: str = "f16"
    quant: str | None = None
    hardware: str | None = None
    runtime: str = "llama.cpp"
    swa_full: bool = False
    other: str | None = None


def inspect(options: InspectOptions) -> dict[str, Any]:
    """Everything that is known of a model, as one document of plain values.

    Sizes in bytes unless the key says GB (10^9) or GiB (2^30). Raises `UserError`: no such name,
    or a file or value that is wrong.
    """
    model = find_model(options.name)
    find_runtime(options.runtime)  # a wrong name is told where nothing rests on it, too
    quant = _quant(model, options)
    weights = None if model.partial else weight_bytes(model, quant)
    document = {
        "name": model.name,
        "model": options.name,
        "source": model.source,
        "notes": model.notes,
        "same_shape_as": _known_as(model),
        "shape": _shape(model),
        "params": _params(model),
        "weights": _weights(model, quant, weights, options.name),
        "per_pass": _per_pass(model, weights),
        "kv": _kv(model, options),
        "memory": _memory(model, weights, options),
        "fit": _fit(options) if options.hardware else None,
        "published": _published(model, quant),
    }
    if options.other is not None:
        document["vs"] = _versus(model, quant, options)
    return document


def _quant(model: Model, options: InspectOptions) -> Quant:
    """As the file stores it, as the user says, else as it was published."""
    if options.quant is None and model.stored is None:
        native = {model.native_quant.get("experts"), model.native_quant.get("all")}
        return find_quant("MXFP4" if "MXFP4" in native else "FP8" if "FP8" in native else "BF16")
    return quant_of(model, options.quant, find_runtime(options.runtime))


def _known_as(model: Model) -> str | None:
    known = twin(model)
    return known.name if known and known.name != model.name else None


# ---- shape --------------------------------------------------------------------------------------


def _shape(model: Model) -> dict[str, Any]:
    moe, mla, linear = model.moe, model.mla, model.linear_attention
    return {
        "family": model.family,
        "layers": model.n_layers,
        "layer_kinds": layer_kinds(model),
        "hidden_size": model.hidden_size,
        "heads": model.n_heads,
        "kv_heads": model.n_kv_heads,
        "head_dim": model.head_dim,
        "v_head_dim": model.v_head_dim or model.head_dim,
        "ffn_intermediate": model.ffn_intermediate,
        "vocab_size": model.vocab_size,
        "tied_embeddings": model.tied_embeddings,
        "max_context": model.max_context,
        "window": model.window,
        "mla": None if mla is None else {"latent": mla.kv_lora_rank, "rope": mla.qk_rope_head_dim},
        "linear_kind": linear.kind if linear else None,
        "moe": None
        if moe is None
        else {
            "experts": moe.n_experts,
            "used": moe.experts_per_token,
            "width": moe.moe_intermediate,
            "layers": moe.n_moe_layers,
            "shared": moe.n_shared_experts,
            "shared_width": moe.shared_intermediate,
            "dense_layers_first": moe.first_dense_layers,
        },
        "mtp_layers": int(model.native_speculative.get("mtp_layers", 0)),
    }


def layer_kinds(model: Model) -> dict[str, int]:
    """Layers by what they keep of the past: everything, a window, a latent, a state, nothing."""
    if squeezed := model.compressed_attention:
        return {"compressed": squeezed.n_layers}
    kinds: dict[str, int] = {}
    if swa := model.sliding_window:
        kinds = {"full": swa.n_global_layers, "window": swa.n_local_layers}
    elif linear := model.linear_attention:
        kinds = {"full": linear.n_full_attention_layers, "state": linear.n_linear_layers}
    else:
        kinds = {"full": model.n_attention_layers or model.n_layers}
    if model.mla:
        kinds = {"latent" if kind == "full" else kind: count for kind, count in kinds.items()}
    none = model.n_layers - sum(kinds.values())
    if none > 0:
        kinds["no_cache"] = none
    return {kind: count for kind, count in kinds.items() if count}


def _params(model: Model) -> dict[str, Any] | None:
    if model.partial:
        return None
    params = model.params()
    published = model.params_total_b
    return {
        "total_b": params.total / 1e9,
        "active_b": params.active / 1e9,
        "published_total_b": published,
        "published_active_b": model.params_active_b,
        "counted_in": "file" if model.stored else "shape",
        "embedding": params.embedding,
        "per_layer_embedding": params.per_layer_embedding,
        "output": params.head,
        "attention": params.attention,
        "dense_ffn": params.dense_ffn,
        "experts": params.routed,
        "shared_experts": params.shared,
        "router": params.router,
        "other": params.other,
    }


# ---- weights ------------------------------------------------------------------------------------


def _weights(
    model: Model, quant: Quant, weights: WeightBytes | None, name: str
) -> dict[str, Any] | None:
    if weights is None:
        return None
    stored = model.stored
    values = stored.values() if stored else model.params().total
    return {
        "quant": quant.name,
        "types_only_in_name": _missing_types(name, stored) if stored else [],
        "told_by": "file" if stored else "table",
        "bits_per_weight": weights.total * 8 / values,
        "tensor_bytes": weights.total,
        "file_bytes": stored.file_bytes if stored else None,
        "parts": _parts(model, quant),
        "types": None
        if stored is None
        else {
            name: {"tensors": tensors, "bytes": size}
            for name, (tensors, size) in stored.by_type().items()
        },
        "groups": None
        if stored is None
        else [
            {"role": g.role, "type": g.type, "tensors": g.tensors, "bytes": g.size_bytes}
            for g in stored.groups
        ],
    }


def _missing_types(name: str, stored: Stored) -> list[str]:
    """Types that the file's name claims and no tensor has: the name is not the contents."""
    claimed = {match[0].upper() for match in _TYPE_IN_NAME.finditer(Path(name).name)}
    return sorted(claimed - stored.by_type().keys())


def _parts(model: Model, quant: Quant) -> dict[str, float]:
    """Bytes of each part; they sum to those of all tensors."""
    size = bytes_by_role(model, quant)
    return {part: sum(size[role] for role in roles) for part, roles in PARTS.items()}


def _per_pass(model: Model, weights: WeightBytes | None) -> dict[str, Any] | None:
    """Weights that one pass of one sequence reads (Tuning article, "What a token costs")."""
    if weights is None:
        return None
    used = model.moe.experts_per_token if model.moe else 0
    routed = used * weights.one_expert * weights.moe_layers
    return {
        "always_active": weights.always_read,
        "routed": routed,
        "total": weights.always_read + routed,
        "always_active_share": weights.always_read / (weights.always_read + routed),
        "experts_used": used,
        "experts": model.moe.n_experts if model.moe else 0,
    }


def _published(model: Model, quant: Quant) -> dict[str, Any] | None:
    """The Methodology page's closed form: published parameters at its own width for the format."""
    if model.params_total_b is None or quant.methodology_bpw is None:
        return None
    active = model.params_active_b or model.params_total_b
    return {
        "bits_per_weight": quant.methodology_bpw,
        "weights_gb": weights_gb(model.params_total_b, quant.methodology_bpw),
        "per_token_gb": weights_gb(active, quant.methodology_bpw),
    }


# ---- cache and memory ---------------------------------------------------------------------------


def _kv(model: Model, options: InspectOptions) -> dict[str, Any]:
    shape = model.kv()
    types = dict.fromkeys((*SHOWN_KV_TYPES, options.kv_k, options.kv_v))
    by_type = {}
    for name in types:
        kv = kv_bytes(model, name, name, swa_full=options.swa_full)
        by_type[name] = {"full": kv.full, "window": kv.window}
    return {
        "provenance": "exact" if model.kv_exact else "estimated",
        "why": _why_estimated(model),
        "window_tokens": None if options.swa_full else shape.window,
        "bytes_per_token": by_type,
        "state_bytes_per_sequence": shape.state_bytes,
    }


def _why_estimated(model: Model) -> str | None:
    if model.kv_exact:
        return None
    if model.compressed_attention:
        return "a compressed cache, whose size a token is worked out from its ratios"
    return model.notes or "parts of the shape were not confirmed"


def _context(model: Model, options: InspectOptions) -> int:
    """As asked (a window stretched beyond training is the user's own choice), else a usual one."""
    return options.context or min(DEFAULT_CONTEXT, model.max_context or DEFAULT_CONTEXT)


def _memory(
    model: Model, weights: WeightBytes | None, options: InspectOptions
) -> dict[str, Any] | None:
    if weights is None:
        return None
    context = _context(model, options)
    kv = kv_bytes(model, options.kv_k, options.kv_v, swa_full=options.swa_full)
    # Window layers keep a ubatch beside the window; 512 is llama.cpp's where no box is named.
    cache = options.slots * sequence_bytes(kv, context, _ubatch(options)) / 1e9
    total = weights.total / 1e9
    return {
        "context_tokens": context,
        "beyond_training": 0 < model.max_context < context,
        "slots": options.slots,
        "kv_k": options.kv_k,
        "kv_v": options.kv_v,
        "weights_gb": total,
        "kv_gb": cache,
        "overhead_gb": OVERHEAD_GB,
        "total_gb": total + cache + OVERHEAD_GB,
    }


def _ubatch(options: InspectOptions) -> int:
    if options.hardware is None:
        return 512
    return default_ubatch(find_runtime(options.runtime), find_hardware(options.hardware))


def _fit(options: InspectOptions) -> dict[str, Any] | None:
    model = find_model(options.name)
    if options.hardware is None or model.partial:
        return None
    deployment = Deployment.named(
        model=options.name,
        hardware=options.hardware,
        quant=options.quant or (None if model.stored else _quant(model, options).name),
        runtime=options.runtime,
        kv_k=options.kv_k,
        kv_v=options.kv_v,
        slots=options.slots,
        ctx=_context(model, options),
        swa_full=options.swa_full,
    )
    need = fit(deployment)
    return {
        "hardware": deployment.hardware.name,
        "usable_gb": need.usable_gb,
        "total_gb": need.total_gb,
        "fits": need.fits,
        "free_gb": need.usable_gb - need.total_gb,
        "max_context_tokens": need.max_context_tokens,
        "max_users": need.max_users,
        "would_fit": [
            {"change": r.change, "total_gb": r.total_gb, "usable_gb": r.usable_gb}
            for r in remedies(deployment)
        ],
    }


# ---- against another file -----------------------------------------------------------------------


def _versus(model: Model, quant: Quant, options: InspectOptions) -> dict[str, Any]:
    """Per-part byte differences, other minus this one. Positive: the other is larger."""
    other = find_model(str(options.other))
    other_quant = quant if other.stored is None else other.stored.quant()
    ours, theirs = weight_bytes(model, quant), weight_bytes(other, other_quant)
    our_pass, their_pass = _per_pass(model, ours), _per_pass(other, theirs)
    assert our_pass is not None
    assert their_pass is not None
    our_parts, their_parts = _parts(model, quant), _parts(other, other_quant)
    return {
        "name": other.name,
        "model": options.other,
        "quant": other_quant.name,
        "shape_differs_in": shape_differences(model, other),
        "parts": {part: their_parts[part] - our_parts[part] for part in our_parts},
        "tensor_bytes": theirs.total - ours.total,
        "types": _type_differences(model.stored, other.stored),
        "per_pass": their_pass["total"] - our_pass["total"],
        "per_pass_ratio": their_pass["total"] / our_pass["total"],
    }


def shape_differences(model: Model, other: Model) -> dict[str, list[Any]]:
    """Figures that differ although two packings of the same weights would share them."""
    ours, theirs = _shape(model), _shape(other)
    skipped = ("family", "max_context")
    return {
        key: [ours[key], theirs[key]]
        for key in ours
        if key not in skipped and ours[key] != theirs[key]
    }


def _type_differences(ours: Stored | None, theirs: Stored | None) -> dict[str, list[int]]:
    """Tensors of each type here and there, where the two differ."""
    here, there = (ours.by_type() if ours else {}), (theirs.by_type() if theirs else {})
    counts = {
        name: [here.get(name, (0, 0))[0], there.get(name, (0, 0))[0]] for name in {**here, **there}
    }
    return {name: pair for name, pair in counts.items() if pair[0] != pair[1]}
