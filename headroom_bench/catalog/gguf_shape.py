"""From a GGUF header to a model's shape.

Tensors say which layers attend, which keep a state and which hold experts; metadata (the keys of
gguf-py's `constants.py`) says how matrices are split into heads. Where both speak they must agree.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from headroom_bench.catalog.architectures import KNOWN_ARCHITECTURES
from headroom_bench.catalog.checks import MAX_LAYERS, MAX_WIDTH, checked
from headroom_bench.catalog.gguf_header import GgufHeader, TensorInfo, read_gguf
from headroom_bench.catalog.model import (
    MLA,
    LinearAttention,
    Model,
    MoE,
    PerLayerEmbedding,
    SlidingWindow,
    SparseAttention,
)
from headroom_bench.catalog.states import state_bytes
from headroom_bench.catalog.stored import stored_weights
from headroom_bench.catalog.windows import WINDOW_EVERY, pattern_in_words, windowed
from headroom_bench.errors import UserError

_BLOCK = re.compile(r"^blk\.(\d{1,6})\.(.+?)(?:\.weight|\.bias)?$")
_GEMMA3N_OWN_CACHE_LAYERS = 20
"""llama.cpp has this number in its code for gemma3n, not in the file."""
_TOLERANCE = 0.04
"""Computed and published totals agree within it for every entry of the catalogue."""
_UNREADABLE = {"deepseek4": "its compressed cache is not described in the file"}
_NOT_LANGUAGE = {
    "clip": "an image or audio projector",
    "t5": "an encoder-decoder",
    "t5encoder": "an encoder",
    "gemma-embedding": "an encoder",
    "wavtokenizer-dec": "an audio decoder",
}


def model_from_gguf(path: Path) -> Model:
    """The model of a GGUF file, with its weights as they are stored (`Model.stored`).

    Raises `UserError`, in one line: what `read_gguf` raises, not a language model, or a shape that
    contradicts itself or cannot be.
    """
    model = checked(_Shape(read_gguf(path)).model(), str(path))
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


class _Shape:
    """Questions to one header."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._path = header.path
        arch = header.metadata.get("general.architecture")
        kind = header.metadata.get("general.type", "model")
        if kind != "model" or not isinstance(arch, str):
            raise self._wrong(f"is GGUF, but of the kind {str(kind)!r:.40}, not a language model")
        if arch in _NOT_LANGUAGE or "bert" in arch:
            told = _NOT_LANGUAGE.get(arch, "an encoder")
            raise UserError(f"{self._path}: is GGUF, but {told}, not a language model")
        if arch in _UNREADABLE:
            raise UserError(f"{self._path}: {arch} cannot be read: {_UNREADABLE[arch]}")
        self._arch = arch
        self._mtp_layers = self._whole("nextn_predict_layers", 0)
        self._n_layers = self._whole("block_count") - self._mtp_layers
        if not 1 <= self._n_layers <= MAX_LAYERS:
            raise self._wrong(f"{self._n_layers:,} layers cannot be")
        self._layers = self._tensors_by_layer()
        self._n_heads = max(self._per_layer("attention.head_count"))
        self._hidden = self._whole("embedding_length")
        if not self._n_heads or not self._hidden:
            raise self._wrong("has no attention heads or no width, which cannot be")
        self._kv_heads = self._per_layer("attention.head_count_kv", self._n_heads)

    def model(self) -> Model:
        """The shape as a whole."""
        top = {tensor.name: tensor for tensor in self._header.tensors}
        if "token_embd.weight" not in top:
            raise self._wrong("has no token_embd.weight; it is not a whole language model")
        embedding = top["token_embd.weight"].shape
        if len(embedding) != 2 or embedding[0] != self._hidden:
            raise self._wrong(
                f"contradicts itself: embedding_length is {self._hidden:,}, the embedding's rows "
                f"have {embedding[0]:,} values"
            )
        attention, linear = self._attention_layers(), self._linear()
        if not attention:
            raise self._wrong("has no attention layers; recurrent models are not covered")
        window = self._window(attention)
        mla = self._mla(attention)
        local = sorted(self._window_layers(attention)) if window else []
        base = (local or attention)[0]
        key, value = self._head_widths(base, local=bool(local))
        kind = local or attention
        kv_heads = self._n_heads if mla else max(self._kv_heads[i] for i in kind)
        if not mla:
            self._check_keys(attention, set(local))
        doubts = "; ".join(self._doubts(attention, set(local)))
        return Model(
            name=self._name(),
            family=self._arch,
            n_layers=self._n_layers,
            n_kv_heads=kv_heads,
            head_dim=key,
            v_head_dim=0 if value == key else value,
            hidden_size=self._hidden,
            n_heads=self._n_heads,
            vocab_size=embedding[1],
            n_attention_layers=self._some_attend(attention, linear),
            tied_embeddings="output.weight" not in top,
            attention_output_gate=self._gated_query(base, key),
            qkv_bias="blk.0.attn_q.bias" in top or "blk.0.attn_qkv.bias" in top,
            attention_sinks=f"blk.{base}.attn_sinks.weight" in top,
            ffn_intermediate=self._dense_width(),
            ffn_gated=self._gated_ffn(),
            ffn_widths=self._ffn_widths(),
            moe=self._moe(),
            mla=mla,
            sliding_window=window,
            linear_attention=linear,
            sparse_attention=self._sparse(),
            per_layer_embedding=self._per_layer_embedding(top),
            max_context=self._whole("context_length", 0),
            native_speculative={"mtp_layers": self._mtp_layers} if self._mtp_layers else {},
            source=f"header of {self._path.name}",
            notes=doubts,
            estimated=bool(doubts),
            stored=stored_weights(self._header.tensors, self._n_layers, self._header.file_bytes),
        )

    def _doubts(self, attention: list[int], local: set[int]) -> Iterator[str]:
        """Why figures of this file may be taken wrongly."""
        if self._arch not in KNOWN_ARCHITECTURES:
            yield f"architecture {self._arch!r:.40} is not one we know"
        for layers in (local, set(attention) - local):
            heads = {self._kv_heads[i] for i in layers}
            if len(heads) > 1:
                yield f"layers of one kind differ in key-value heads ({min(heads)} to {max(heads)})"

    def _name(self) -> str:
        """Printable, whatever stands in the file."""
        told = self._header.metadata.get("general.name")
        name = told if isinstance(told, str) and told.strip() else self._path.stem
        return "".join(letter if letter.isprintable() else "?" for letter in name)

    # ---- metadata -----------------------------------------------------------------------------

    def _wrong(self, problem: str) -> UserError:
        return UserError(f"{self._path}: {problem}")

    def _get(self, key: str) -> object:
        return self._header.metadata.get(f"{self._arch}.{key}")

    def _whole(self, key: str, default: int | None = None) -> int:
        """One number; of a list that has one value for every layer, the largest."""
        value = self._get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self._wrong(f"metadata {self._arch}.{key} is missing; the file is not whole")
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers or (None,):
            if type(number) is not int or not 0 <= number < 1 << 32:
                raise self._wrong(f"metadata {self._arch}.{key} is {number!r:.40}, which cannot be")
        return max(number for number in numbers if isinstance(number, int))

    def _per_layer(self, key: str, default: int | None = None) -> list[int]:
        """A value for every layer, whether the file has one for all or a list."""
        largest = self._whole(key, default)
        value = self._get(key)
        if not isinstance(value, tuple):
            return [largest] * self._n_layers
        if len(value) < self._n_layers:
            raise self._wrong(
                f"contradicts itself: {self._arch}.{key} has {len(value)} values for "
                f"{self._n_layers} layers"
            )
        return [int(number) for number in value[: self._n_layers]]

    def _tensors_by_layer(self) -> list[dict[str, TensorInfo]]:
        found: dict[int, dict[str, TensorInfo]] = defaultdict(dict)
        for tensor in self._header.tensors:
            if match := _BLOCK.match(tensor.name):
                found[int(match[1])].setdefault(match[2], tensor)
        beyond = max(found, default=-1)
        if beyond >= self._n_layers + self._mtp_layers:
            raise self._wrong(
                f"contradicts itself: {self._arch}.block_count is "
                f"{self._n_layers + self._mtp_layers}, but there is a block {beyond}"
            )
        empty = [i for i in range(self._n_layers) if not found[i]]
        if empty:
            raise self._wrong(f"block {empty[0]} of {self._n_layers} has no tensors")
        return [found[i] for i in range(self._n_layers)]

    # ---- attention ----------------------------------------------------------------------------

    def _attention_layers(self) -> list[int]:
        """Layers with a growing cache. Q, K and V may also be the input of a delta rule's state."""
        return [
            i
            for i, has in enumerate(self._layers)
            if ("attn_k" in has and "ssm_conv1d_k" not in has)
            or "attn_kv_a_mqa" in has
            or ("attn_qkv" in has and not _keeps_state(has))
            or ("attn_q" in has and not _keeps_state(has))
        ]

    def _some_attend(self, attention: list[int], linear: LinearAttention | None) -> int | None:
        """Their number where the rest of the layers have nothing in attention's place."""
        return None if linear or len(attention) == self._n_layers else len(attention)

    def _head_widths(self, layer: int, *, local: bool) -> tuple[int, int]:
        """K's and V's width a head."""
        if (expanded := self._whole("attention.key_length_mla", 0)) != 0:
            return expanded, self._whole("attention.value_length_mla", expanded)
        default = self._hidden // max(self._n_heads, 1)
        key = self._whole("attention.key_length", default)
        value = self._whole("attention.value_length", key)
        if local:
            key = self._whole("attention.key_length_swa", key)
            value = self._whole("attention.value_length_swa", value)
        if key == 0 or self._kv_heads[layer] == 0:
            raise self._wrong("contradicts itself: an attention layer has no heads or no width")
        return key, value

    def _check_keys(self, attention: list[int], local: set[int]) -> None:
        """The K projection has as many rows as the metadata's heads have values."""
        for i in attention:
            tensor = self._layers[i].get("attn_k")
            if tensor is None or len(tensor.shape) != 2:
                continue
            width, _ = self._head_widths(i, local=i in local)
            heads = self._kv_heads[i]
            if tensor.shape != (self._hidden, heads * width):
                raise self._wrong(
                    f"contradicts itself: {heads} key heads of {width} on a width of "
                    f"{self._hidden:,}, but {tensor.name} is {list(tensor.shape)}"
                )

    def _gated_query(self, layer: int, key: int) -> bool:
        tensor = self._layers[layer].get("attn_q")
        return tensor is not None and tensor.shape[-1] == 2 * self._n_heads * key

    def _window_layers(self, attention: list[int]) -> set[int]:
        told = self._get("attention.sliding_window_pattern")
        if isinstance(told, tuple):
            flags = self._per_layer_flags(told)
            return {i for i in attention if flags[i]}
        every = WINDOW_EVERY.get(self._arch, 1)
        if type(told) is int:
            every = told
        return {i for i in attention if windowed(i, every)}

    def _per_layer_flags(self, told: tuple[object, ...]) -> list[bool]:
        if len(told) < self._n_layers:
            raise self._wrong(
                f"contradicts itself: sliding_window_pattern has {len(told)} values for "
                f"{self._n_layers} layers"
            )
        return [bool(flag) for flag in told]

    def _window(self, attention: list[int]) -> SlidingWindow | None:
        size = self._whole("attention.sliding_window", 0)
        local = self._window_layers(attention)
        if self._arch == "llama4":
            size = size or self._whole("attention.chunk_size", 8192)
        context = self._whole("context_length", 0)
        if not size or not local or 0 < context <= size:
            return None
        whole = [i for i in attention if i not in local]
        heads = self._kv_heads
        local_heads = heads[min(local)]
        key = self._whole("attention.key_length", 0)
        return SlidingWindow(
            window=size,
            n_local_layers=len(local),
            n_global_layers=len(whole),
            global_n_kv_heads=_if_other(heads[whole[0]] if whole else None, local_heads),
            global_head_dim=_if_other(key or None, self._whole("attention.key_length_swa", key)),
            global_v_from_k=bool(whole) and "attn_v" not in self._layers[whole[0]],
            kv_shared_layers=self._shared_layers(),
            pattern=pattern_in_words(len(local), len(whole)),
        )

    def _shared_layers(self) -> int:
        if self._arch == "gemma3n":
            return max(self._n_layers - _GEMMA3N_OWN_CACHE_LAYERS, 0)
        return self._whole("attention.shared_kv_layers", 0)

    def _mla(self, attention: list[int]) -> MLA | None:
        """Files without `key_length_mla` predate the latent cache: they cache expanded heads."""
        rank = self._whole("attention.kv_lora_rank", 0)
        expanded = self._whole("attention.key_length_mla", 0)
        if not rank or not expanded or "attn_kv_a_mqa" not in self._layers[attention[0]]:
            return None
        rope = self._whole("rope.dimension_count")
        if rope >= expanded:
            raise self._wrong(
                f"contradicts itself: {rope} of {expanded} key values a head are rotated"
            )
        return MLA(
            kv_lora_rank=rank,
            qk_rope_head_dim=rope,
            qk_nope_head_dim=expanded - rope,
            v_head_dim=self._whole("attention.value_length_mla", expanded),
            q_lora_rank=self._whole("attention.q_lora_rank", 0) or None,
        )

    def _sparse(self) -> SparseAttention | None:
        heads = self._whole("attention.indexer.head_count", 0)
        if not heads:
            return None
        return SparseAttention(
            index_heads=heads,
            index_dim=self._whole("attention.indexer.key_length"),
            topk_tokens=self._whole("attention.indexer.top_k"),
        )

    # ---- states -------------------------------------------------------------------------------

    def _linear(self) -> LinearAttention | None:
        keeping = [i for i, has in enumerate(self._layers) if _keeps_state(has)]
        if not keeping:
            return None
        first = self._layers[keeping[0]]
        attend = len(self._attention_layers())
        bare = sum(1 for has in self._layers if not _has_ffn(has))
        layers = LinearAttention(
            kind="",
            n_linear_layers=len(keeping),
            n_full_attention_layers=attend,
            conv_kernel=self._whole("ssm.conv_kernel", 0),
            state_bytes_per_sequence=0,
            n_mlp_or_moe_layers=self._n_layers - bare if bare else 0,
        )
        if "shortconv.conv" in first:
            return self._short_conv(layers)
        if "ssm_conv1d_q" in first:
            return self._kimi_delta(layers)
        if {"ssm_ba", "ssm_alpha"} & first.keys():
            return self._gated_delta(layers)
        return self._mamba(layers, first)

    def _short_conv(self, layers: LinearAttention) -> LinearAttention:
        kernel = self._whole("shortconv.l_cache")
        state = state_bytes(layers.n_linear_layers, 0, self._hidden, kernel)
        return dataclasses.replace(
            layers, kind="short_conv", conv_kernel=kernel, state_bytes_per_sequence=state
        )

    def _kimi_delta(self, layers: LinearAttention) -> LinearAttention:
        width, heads = self._whole("kda.head_dim"), self._n_heads
        state = state_bytes(
            layers.n_linear_layers, heads * width * width, 3 * heads * width, layers.conv_kernel
        )
        return dataclasses.replace(
            layers, kind="kimi_delta_attention", n_heads=heads, head_dim=width,
            state_bytes_per_sequence=state,
        )  # fmt: skip

    def _gated_delta(self, layers: LinearAttention) -> LinearAttention:
        heads, inner = self._heads_of_state()
        key_heads, key = self._whole("ssm.group_count"), self._whole("ssm.state_size")
        value = inner // heads
        state = state_bytes(
            layers.n_linear_layers,
            heads * key * value,
            2 * key_heads * key + inner,
            layers.conv_kernel,
        )
        return dataclasses.replace(
            layers, kind="gated_deltanet", n_k_heads=key_heads, n_v_heads=heads, k_head_dim=key,
            v_head_dim=value, state_bytes_per_sequence=state,
        )  # fmt: skip

    def _mamba(self, layers: LinearAttention, first: dict[str, TensorInfo]) -> LinearAttention:
        size, inner = self._whole("ssm.state_size"), self._whole("ssm.inner_size")
        if "ssm_x" in first:  # the first Mamba has no heads
            state = state_bytes(layers.n_linear_layers, inner * size, inner, layers.conv_kernel)
            return dataclasses.replace(
                layers, kind="mamba", ssm_state=size, state_bytes_per_sequence=state
            )
        heads, inner = self._heads_of_state()
        groups = self._whole("ssm.group_count", 1)
        state = state_bytes(
            layers.n_linear_layers, inner * size, inner + 2 * groups * size, layers.conv_kernel
        )
        return dataclasses.replace(
            layers, kind="mamba2", n_ssm_heads=heads, ssm_head_dim=inner // heads, ssm_state=size,
            n_groups=groups, state_bytes_per_sequence=state,
        )  # fmt: skip

    def _heads_of_state(self) -> tuple[int, int]:
        heads, inner = self._whole("ssm.time_step_rank"), self._whole("ssm.inner_size")
        if not heads or inner % heads or inner > MAX_WIDTH:
            raise self._wrong(f"contradicts itself: {heads} state heads share a width of {inner}")
        return heads, inner

    # ---- FFN ----------------------------------------------------------------------------------

    def _dense_width(self) -> int:
        return max(self._per_layer("feed_forward_length", 0))

    def _ffn_widths(self) -> tuple[int, ...]:
        """One a layer where dense layers differ among themselves."""
        widths = self._per_layer("feed_forward_length", 0)
        return tuple(widths) if len({width for width in widths if width}) > 1 else ()

    def _gated_ffn(self) -> bool:
        """Three matrices. A fused up projection (Phi-3) is twice as wide as the FFN."""
        for has in self._layers:
            if any(name.startswith("ffn_gate") and "inp" not in name for name in has):
                return True
            if up := has.get("ffn_up"):
                return up.shape[-1] == 2 * self._dense_width()
        return False

    def _moe(self) -> MoE | None:
        layers = [i for i, has in enumerate(self._layers) if _has_experts(has)]
        if not layers:
            return None
        experts = self._whole("expert_count")
        first = self._layers[layers[0]]
        if down := first.get("ffn_down_exps"):
            if len(down.shape) != 3 or down.shape[2] != experts:
                raise self._wrong(
                    f"contradicts itself: expert_count is {experts}, but {down.name} is "
                    f"{list(down.shape)}"
                )
            width, onto = down.shape[0], down.shape[1]
        else:  # one tensor an expert, as files were written before 2024-04
            width, onto = self._whole("feed_forward_length"), self._hidden
        shared = first.get("ffn_up_shexp")
        shared_width = shared.shape[-1] if shared else 0
        dense_beside = "ffn_down" in first and "ffn_up" in first
        return MoE(
            n_experts=experts,
            experts_per_token=self._whole("expert_used_count"),
            moe_intermediate=width,
            n_moe_layers=len(layers),
            n_shared_experts=self._whole("expert_shared_count", 1) if shared else 0,
            shared_intermediate=shared_width,
            first_dense_layers=self._dense_before(layers),
            dense_ffn_beside_experts=dense_beside,
            latent_size=onto if onto != self._hidden else None,
        )

    def _dense_before(self, layers: list[int]) -> int:
        """Dense layers in front of an unbroken row of layers with experts."""
        unbroken = layers == list(range(layers[0], self._n_layers))
        dense = all("ffn_down" in has for has in self._layers[: layers[0]])
        return layers[0] if unbroken and dense else 0

    def _per_layer_embedding(self, top: dict[str, TensorInfo]) -> PerLayerEmbedding | None:
        width = self._whole("embedding_length_per_layer_input", 0)
        table = top.get("per_layer_token_embd.weight")
        if not width or table is None:
            return None
        laurel = self._layers[0].get("laurel_l")
        widths = {up.shape[-1] for has in self._layers if (up := has.get("ffn_up")) is not None}
        return PerLayerEmbedding(
            dim=width,
            vocab_size=table.values // (width * self._n_layers),
            altup_inputs=self._whole("altup.num_inputs", 0),
            laurel_rank=min(laurel.shape) if laurel else 0,
            kv_shared_layers_use_double_ffn=len(widths) > 1,
        )


def _keeps_state(has: dict[str, TensorInfo]) -> bool:
    return any(name.startswith(("ssm_", "shortconv.")) for name in has)


def _has_experts(has: dict[str, TensorInfo]) -> bool:
    return "ffn_down_exps" in has or "ffn_down.0" in has


def _has_ffn(has: dict[str, TensorInfo]) -> bool:
    return _has_experts(has) or "ffn_down" in has


def _if_other(value: int | None, than: int) -> int | None:
    return value if value not in (None, than) else None
