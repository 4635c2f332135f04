"""What a runtime does by default, as a design of the virtual box: for predictions and for the mock
server alike.

Numbers are the catalogue's where it has them (`catalog/data/runtimes.json`, with their sources);
rules that depend on the box's memory are written out here as the same entries tell them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headroom_bench.box import BoxDesign, context_per_slot, typical_speculation
from headroom_bench.box.design import MemoryKind, Rewind
from headroom_bench.errors import UserError
from headroom_bench.target import ServerSpec, draft_of

if TYPE_CHECKING:
    from headroom_bench.catalog import Runtime
    from headroom_bench.roofline.deployment import Deployment

LLAMA_CPP_SLOTS = 4
"""`-np -1`, its default and that of what is built on it."""
LM_STUDIO_CTX = 4096
DRAFTED_TOKENS = 3
"""Where a runtime's entry names no default (llama.cpp's is 3 too)."""
GIB = 2**30
MIB = 2**20


def design_of(deployment: Deployment, server: ServerSpec | None = None) -> BoxDesign:
    """How the deployment's runtime serves. `server`: what is told of its settings; without it no
    more is known than the deployment's own slots and context.

    Raises UserError where the memory holds no sequence of the context asked for.
    """
    told = server or _told_by(deployment)
    kind = memory_kind(deployment.runtime, told)
    if kind == "paged":
        design = _paged(deployment, told)
    elif kind == "dynamic_batch":
        design = _dynamic(deployment, told)
    else:
        design = _slots(deployment, told, kind)
    if deployment.drafter is None:
        return design
    asked = draft_of(told.draft)[1] if told.draft else None
    usual = _number(deployment.runtime.defaults, "spec_draft_n_max", DRAFTED_TOKENS)
    return replace(design, speculation=typical_speculation(asked or usual))


def _told_by(deployment: Deployment) -> ServerSpec:
    """As if the server had been started with the deployment's slots and context, each its own."""
    told = ServerSpec(slots=deployment.slots, kv_unified=False)
    return replace(told, ctx=context_of_all(deployment.runtime, told, deployment.ctx))


def memory_kind(runtime: Runtime, told: ServerSpec) -> MemoryKind:
    """How a server lays out its memory. llama.cpp unifies its slots unless their number is given
    (`-np`) without `-kvu`; LM Studio whatever their number."""
    if not runtime.has_slots:
        return runtime.design  # type: ignore[return-value]
    if told.kv_unified is not None:
        return "unified_slots" if told.kv_unified else "split_slots"
    always = bool(runtime.defaults.get("unified_kv_cache"))
    unified = runtime.design == "unified_slots" and (told.slots is None or always)
    return "unified_slots" if unified else "split_slots"


def with_room(deployment: Deployment, told: ServerSpec) -> Deployment:
    """The deployment with as many sequences, of such a length, as its runtime makes of what is
    told; as it is where the memory does not hold that."""
    try:
        design = design_of(deployment, told)
    except UserError:  # whoever makes a box of it will hear why
        return deployment
    return with_room_of(deployment, design)


def with_room_of(deployment: Deployment, design: BoxDesign) -> Deployment:
    """The deployment with the sequences and the cache of a design."""
    slots, ctx = design.parallel, design.ctx
    pool = design.pool_tokens if design.memory == "unified_slots" else None  # pages fit by design
    beside, drafter = deployment.draft_model, deployment.drafter
    if beside is not None:
        drafter = replace(beside, slots=slots, ctx=ctx, pool_tokens=pool)
    return replace(deployment, slots=slots, ctx=ctx, pool_tokens=pool, drafter=drafter)


def context_of_each(runtime: Runtime, told: ServerSpec, ctx: int) -> int:
    """The context of each sequence of a server whose setting is `ctx`."""
    if memory_kind(runtime, told) != "split_slots":
        return ctx
    return context_per_slot(ctx, _slots_of(runtime, told))


def context_of_all(runtime: Runtime, told: ServerSpec, each: int) -> int:
    """The `ctx` of a server that gives each of its sequences `each` tokens."""
    if memory_kind(runtime, told) != "split_slots":
        return each
    return each * _slots_of(runtime, told)


def _slots_of(runtime: Runtime, told: ServerSpec) -> int:
    return told.slots or _number(runtime.defaults, "num_parallel", LLAMA_CPP_SLOTS)


