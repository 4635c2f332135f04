"""Weights as a file really stores them: bytes and types by what each tensor does."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from headroom_bench.catalog.gguf_header import TensorInfo
from headroom_bench.catalog.quant import Quant

ROLES = (
    "experts",
    "attention",
    "embedding",
    "per_layer_embedding",
    "output",
    "dense_ffn",
    "shared_experts",
    "router",
    "other",
    "mtp",
)
"""What a tensor can be for. `attention` holds linear-attention and state-space mixers too, `other`
norms and small vectors, `mtp` multi-token-prediction blocks (used by speculative decoding only)."""

PARTS = {
    "experts": ("experts",),
    "attention": ("attention",),
    "embeddings_output": ("embedding", "per_layer_embedding", "output"),
    "dense_ffn": ("dense_ffn", "shared_experts", "router"),
    "other": ("other", "mtp"),
}
"""The Tuning article's parts of a file: its dense FFN holds whatever of the FFN is not a routed
expert, so routers (and shared experts, where a model has them) are in it."""

_BLOCK = re.compile(r"^blk\.(\d+)\.(.+)$")
_ONE_EXPERT = re.compile(r"^ffn_(gate|down|up)\.\d+\.")
_MIXERS = ("attn_", "ssm_", "shortconv.", "time_mix_", "indexer.")
_FFN = ("ffn_gate", "ffn_up", "ffn_down", "channel_mix_")


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """All tensors of one role and one type."""

    role: str
    type: str
    tensors: int
    values: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Stored:
    """One file's tensors, grouped; a split file's parts together."""

    groups: tuple[TensorGroup, ...]
    file_bytes: int
    """Header and padding included."""

    def size_bytes(self, *roles: str) -> int:
        """Bytes of the tensors of these roles; of all of them where none is named."""
        return sum(g.size_bytes for g in self.groups if not roles or g.role in roles)

    def values(self, *roles: str) -> int:
        """Parameters of these roles; of all of them where none is named."""
        return sum(g.values for g in self.groups if not roles or g.role in roles)

    @property
    def bits_per_weight(self) -> float:
        """Over all tensors."""
        return self.size_bytes() * 8 / self.values()

    def by_type(self) -> dict[str, tuple[int, int]]:
        """Tensors and bytes of each type, most bytes first."""
        sums: dict[str, tuple[int, int]] = {}
        for group in self.groups:
            tensors, size = sums.get(group.type, (0, 0))
            sums[group.type] = tensors + group.tensors, size + group.size_bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1][1]))

    def quant(self) -> Quant:
        """The file's own mix as a weight format, named by the types with the most bytes."""
        types = self.by_type()
        main = [name for name, (_, size) in types.items() if size > 0.02 * self.size_bytes()]
        k_quant = sum(size for name, (_, size) in types.items() if name.endswith("_K"))
        return Quant(
            name=" + ".join(main[:3]),
            format="gguf",
            kind="k-quant" if 2 * k_quant > self.size_bytes() else "",
            whole_file_bpw=self.bits_per_weight,
            source="the file's tensors",
        )


def stored_weights(tensors: Iterable[TensorInfo], n_layers: int, file_bytes: int) -> Stored:
    """Tensors grouped by role and type. Blocks from `n_layers` on predict further tokens."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for tensor in tensors:
        entry = sums[role_of(tensor.name, n_layers), tensor.type.name]
        entry[0] += 1
        entry[1] += tensor.values
        entry[2] += tensor.size_bytes
    groups = [TensorGroup(role, kind, *entry) for (role, kind), entry in sums.items()]
    return Stored(tuple(sorted(groups, key=lambda g: (ROLES.index(g.role), g.type))), file_bytes)


def role_of(name: str, n_layers: int) -> str:
    """What a tensor does, by its name in llama.cpp's files (gguf-py, `MODEL_TENSOR_NAMES`)."""
    block = _BLOCK.match(name)
    if block is None:
        top = {
            "token_embd.weight": "embedding",
            "per_layer_token_embd.weight": "per_layer_embedding",
            "output.weight": "output",
        }
        return top.get(name, "other")
    if int(block[1]) >= n_layers or block[2].startswith("nextn."):
        return "mtp"
    return _role_in_block(block[2])


def _role_in_block(rest: str) -> str:
    if "norm" in rest:
        return "other"
    if "exps" in rest or _ONE_EXPERT.match(rest):
        return "experts"
    if rest.startswith(("ffn_gate_inp", "exp_probs_b")):
        return "router"
    if "_shexp" in rest or rest.startswith("ffn_latent_"):
        return "shared_experts"
    if rest.startswith(_MIXERS):
        return "attention"
    return "dense_ffn" if rest.startswith(_FFN) else "other"
