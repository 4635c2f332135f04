"""GGUF files for tests: real headers over a data section that is a hole in the file.

`write_gguf` writes what it is told, right or wrong; `gguf_of` lays a model out as llama.cpp's
converter does, so that a file of any size costs a few kilobytes of disk.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headroom_bench.catalog import Model
from headroom_bench.catalog.ggml_types import GGML_TYPES

TYPE_NUMBERS = {kind.name: number for number, kind in GGML_TYPES.items()}
ALIGNMENT = 32


class Tensor(NamedTuple):
    """A tensor to describe: fastest dimension first."""

    name: str
    shape: tuple[int, ...]
    type: str = "F32"

    @property
    def size_bytes(self) -> int:
        kind = GGML_TYPES[TYPE_NUMBERS[self.type]]
        return math.prod(self.shape) // kind.block * kind.block_bytes


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    kinds = {bool: (7, "?"), int: (5, "i"), str: (8, "")}
    kind, form = kinds[type(value[0])]
    items = [text(item) if kind == 8 else struct.pack(f"<{form}", item) for item in value]
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(items)


def header_bytes(metadata: Mapping[str, Any], tensors: Sequence[Tensor], version: int = 3) -> bytes:
    """The header, padded to where the data begins."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    out += [text(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    for tensor in tensors:
        dims = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
        out += [text(tensor.name), dims, struct.pack("<IQ", TYPE_NUMBERS[tensor.type], offset)]
        offset += -(-tensor.size_bytes // ALIGNMENT) * ALIGNMENT
    data = b"".join(out)
    return data + bytes(-len(data) % ALIGNMENT)


def write_gguf(path: Path, metadata: Mapping[str, Any], tensors: Sequence[Tensor]) -> Path:
    """The file; its tensors are a hole, so it takes no room."""
    header = header_bytes(metadata, tensors)
    size = sum(-(-tensor.size_bytes // ALIGNMENT) * ALIGNMENT for tensor in tensors)
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    return path


def gguf_of(model: Model, arch: str, kind: str = "F16") -> tuple[dict[str, Any], list[Tensor]]:
    """Metadata and tensors of `model`, matrices of the type `kind`, norms and routers in F32."""
    return _Layout(model, arch, kind).file()


class _Layout:
    def __init__(self, model: Model, arch: str, kind: str) -> None:
        self._model = model
        self._arch = arch
        self._kind = kind
        self._tensors: list[Tensor] = []
        self._mtp = int(model.native_speculative.get("mtp_layers", 0))

    def file(self) -> tuple[dict[str, Any], list[Tensor]]:
        model = self._model
        self._add("token_embd", model.hidden_size, model.vocab_size)
        if not model.tied_embeddings:
            self._add("output", model.hidden_size, model.vocab_size)
        self._norm("token_embd_norm" if self._arch == "lfm2moe" else "output_norm")
        if extra := model.per_layer_embedding:
            width = extra.dim * model.n_layers
            self._add("per_layer_token_embd", width, extra.vocab_size)
            self._add("per_layer_model_proj", model.hidden_size, width)
        for i in range(model.n_layers):
            self._layer(i)
        for i in range(model.n_layers, model.n_layers + self._mtp):
            self._add(f"blk.{i}.nextn.eh_proj", 2 * model.hidden_size, model.hidden_size)
            self._attention(i, window=False)
        keys = self._keys()
        return {
            "general.architecture": self._arch,
            "general.name": model.name,
            **{f"{self._arch}.{key}": value for key, value in keys.items() if value is not None},
        }, self._tensors

    def _add(self, name: str, *shape: int, kind: str | None = None) -> None:
        self._tensors.append(Tensor(f"{name}.weight", shape, kind or self._kind))

    def _norm(self, name: str) -> None:
        self._add(name, self._model.hidden_size, kind="F32")

    # ---- which layer is what ------------------------------------------------------------------

    def _is_window(self, i: int) -> bool:
        swa = self._model.sliding_window
        if swa is None or not swa.n_global_layers:
            return swa is not None
        every = round(self._model.n_layers / swa.n_global_layers)
        return i % every < every - 1

    def _is_linear(self, i: int) -> bool:
        linear = self._model.linear_attention
        if linear is None:
            return False
        if linear.n_linear_layers == self._model.n_layers:
            return True
        return i < linear.n_linear_layers

    def _attends(self, i: int) -> bool:
        linear = self._model.linear_attention
        if linear is None:
            return i < (self._model.n_attention_layers or self._model.n_layers)
        if linear.n_linear_layers == linear.n_full_attention_layers == self._model.n_layers:
            return True
        first = linear.n_linear_layers
        return first <= i < first + linear.n_full_attention_layers

    def _has_ffn(self, i: int) -> bool:
        linear = self._model.linear_attention
        bare = linear.n_mlp_or_moe_layers if linear else 0
        return not bare or bare == self._model.n_layers or i >= self._model.n_layers - bare

    # ---- tensors ------------------------------------------------------------------------------

    def _layer(self, i: int) -> None:
        self._norm(f"blk.{i}.attn_norm")
        if self._is_linear(i):
            self._linear(i)
        if self._attends(i):
            self._attention(i, window=self._is_window(i))
        if self._has_ffn(i):
            self._ffn(i)
        if extra := self._model.per_layer_embedding:
            hidden = self._model.hidden_size
            self._add(f"blk.{i}.inp_gate", hidden, extra.dim)
            self._add(f"blk.{i}.proj", extra.dim, hidden)
            if extra.laurel_rank:
                self._add(f"blk.{i}.laurel_l", hidden, extra.laurel_rank)
                self._add(f"blk.{i}.laurel_r", extra.laurel_rank, hidden)

    def _attention(self, i: int, *, window: bool) -> None:
        model, swa = self._model, self._model.sliding_window
        hidden, heads = model.hidden_size, model.n_heads
        if model.mla:
            self._latent(i)
            return
        key, kv = model.head_dim, model.n_kv_heads
        value = model.v_head_dim or key
        if swa and not window:
            key, kv = swa.global_head_dim or key, swa.global_n_kv_heads or kv
            value = swa.global_head_dim or value
        self._add(f"blk.{i}.attn_q", hidden, heads * key * (1 + model.attention_output_gate))
        self._add(f"blk.{i}.attn_k", hidden, kv * key)
        if not (swa and swa.global_v_from_k and not window):
            self._add(f"blk.{i}.attn_v", hidden, kv * value)
        self._add(f"blk.{i}.attn_output", heads * value, hidden)
        if model.qkv_bias:
            for part in ("q", "k", "v"):
                rows = heads * key if part == "q" else kv * key
                self._tensors.append(Tensor(f"blk.{i}.attn_{part}.bias", (rows,)))
        if model.attention_sinks:
            self._add(f"blk.{i}.attn_sinks", heads, kind="F32")

    def _latent(self, i: int) -> None:
        model, mla = self._model, self._model.mla
        assert mla
        hidden, heads = model.hidden_size, model.n_heads
        key = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        if mla.q_lora_rank:
            self._add(f"blk.{i}.attn_q_a", hidden, mla.q_lora_rank)
            self._add(f"blk.{i}.attn_q_b", mla.q_lora_rank, heads * key)
        else:
            self._add(f"blk.{i}.attn_q", hidden, heads * key)
        self._add(f"blk.{i}.attn_kv_a_mqa", hidden, mla.kv_lora_rank + mla.qk_rope_head_dim)
        self._add(f"blk.{i}.attn_k_b", mla.qk_nope_head_dim, mla.kv_lora_rank, heads)
        self._add(f"blk.{i}.attn_v_b", mla.kv_lora_rank, mla.v_head_dim, heads)
        self._add(f"blk.{i}.attn_output", heads * mla.v_head_dim, hidden)

    def _linear(self, i: int) -> None:
        model, linear = self._model, self._model.linear_attention
        assert linear
        hidden, kernel = model.hidden_size, linear.conv_kernel
        if linear.kind == "gated_deltanet":
            value = linear.n_v_heads * linear.v_head_dim
            mixed = 2 * linear.n_k_heads * linear.k_head_dim + value
            self._add(f"blk.{i}.attn_qkv", hidden, mixed)
            self._add(f"blk.{i}.attn_gate", hidden, value)
            if self._arch == "qwen3next":
                self._add(f"blk.{i}.ssm_ba", hidden, 2 * linear.n_v_heads)
            else:
                self._add(f"blk.{i}.ssm_alpha", hidden, linear.n_v_heads)
                self._add(f"blk.{i}.ssm_beta", hidden, linear.n_v_heads)
            self._add(f"blk.{i}.ssm_conv1d", kernel, mixed, kind="F32")
            self._add(f"blk.{i}.ssm_out", value, hidden)
        elif linear.kind == "mamba2":
            inner = linear.n_ssm_heads * linear.ssm_head_dim
            mixed = inner + 2 * linear.n_groups * linear.ssm_state
            self._add(f"blk.{i}.ssm_in", hidden, inner + mixed + linear.n_ssm_heads)
            self._add(f"blk.{i}.ssm_conv1d", kernel, mixed, kind="F32")
            self._add(f"blk.{i}.ssm_out", inner, hidden)
        elif linear.kind == "short_conv":
            self._add(f"blk.{i}.shortconv.in_proj", hidden, 3 * hidden)
            self._add(f"blk.{i}.shortconv.conv", kernel, hidden, kind="F32")
            self._add(f"blk.{i}.shortconv.out_proj", hidden, hidden)
        else:
            inner = linear.n_heads * linear.head_dim
            for part in ("q", "k", "v"):
                self._add(f"blk.{i}.attn_{part}", hidden, inner)
                self._add(f"blk.{i}.ssm_conv1d_{part}", kernel, inner, kind="F32")
            for gate in ("f", "g"):
                self._add(f"blk.{i}.ssm_{gate}_a", hidden, linear.head_dim)
                self._add(f"blk.{i}.ssm_{gate}_b", linear.head_dim, inner)
            self._add(f"blk.{i}.ssm_beta", hidden, linear.n_heads)
            self._add(f"blk.{i}.attn_output", inner, hidden)

    def _ffn(self, i: int) -> None:
        model, moe = self._model, self._model.moe
        hidden, up = model.hidden_size, ("gate", "up") if model.ffn_gated else ("up",)
        sparse = moe is not None and i >= model.n_layers - moe.n_moe_layers
        if moe and sparse:
            self._add(f"blk.{i}.ffn_gate_inp", hidden, moe.n_experts, kind="F32")
            inside = moe.latent_size or hidden
            width, experts = moe.moe_intermediate, moe.n_experts
            if self._arch == "gemma4":
                self._add(f"blk.{i}.ffn_gate_up_exps", inside, 2 * width, experts)
            else:
                for part in up:
                    self._add(f"blk.{i}.ffn_{part}_exps", inside, width, experts)
            self._add(f"blk.{i}.ffn_down_exps", width, inside, experts)
            if moe.latent_size:
                self._add(f"blk.{i}.ffn_latent_down", hidden, inside)
                self._add(f"blk.{i}.ffn_latent_up", inside, hidden)
            if moe.shared_intermediate:
                for part in up:
                    self._add(f"blk.{i}.ffn_{part}_shexp", hidden, moe.shared_intermediate)
                self._add(f"blk.{i}.ffn_down_shexp", moe.shared_intermediate, hidden)
        if not sparse or (moe and moe.dense_ffn_beside_experts):
            width = self._width(i)
            for part in up:
                self._add(f"blk.{i}.ffn_{part}", hidden, width)
            self._add(f"blk.{i}.ffn_down", width, hidden)

    # ---- metadata -----------------------------------------------------------------------------

    def _keys(self) -> dict[str, Any]:
        model, moe, mla = self._model, self._model.moe, self._model.mla
        swa, linear = model.sliding_window, model.linear_attention
        value = model.v_head_dim or model.head_dim
        keys: dict[str, Any] = {
            "block_count": model.n_layers + self._mtp,
            "nextn_predict_layers": self._mtp or None,
            "context_length": model.max_context,
            "embedding_length": model.hidden_size,
            "feed_forward_length": self._ffn_lengths(),
            "attention.head_count": model.n_heads,
            "attention.head_count_kv": self._kv_heads(),
            "attention.key_length": model.head_dim,
            "attention.value_length": value,
        }
        if swa:
            flags = [self._is_window(i) for i in range(model.n_layers)]
            keys["attention.sliding_window"] = swa.window
            keys["attention.shared_kv_layers"] = swa.kv_shared_layers or None
            keys["attention.sliding_window_pattern"] = flags
            if swa.global_head_dim:
                keys["attention.key_length_swa"] = model.head_dim
                keys["attention.value_length_swa"] = value
                keys["attention.key_length"] = swa.global_head_dim
                keys["attention.value_length"] = swa.global_head_dim
        if mla:
            latent = mla.kv_lora_rank + mla.qk_rope_head_dim
            keys |= {
                "attention.head_count_kv": 1,
                "attention.key_length": latent,
                "attention.value_length": mla.kv_lora_rank,
                "attention.key_length_mla": model.head_dim,
                "attention.value_length_mla": value,
                "attention.kv_lora_rank": mla.kv_lora_rank,
                "attention.q_lora_rank": mla.q_lora_rank,
                "rope.dimension_count": mla.qk_rope_head_dim,
            }
        if extra := model.per_layer_embedding:
            keys["embedding_length_per_layer_input"] = extra.dim
            keys["altup.num_inputs"] = extra.altup_inputs or None
        if moe:
            keys |= {
                "expert_count": moe.n_experts,
                "expert_used_count": moe.experts_per_token,
                "expert_shared_count": moe.n_shared_experts or None,
                "expert_feed_forward_length": moe.moe_intermediate,
            }
        return keys | (self._state_keys() if linear else {})

    def _width(self, i: int) -> int:
        model, extra = self._model, self._model.per_layer_embedding
        if model.ffn_widths:
            return model.ffn_widths[i]
        swa = model.sliding_window
        shared = swa is not None and i >= model.n_layers - swa.kv_shared_layers
        double = shared and extra is not None and extra.kv_shared_layers_use_double_ffn
        return model.ffn_intermediate * (2 if double else 1)

    def _ffn_lengths(self) -> Any:
        widths = [self._width(i) for i in range(self._model.n_layers)]
        return widths if len(set(widths)) > 1 else widths[0]

    def _kv_heads(self) -> Any:
        model, swa = self._model, self._model.sliding_window
        if swa and swa.global_n_kv_heads:
            return [
                model.n_kv_heads if self._is_window(i) else swa.global_n_kv_heads
                for i in range(model.n_layers)
            ]
        if model.linear_attention and not self._attends(0):
            return [model.n_kv_heads * self._attends(i) for i in range(model.n_layers)]
        return model.n_kv_heads

    def _state_keys(self) -> dict[str, Any]:
        linear = self._model.linear_attention
        assert linear
        keys: dict[str, Any] = {"ssm.conv_kernel": linear.conv_kernel}
        if linear.kind == "gated_deltanet":
            return keys | {
                "ssm.state_size": linear.k_head_dim,
                "ssm.inner_size": linear.n_v_heads * linear.v_head_dim,
                "ssm.time_step_rank": linear.n_v_heads,
                "ssm.group_count": linear.n_k_heads,
            }
        if linear.kind == "mamba2":
            return keys | {
                "ssm.state_size": linear.ssm_state,
                "ssm.inner_size": linear.n_ssm_heads * linear.ssm_head_dim,
                "ssm.time_step_rank": linear.n_ssm_heads,
                "ssm.group_count": linear.n_groups,
            }
        if linear.kind == "short_conv":
            return {"shortconv.l_cache": linear.conv_kernel}
        return keys | {"kda.head_dim": linear.head_dim}
