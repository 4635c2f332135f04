"""From a GGUF header to a model's shape.

Tensors say which layers attend, which keep a state and which hold experts; metadata (the keys of
gguf-py's `constants.py`) says how matrices are split into heads. Where both speak they must agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from headroom_bench.catalog.architectures import KNOWN_ARCHITECTURES
from headroom_bench.catalog.checks import checked
from headroom_bench.catalog.gguf_blocks import Blocks, Layer, attends
from headroom_bench.catalog.gguf_ffn import (
    dense_width,
    ffn_widths,
    gated_ffn,
    moe_of,
    per_layer_embedding,
)
from headroom_bench.catalog.gguf_header import read_gguf
from headroom_bench.catalog.gguf_states import states_of
from headroom_bench.catalog.model import (
    MLA,
    LinearAttention,
    Model,
    SlidingWindow,
    SparseAttention,
)
from headroom_bench.catalog.stored import stored_weights
from headroom_bench.catalog.windows import WINDOW_EVERY, pattern_in_words, windowed
from headroom_bench.errors import written_out

_GEMMA3N_OWN_CACHE_LAYERS = 20
"""llama.cpp has this number in its code for gemma3n, not in the file."""
_TOLERANCE = 0.04
"""Computed and published totals agree within it for every entry of the catalogue."""


def model_from_gguf(path: Path) -> Model:
    """The model of a GGUF file, with its weights as they are stored (`Model.stored`).

    Raises `UserError`, in one line: what `read_gguf` raises, not a language model, or a shape that
    contradicts itself or cannot be.
    """
    model = checked(_model(Blocks(read_gguf(path))), str(path))
    return _doubted(model) if _unexplained(model) else model


def _unexplained(model: Model) -> bool:
    """Whether the shape accounts for more or fewer parameters than the file's tensors hold."""
    if model.linear_attention and model.linear_attention.kind == "mamba":
        return False  # the first Mamba's parameters are only counted in files
    computed, counted = model.params_of_shape().total, model.params().total
    return abs(computed - counted) > _TOLERANCE * counted


def _doubted(model: Model) -> Model:
    share = model.params_of_shape().total / model.params().total
    doubt = f"the shape as read here accounts for {share:.0%} of the file's parameters"
    notes = "; ".join(part for part in (model.notes, doubt) if part)
    return dataclasses.replace(model, notes=notes, estimated=True)


def _model(blocks: Blocks) -> Model:
    """The shape as a whole."""
    top = {tensor.name: tensor for tensor in blocks.header.tensors}
    if "token_embd.weight" not in top:
        raise blocks.wrong("has no token_embd.weight; it is not a whole language model")
    embedding = top["token_embd.weight"].shape
    if len(embedding) != 2 or embedding[0] != blocks.hidden:
        raise blocks.wrong(
            f"contradicts itself: embedding_length is {blocks.hidden:,}, the embedding's rows "
            f"have {embedding[0]:,} values"
        )
    attention = [i for i, has in enumerate(blocks.layers) if attends(has)]
    linear = states_of(blocks)
    if not attention:
        raise blocks.wrong("has no attention layers; recurrent models are not covered")
    window = _window(blocks, attention)
    mla = _mla(blocks, attention)
    local = sorted(_window_layers(blocks, attention)) if window else []
    base = (local or attention)[0]
    key, value = _head_widths(blocks, base, local=bool(local))
    kind = local or attention
    kv_heads = blocks.n_heads if mla else max(blocks.kv_heads[i] for i in kind)
    if not mla:
        _check_keys(blocks, attention, set(local))
    doubts = "; ".join(_doubts(blocks, attention, set(local)))
    return Model(
        name=_name(blocks),
        family=blocks.arch,
        n_layers=blocks.n_layers,
        n_kv_heads=kv_heads,
        head_dim=key,
        v_head_dim=0 if value == key else value,
        hidden_size=blocks.hidden,
        n_heads=blocks.n_heads,
        vocab_size=embedding[1],
        n_attention_layers=_some_attend(blocks, attention, linear),
        tied_embeddings="output.weight" not in top,
        attention_output_gate=_gated_query(blocks, base, key),
        qkv_bias="blk.0.attn_q.bias" in top or "blk.0.attn_qkv.bias" in top,
        attention_sinks=f"blk.{base}.attn_sinks.weight" in top,
        ffn_intermediate=dense_width(blocks),
        ffn_gated=gated_ffn(blocks),
        ffn_widths=ffn_widths(blocks),
        moe=moe_of(blocks),
        mla=mla,
        sliding_window=window,
        linear_attention=linear,
        sparse_attention=_sparse(blocks),
        per_layer_embedding=per_layer_embedding(blocks, top),
        max_context=blocks.whole("context_length", 0),
        native_speculative={"mtp_layers": blocks.mtp_layers} if blocks.mtp_layers else {},
        source=f"header of {blocks.path.name}",
        notes=doubts,
        estimated=bool(doubts),
        stored=stored_weights(blocks.header.tensors, blocks.n_layers, blocks.header.file_bytes),
    )


def _doubts(blocks: Blocks, attention: list[int], local: set[int]) -> Iterator[str]:
    """Why figures of this file may be taken wrongly."""
    if blocks.arch not in KNOWN_ARCHITECTURES:
        yield f"architecture {blocks.arch!r:.40} is not one we know"
    for layers in (local, set(attention) - local):
        heads = {blocks.kv_heads[i] for i in layers}
        if len(heads) > 1:
            yield f"layers of one kind differ in key-value heads ({min(heads)} to {max(heads)})"


