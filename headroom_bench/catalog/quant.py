"""Widths of quantized weights and of cached values."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from headroom_bench.catalog._entries import read_data, require_positive
from headroom_bench.catalog._shelf import Shelf
from headroom_bench.errors import UserError, unknown_name


@dataclass(frozen=True, slots=True)
class Quant:
    """One way to store weights. Widths are bits a weight, scales included."""

    name: str
    format: str
    """gguf, safetensors or mlx."""
    kind: str = ""
    block_bpw: float | None = None
    """One block's width."""
    whole_file_bpw: float | None = None
    """A whole file's, embeddings and output included, where types are mixed."""
    covers: str = "all"
    """all, linear (attention, FFN, experts) or experts (routed experts only, where there are)."""
    rest_bpw: float = 16.0
    """The width of what is not covered."""
    attention_bpw: float | None = None
    """Attention's, and that of the dense FFN beside experts, where files leave both wider."""
    hybrid_attention_bpw: float | None = None
    """The same for models with recurrent layers, whose mixers have it, too."""
    methodology_bpw: float | None = None
    """The Methodology page's figure for the same name."""
    aliases: tuple[str, ...] = ()
    block_layout: str = ""
    llama31_8b_size_gib: float | None = None
    notes: str = ""
    estimated: bool = False
    source: str = ""

    @property
    def bits_per_weight(self) -> float:
        """The covered weights' width: the mixed file's where it is known, else the block's."""
        return self.whole_file_bpw or self.block_bpw or 16.0


def _check(quant: Quant, where: str) -> None:
    if quant.covers not in ("all", "linear", "experts"):
        raise UserError(f"{where}: covers must be all, linear or experts, not {quant.covers!r}")
    if not (quant.whole_file_bpw or quant.block_bpw):
        raise UserError(f"{where}: field block_bpw or whole_file_bpw is missing; add one")
    require_positive(quant, where, "bits_per_weight", "rest_bpw")


_SHELF = Shelf(
    "quantization", Quant, "quants", lambda quant: (quant.name.lower(), *quant.aliases), _check
)


def quants() -> tuple[Quant, ...]:
    """All shipped weight formats, in the order of the data file."""
    return _SHELF.entries


def find_quant(name: str) -> Quant:
    """The weight format meant by a name or a TOML path. Raises `UserError`."""
    return _SHELF.find(name)


@functools.cache
def kv_types() -> dict[str, float]:
    """Bytes a cached value, by the type's short name."""
    table: dict[str, float] = {"bf16": 2.0, "f32": 4.0, "iq4_nl": 0.5625, "auto": 2.0}
    for entry in read_data("quants.json")["kv_cache_types"]:
        short = entry["type"].split(" ")[0].split("/")[0]
        table[short] = float(entry["bytes_per_value"])
    return table


def kv_value_bytes(name: str) -> float:
    """Bytes a cached value of the KV type `name` (f16, q8_0, fp8 …). Raises `UserError`."""
    plain = {"fp16": "f16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8"}.get(name.lower(), name.lower())
    if plain not in kv_types():
        raise unknown_name("KV cache type", name, kv_types())
    return kv_types()[plain]
