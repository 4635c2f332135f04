"""From a Hugging Face `config.json` to a model's shape.

Keys and defaults are those of transformers (v5.24, `configuration_*.py`); a config leaves out what
is its family's default. Families differ in which keys they use, not in what is asked here.
"""

from __future__ import annotations

from pathlib import Path

from headroom_bench.catalog.architectures import (
    KNOWN_MODEL_TYPES,
    TIED_UNLESS_SAID,
    TWO_MATRIX_FFN,
)
from headroom_bench.catalog.checks import MAX_LAYERS, checked
from headroom_bench.catalog.hf_fields import Fields
from headroom_bench.catalog.hf_layers import count_layers, layer_kinds, window_tokens
from headroom_bench.catalog.hf_moe import moe_of
from headroom_bench.catalog.hf_states import states_of
from headroom_bench.catalog.model import (
    MLA,
    Model,
    PerLayerEmbedding,
    SlidingWindow,
    SparseAttention,
)
from headroom_bench.catalog.windows import pattern_in_words
from headroom_bench.errors import written_out

_LEFT_OUT = {
    "gemma3_text": {
        "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
        "max_position_embeddings": 131072, "sliding_window": 4096,
    },
    "gemma3n_text": {"altup_num_inputs": 4, "laurel_rank": 64},
    "gemma4_text": {"global_head_dim": 512, "head_dim": 256, "vocab_size": 262144},
    "llama4_text": {"attention_chunk_size": 8192, "head_dim": 128, "intermediate_size_mlp": 16384},
    "qwen3_next": {"head_dim": 256},
    "qwen3_5_text": {"head_dim": 256},
    "qwen3_5_moe_text": {"head_dim": 256},
    "gpt_oss": {"head_dim": 64, "sliding_window": 128, "attention_bias": True},
}  # fmt: skip
"""Defaults that published configs of these families are known to leave out."""
_COMPRESSED = ("deepseek_v4",)
_GATED_QUERY = ("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_5", "qwen3_5_moe")
_BIASED_QKV = ("qwen2", "qwen2_moe", "gpt_oss", "seed_oss")


def model_from_config(path: Path) -> Model:
    """The model of a `config.json`; multimodal ones by their language part.

    Raises `UserError`, in one line with the key: unreadable, not a model's config, a figure
    missing, or a shape that contradicts itself or cannot be.
    """
    read = Fields.read(path)
    kind = read.text("model_type")
    fields = Fields({**_LEFT_OUT.get(kind, {}), **_without_nulls(read)}, path)
    if kind in _COMPRESSED:
        raise fields.wrong(f"{kind} has a compressed cache, which is only in the catalogue's entry")
    n_layers = count_layers(fields)
    if n_layers > MAX_LAYERS:
        raise fields.wrong(f"num_hidden_layers {n_layers:,} cannot be")
    blocks = fields.items("block_configs")
    kinds = layer_kinds(fields, n_layers)
    hidden = fields.positive("hidden_size", "n_embd", "d_model")
    heads = fields.positive("num_attention_heads", "n_head", "n_heads")
    moe = moe_of(fields, kinds)
    mla = _mla(fields)
    key = _head_dim(fields, hidden, heads, mla)
    value = mla.v_head_dim if mla else fields.positive("v_head_dim", default=key)
    widths, attending = _searched(fields, blocks, n_layers) if blocks else ((), None)
    widths = widths or _listed_widths(fields, n_layers)
    mtp = fields.whole(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "num_mtp_modules",
        default=0,
    )  # fmt: skip
    known = kind in KNOWN_MODEL_TYPES
    model = Model(
        name=_name(fields),
        family=kind,
        n_layers=n_layers,
        n_kv_heads=heads if mla else _kv_heads(fields, heads, blocks),
        head_dim=key,
        v_head_dim=0 if value == key else value,
        hidden_size=hidden,
        n_heads=heads,
        vocab_size=fields.positive("vocab_size"),
        n_attention_layers=attending,
        attention_output_gate=fields.flag("attn_output_gate", kind in _GATED_QUERY),
        qkv_bias=bool(fields.get("attention_bias", "qkv_bias", "use_qkv_bias"))
        or kind in _BIASED_QKV,
        attention_sinks=kind == "gpt_oss" or fields.flag("add_swa_attention_sink_bias"),
        tied_embeddings=fields.flag("tie_word_embeddings", kind in TIED_UNLESS_SAID),
        ffn_intermediate=0 if widths else _ffn_width(fields, kind),
        ffn_gated=kind not in TWO_MATRIX_FFN,
        ffn_widths=widths,
        moe=moe,
        mla=mla,
        sliding_window=_window(fields, kinds),
        linear_attention=states_of(fields, kinds, hidden),
        sparse_attention=_sparse(fields),
        per_layer_embedding=_per_layer_embedding(fields),
        max_context=fields.whole(
            "max_position_embeddings", "model_max_length", "n_positions", default=0
        ),
        native_quant=_native_quant(fields),
        native_speculative={"mtp_layers": mtp, "kind": "mtp"} if mtp else {},
        notes="" if known else f"model_type {kind or '(none)'} is not one we know",
        estimated=not known,
        source=path.name,
    )
    return checked(model, str(path))