def _slots(deployment: Deployment, told: ServerSpec, kind: MemoryKind) -> BoxDesign:
    from headroom_bench.roofline.deployment import PASS_TOKENS

    defaults, ollama = deployment.runtime.defaults, deployment.runtime.id == "ollama"
    parallel = _slots_of(deployment.runtime, told)
    ctx = _default_ctx(deployment, parallel) if told.ctx is None else told.ctx
    if kind == "split_slots":
        ctx = context_per_slot(ctx, parallel)
    batch = _ollama_batch(ctx) if ollama else _number(defaults, "batch", PASS_TOKENS)
    cache_bytes = _number(defaults, "cache_ram_mib", 8192) * MIB
    return BoxDesign(
        memory=kind,
        ctx=ctx,
        parallel=parallel,
        pool_tokens=ctx if kind == "unified_slots" else None,
        batch_tokens=batch,
        rewind=_rewind(deployment, "checkpoints"),
        host_tokens=int(cache_bytes // _token_bytes(deployment, ctx)),
        overflow="cut" if ollama else "reject",
        max_queue=_number(defaults, "max_queue", 512) if ollama else None,
    )


def _paged(deployment: Deployment, told: ServerSpec) -> BoxDesign:
    from headroom_bench.roofline.deployment import LARGE_GPU_GIB, default_ubatch

    runtime, defaults = deployment.runtime, deployment.runtime.defaults
    large = deployment.hardware.memory_gb * 1e9 >= LARGE_GPU_GIB * GIB
    page = _number(defaults, "kv_block_size", _number(defaults, "tokens_per_block", 1))
    longest = told.ctx or deployment.model.max_context or deployment.ctx
    pool = _pool_tokens(deployment, longest)
    if pool // page < 1 or (told.ctx is not None and pool // page * page < told.ctx):
        raise UserError(
            f"{deployment.model.name} on {deployment.hardware.name}: the cache would hold {pool} "
            f"tokens, fewer than one sequence of {longest}; give a smaller --ctx"
        )
    hybrid = deployment.kv().state > 0
    return BoxDesign(
        memory="paged",
        ctx=min(longest, pool // page * page),
        parallel=told.slots or (1024 if large and runtime.id == "vllm" else 256),
        pool_tokens=pool,
        page_tokens=page,
        reserve_answer=runtime.id == "tensorrt-llm",
        batch_tokens=default_ubatch(runtime, deployment.hardware),
        mixed=runtime.id != "sglang",
        prefix_cache=not hybrid,  # a recurrent state is good at one place only
        counts_answer=runtime.id == "vllm",
    )


def _dynamic(deployment: Deployment, told: ServerSpec) -> BoxDesign:
    defaults = deployment.runtime.defaults
    step = _number(defaults, "prefill_step_size", 2048)
    prompts = _number(defaults, "prompt_concurrency", 8)
    longest = told.ctx or deployment.model.max_context or deployment.ctx
    pool = _pool_tokens(deployment, longest)
    # A draft model makes every request run alone.
    parallel = 1 if told.draft else told.slots or _number(defaults, "decode_concurrency", 32)
    return BoxDesign(
        memory="dynamic_batch",
        ctx=max(1, min(longest, pool)),
        parallel=parallel,
        pool_tokens=max(1, pool),
        batch_tokens=step * prompts,
        chunk_tokens=step,
        prompts_a_pass=prompts,
        mixed=False,
        cached_prompts=_number(defaults, "prompt_cache_entries", 10),
        rewind=_rewind(deployment, "extend"),
    )


def _rewind(deployment: Deployment, otherwise: Rewind) -> Rewind:
    """Caches with windows or recurrent states cannot be cut back to any token."""
    kv = deployment.kv()
    return otherwise if kv.window_tokens is not None or kv.state else "any"


def _default_ctx(deployment: Deployment, parallel: int) -> int:
    """Tokens of a whole server (`-c`) where none are given, by the runtime: Ollama multiplies its
    own figure by its slots, the others' is all that there is."""
    from headroom_bench.roofline.memory import fit

    trained = deployment.model.max_context or deployment.ctx
    memory = deployment.hardware.memory_gb * 1e9
    if deployment.runtime.id == "lm-studio":
        return min(LM_STUDIO_CTX, trained)
    if deployment.runtime.id == "ollama":
        by_memory = 4096 if memory < 23 * GIB else 32_768 if memory < 47 * GIB else 262_144
        return min(by_memory, trained) * parallel
    room = fit(deployment).max_context_tokens * deployment.slots
    return max(min(room, trained), 4096)  # --fit's own minimum


def _ollama_batch(ctx: int) -> int:
    return 512 if ctx <= 4096 else 1024 if ctx <= 32_768 else 2048


def _token_bytes(deployment: Deployment, ctx: int) -> float:
    """Cache of one token, on the average of a full sequence."""
    from headroom_bench.roofline.memory import kv_gb

    return max(kv_gb(deployment, 1, ctx) * 1e9 / ctx, 1.0)


def _pool_tokens(deployment: Deployment, ctx: int) -> int:
    """Tokens that fit beside the weights, a draft model's among them."""
    from headroom_bench.roofline.memory import OVERHEAD_GB, loaded_gb, usable_of

    held = loaded_gb(deployment) + OVERHEAD_GB * deployment.boxes
    free = (usable_of(deployment) - held) * 1e9
    return max(int(free // _token_bytes(deployment, ctx)), 0)


def _number(defaults: Mapping[str, Any], name: str, otherwise: int) -> int:
    value = defaults.get(name)
    return value if isinstance(value, int) and value > 0 else otherwise
