"""A GGUF header as a stack of blocks: what each has, and what the metadata says of all."""

from __future__ import annotations

import re
from collections import defaultdict

from headroom_bench.catalog.checks import MAX_LAYERS
from headroom_bench.catalog.gguf_header import GgufHeader, TensorInfo
from headroom_bench.errors import UserError

_BLOCK = re.compile(r"^blk\.(\d{1,6})\.(.+)$")
_UNREADABLE = {"deepseek4": "its compressed cache is not described in the file"}
_NOT_LANGUAGE = {
    "clip": "an image or audio projector",
    "t5": "an encoder-decoder",
    "t5encoder": "an encoder",
    "gemma-embedding": "an encoder",
    "wavtokenizer-dec": "an audio decoder",
}

Layer = dict[str, TensorInfo]
"""A block's weights by name, without `blk.N.` and `.weight`; biases and scales left out."""


class Blocks:
    """One model's header. Keys are written without the architecture in front.

    Raises `UserError` when made: not a language model, no layers, or blocks that do not match the
    metadata.
    """

    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.path = header.path
        arch = header.metadata.get("general.architecture")
        kind = header.metadata.get("general.type", "model")
        if kind != "model" or not isinstance(arch, str):
            raise self.wrong(f"is GGUF, but of the kind {str(kind)!r:.40}, not a language model")
        if arch in _NOT_LANGUAGE or "bert" in arch:
            told = _NOT_LANGUAGE.get(arch, "an encoder")
            raise UserError(f"{self.path}: is GGUF, but {told}, not a language model")
        if arch in _UNREADABLE:
            raise UserError(f"{self.path}: {arch} cannot be read: {_UNREADABLE[arch]}")
        self.arch = arch
        self.mtp_layers = self.whole("nextn_predict_layers", 0)
        self.n_layers = self.whole("block_count") - self.mtp_layers
        if not 1 <= self.n_layers <= MAX_LAYERS:
            raise self.wrong(f"{self.n_layers:,} layers cannot be")
        self.layers = self._tensors_by_layer()
        self.n_heads = max(self.per_layer("attention.head_count"))
        self.hidden = self.whole("embedding_length")
        if not self.n_heads or not self.hidden:
            raise self.wrong("has no attention heads or no width, which cannot be")
        self.kv_heads = self.per_layer("attention.head_count_kv", self.n_heads)

    def wrong(self, problem: str) -> UserError:
        """A `UserError` that names the file."""
        return UserError(f"{self.path}: {problem}")

    def get(self, key: str) -> object:
        """Metadata of this architecture."""
        return self.header.metadata.get(f"{self.arch}.{key}")

    def whole(self, key: str, default: int | None = None) -> int:
        """One number; of a list that has one value for every layer, the largest."""
        value = self.get(key)
        if value is None and default is not None:
            return default
        if value is None:
            raise self.wrong(f"metadata {self.arch}.{key} is missing; the file is not whole")
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers or (None,):
            if type(number) is not int or not 0 <= number < 1 << 32:
                raise self.wrong(f"metadata {self.arch}.{key} is {number!r:.40}, which cannot be")
        return max(number for number in numbers if isinstance(number, int))

    def per_layer(self, key: str, default: int | None = None) -> list[int]:
        """A value for every layer, whether the file has one for all or a list."""
        largest = self.whole(key, default)
        value = self.get(key)
        if not isinstance(value, tuple):
            return [largest] * self.n_layers
        if len(value) < self.n_layers:
            raise self.wrong(
                f"contradicts itself: {self.arch}.{key} has {len(value)} values for "
                f"{self.n_layers} layers"
            )
        return [int(number) for number in value[: self.n_layers]]

    def _tensors_by_layer(self) -> list[dict[str, TensorInfo]]:
        found: dict[int, dict[str, TensorInfo]] = defaultdict(dict)
        for tensor in self.header.tensors:
            match = _BLOCK.match(tensor.name)
            if match and not match[2].endswith((".bias", ".scale")):
                found[int(match[1])][match[2].removesuffix(".weight")] = tensor
        beyond = max(found, default=-1)
        if beyond >= self.n_layers + self.mtp_layers:
            raise self.wrong(
                f"contradicts itself: {self.arch}.block_count is "
                f"{self.n_layers + self.mtp_layers}, but there is a block {beyond}"
            )
        empty = [i for i in range(self.n_layers) if not found[i]]
        if empty:
            raise self.wrong(f"block {empty[0]} of {self.n_layers} has no tensors")
        return [found[i] for i in range(self.n_layers)]


def keeps_state(layer: Layer) -> bool:
    """Whether a block has a mixer with a state in it."""
    return any(name.startswith(("ssm_", "shortconv.")) for name in layer)


def attends(layer: Layer) -> bool:
    """Whether a block has a growing cache. Q, K and V may also be the input of a state."""
    return (
        ("attn_k" in layer and "ssm_conv1d_k" not in layer)
        or "attn_kv_a_mqa" in layer
        or (bool({"attn_qkv", "attn_q"} & layer.keys()) and not keeps_state(layer))
    )


def has_experts(layer: Layer) -> bool:
    """Whether a block has routed experts, in one tensor or one by one."""
    return "ffn_down_exps" in layer or "ffn_down.0" in layer


def has_ffn(layer: Layer) -> bool:
    """Whether a block has an FFN of any kind."""
    return has_experts(layer) or "ffn_down" in layer