def _name(blocks: Blocks) -> str:
    """Printable, whatever stands in the file."""
    told = blocks.header.metadata.get("general.name")
    name = told if isinstance(told, str) and told.strip() else blocks.path.stem
    return written_out(name)


def _some_attend(
    blocks: Blocks, attention: list[int], linear: LinearAttention | None
) -> int | None:
    """Their number where the rest of the layers have nothing in attention's place."""
    return None if linear or len(attention) == blocks.n_layers else len(attention)


def _head_widths(blocks: Blocks, layer: int, *, local: bool) -> tuple[int, int]:
    """K's and V's width a head."""
    if (expanded := blocks.whole("attention.key_length_mla", 0)) != 0:
        return expanded, blocks.whole("attention.value_length_mla", expanded)
    default = blocks.hidden // max(blocks.n_heads, 1)
    key = blocks.whole("attention.key_length", default)
    value = blocks.whole("attention.value_length", key)
    if local:
        key = blocks.whole("attention.key_length_swa", key)
        value = blocks.whole("attention.value_length_swa", value)
    if key == 0 or blocks.kv_heads[layer] == 0:
        raise blocks.wrong("contradicts itself: an attention layer has no heads or no width")
    return key, value


def _check_keys(blocks: Blocks, attention: list[int], local: set[int]) -> None:
    """The K projection has as many rows as the metadata's heads have values."""
    for i in attention:
        tensor = blocks.layers[i].get("attn_k")
        if tensor is None or len(tensor.shape) != 2:
            continue
        width, _ = _head_widths(blocks, i, local=i in local)
        heads = blocks.kv_heads[i]
        if tensor.shape != (blocks.hidden, heads * width):
            raise blocks.wrong(
                f"contradicts itself: {heads} key heads of {width} on a width of "
                f"{blocks.hidden:,}, but {tensor.name} is {list(tensor.shape)}"
            )


def _gated_query(blocks: Blocks, layer: int, key: int) -> bool:
    tensor = blocks.layers[layer].get("attn_q")
    return tensor is not None and tensor.shape[-1] == 2 * blocks.n_heads * key


def _window_layers(blocks: Blocks, attention: list[int]) -> set[int]:
    told = blocks.get("attention.sliding_window_pattern")
    if isinstance(told, tuple):
        flags = _per_layer_flags(blocks, told)
        return {i for i in attention if flags[i]}
    every = WINDOW_EVERY.get(blocks.arch, 1)
    if type(told) is int:
        every = told
    return {i for i in attention if windowed(i, every)}


def _per_layer_flags(blocks: Blocks, told: tuple[object, ...]) -> list[bool]:
    if len(told) < blocks.n_layers:
        raise blocks.wrong(
            f"contradicts itself: sliding_window_pattern has {len(told)} values for "
            f"{blocks.n_layers} layers"
        )
    return [bool(flag) for flag in told]


def _window(blocks: Blocks, attention: list[int]) -> SlidingWindow | None:
    size = blocks.whole("attention.sliding_window", 0)
    local = _window_layers(blocks, attention)
    if blocks.arch == "llama4":
        size = size or blocks.whole("attention.chunk_size", 8192)
    context = blocks.whole("context_length", 0)
    if not size or not local or 0 < context <= size:
        return None
    whole = [i for i in attention if i not in local]
    heads = blocks.kv_heads
    local_heads = heads[min(local)]
    key = blocks.whole("attention.key_length", 0)
    return SlidingWindow(
        window=size,
        n_local_layers=len(local),
        n_global_layers=len(whole),
        global_n_kv_heads=_if_other(heads[whole[0]] if whole else None, local_heads),
        global_head_dim=_if_other(key or None, blocks.whole("attention.key_length_swa", key)),
        global_v_from_k=bool(whole) and _value_from_key(blocks.layers[whole[0]]),
        kv_shared_layers=_shared_layers(blocks),
        pattern=pattern_in_words(len(local), len(whole)),
    )


def _shared_layers(blocks: Blocks) -> int:
    if blocks.arch == "gemma3n":
        return max(blocks.n_layers - _GEMMA3N_OWN_CACHE_LAYERS, 0)
    return blocks.whole("attention.shared_kv_layers", 0)


def _mla(blocks: Blocks, attention: list[int]) -> MLA | None:
    """Files without `key_length_mla` predate the latent cache: they cache expanded heads."""
    rank = blocks.whole("attention.kv_lora_rank", 0)
    expanded = blocks.whole("attention.key_length_mla", 0)
    if not rank or not expanded or "attn_kv_a_mqa" not in blocks.layers[attention[0]]:
        return None
    rope = blocks.whole("rope.dimension_count")
    if rope >= expanded:
        raise blocks.wrong(
            f"contradicts itself: {rope} of {expanded} key values a head are rotated"
        )
    return MLA(
        kv_lora_rank=rank,
        qk_rope_head_dim=rope,
        qk_nope_head_dim=expanded - rope,
        v_head_dim=blocks.whole("attention.value_length_mla", expanded),
        q_lora_rank=blocks.whole("attention.q_lora_rank", 0) or None,
    )


def _sparse(blocks: Blocks) -> SparseAttention | None:
    heads = blocks.whole("attention.indexer.head_count", 0)
    if not heads:
        return None
    return SparseAttention(
        index_heads=heads,
        index_dim=blocks.whole("attention.indexer.key_length"),
        topk_tokens=blocks.whole("attention.indexer.top_k"),
    )


def _value_from_key(layer: Layer) -> bool:
    return "attn_k" in layer and "attn_v" not in layer


def _if_other(value: int | None, than: int) -> int | None:
    return value if value not in (None, than) else None