def _without_nulls(fields: Fields) -> dict[str, object]:
    return {key: value for key, value in fields.data.items() if value is not None}


def _name(fields: Fields) -> str:
    told = fields.get("_name_or_path", "name_or_path")
    name = told if isinstance(told, str) and told else f"{fields.path.parent.name or fields.path}"
    return written_out(name)


def _kv_heads(fields: Fields, heads: int, blocks: list[object] | None) -> int:
    if blocks:
        groups = {_heads_in_group(block) for block in blocks} - {0}
        if len(groups) == 1:
            return max(heads // groups.pop(), 1)
        raise fields.wrong("its layers differ in key-value heads, which a shape cannot say")
    if fields.flag("multi_query") and not fields.flag("new_decoder_architecture"):
        return 1
    return fields.positive(
        "num_key_value_heads", "num_attention_groups", "num_kv_heads", "n_head_kv", default=heads
    )


def _head_dim(fields: Fields, hidden: int, heads: int, mla: MLA | None) -> int:
    if mla:
        return mla.qk_nope_head_dim + mla.qk_rope_head_dim
    if fields.get("head_dim", "attention_head_dim") is None and hidden % heads:
        raise fields.wrong(
            f"contradicts itself: hidden_size {hidden} is no multiple of {heads} heads, "
            "and there is no head_dim"
        )
    return fields.positive("head_dim", "attention_head_dim", default=hidden // heads)


def _ffn_width(fields: Fields, kind: str) -> int:
    """Width of a dense layer's FFN; 0 where there is none. Older families have 4 hidden unsaid."""
    unsaid = 4 * fields.whole("hidden_size", "n_embd", default=0) if kind in TWO_MATRIX_FFN else 0
    width = fields.whole(
        "dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", "ffn_dim",
        "n_inner", "ffn_hidden_size", default=unsaid,
    )  # fmt: skip
    if kind == "granitemoehybrid":  # its dense FFN is the expert that all share
        experts = fields.whole("num_local_experts", default=0)
        return 0 if experts else fields.whole("shared_intermediate_size", default=width)
    if kind == "lfm2" and fields.flag("block_auto_adjust_ff_dim", True):
        multiple = fields.positive("block_multiple_of", default=256)
        return -(-(2 * width // 3) // multiple) * multiple
    return width


def _listed_widths(fields: Fields, n_layers: int) -> tuple[int, ...]:
    """FFN widths where the config lists them and layers differ."""
    listed = fields.items("intermediate_size") or []
    if all(width == listed[0] for width in listed):
        return ()
    if len(listed) != n_layers:
        raise fields.wrong(
            f"contradicts itself: {len(listed)} intermediate_size values for {n_layers} layers"
        )
    return tuple(
        Fields({"intermediate_size": w}, fields.path).positive("intermediate_size") for w in listed
    )


def _window(fields: Fields, kinds: list[str]) -> SlidingWindow | None:
    local, whole = kinds.count("window"), kinds.count("full")
    if not local:
        return None
    return SlidingWindow(
        window=window_tokens(fields),
        n_local_layers=local,
        n_global_layers=whole,
        global_n_kv_heads=_unless_same(fields, "num_global_key_value_heads", "num_key_value_heads"),
        global_head_dim=_unless_same(fields, "global_head_dim", "head_dim"),
        local_n_kv_heads=_unless_same(fields, "swa_num_key_value_heads", "num_key_value_heads"),
        global_v_from_k=fields.flag("attention_k_eq_v"),
        kv_shared_layers=fields.whole("num_kv_shared_layers", default=0),
        pattern=pattern_in_words(local, whole),
    )


def _unless_same(fields: Fields, key: str, usual: str) -> int | None:
    told = fields.whole(key, default=0)
    return told if told and told != fields.whole(usual, default=0) else None


def _mla(fields: Fields) -> MLA | None:
    if fields.get("kv_lora_rank") is None:
        return None
    return MLA(
        kv_lora_rank=fields.positive("kv_lora_rank"),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim"),
        qk_nope_head_dim=fields.positive("qk_nope_head_dim"),
        v_head_dim=fields.positive("v_head_dim"),
        q_lora_rank=fields.whole("q_lora_rank", default=0) or None,
    )


def _sparse(fields: Fields) -> SparseAttention | None:
    """An indexer; MiniMax counts what it keeps in blocks."""
    if fields.get("index_n_heads") is None:
        return None
    blocks = fields.whole("index_topk_blocks", default=0)
    size = fields.whole("index_block_size", default=0)
    return SparseAttention(
        index_heads=fields.positive("index_n_heads"),
        index_dim=fields.positive("index_head_dim"),
        topk_tokens=fields.whole("index_topk", default=blocks * size),
    )


def _per_layer_embedding(fields: Fields) -> PerLayerEmbedding | None:
    if not fields.whole("hidden_size_per_layer_input", default=0):
        return None
    return PerLayerEmbedding(
        dim=fields.positive("hidden_size_per_layer_input"),
        vocab_size=fields.positive("vocab_size_per_layer_input", default=262144),
        altup_inputs=fields.whole("altup_num_inputs", default=0),
        laurel_rank=fields.whole("laurel_rank", default=0),
        kv_shared_layers_use_double_ffn=fields.flag("use_double_wide_mlp"),
    )


def _native_quant(fields: Fields) -> dict[str, str]:
    """What the published weights are stored in."""
    method = fields.table("quantization_config").text("quant_method")
    width = fields.get("torch_dtype", "dtype")
    plain = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}.get(str(width), "BF16")
    if method == "mxfp4":
        return {"experts": "MXFP4", "rest": plain}
    return {"all": method.upper() or plain}


def _searched(fields: Fields, blocks: list[object], n_layers: int) -> tuple[tuple[int, ...], int]:
    """FFN widths and the number of attending layers of a Nemotron found by architecture search.

    Width = 2/3 multiple hidden, rounded up to 256 (the model's own code).
    """
    hidden = fields.positive("hidden_size")
    if len(blocks) != n_layers:
        raise fields.wrong(
            f"contradicts itself: {len(blocks)} block_configs, num_hidden_layers is {n_layers}"
        )
    widths = []
    for block in blocks:
        ffn = block.get("ffn") if isinstance(block, dict) else None
        multiple = ffn.get("ffn_mult") if isinstance(ffn, dict) else None
        if not isinstance(multiple, int | float) or not 0 < multiple < 1000:
            widths.append(0)
        else:
            widths.append(-(-int(2 * multiple * hidden / 3) // 256) * 256)
    return tuple(widths), sum(1 for block in blocks if _heads_in_group(block))


def _heads_in_group(block: object) -> int:
    attention = block.get("attention") if isinstance(block, dict) else None
    group = attention.get("n_heads_in_group") if isinstance(attention, dict) else None
    return group if type(group) is int and group > 0 else 0
