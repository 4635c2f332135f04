"""Whether a shape can be: what every reader of a user's file asks before it hands a model out."""

from __future__ import annotations

from headroom_bench.catalog._entries import require_positive
from headroom_bench.catalog.model import Model
from headroom_bench.errors import UserError

MAX_LAYERS = 2000
"""The deepest published model has 126."""
MAX_WIDTH = 1 << 24
"""Of any matrix; the largest of today is a vocabulary, below 2^20."""
_WIDTHS = (
    "hidden_size",
    "n_heads",
    "n_kv_heads",
    "head_dim",
    "v_head_dim",
    "vocab_size",
    "ffn_intermediate",
)


def checked(model: Model, where: str) -> Model:
    """The same model. Raises `UserError`, naming `where`: impossible or contradictory figures."""
    require_positive(model, where, "n_layers", "n_kv_heads", "head_dim")
    if not model.partial:
        require_positive(model, where, "hidden_size", "n_heads", "vocab_size")
        if model.moe is None and not model.ffn_widths and model.stored is None:
            require_positive(model, where, "ffn_intermediate")
    if model.n_layers > MAX_LAYERS:
        raise UserError(f"{where}: n_layers {model.n_layers:,} cannot be")
    for name in _WIDTHS:
        if getattr(model, name) > MAX_WIDTH:
            raise UserError(f"{where}: {name} {getattr(model, name):,} cannot be")
    if model.n_heads and model.mla is None and model.n_kv_heads > model.n_heads:
        raise UserError(
            f"{where}: contradicts itself: {model.n_kv_heads} key-value heads (n_kv_heads), but "
            f"{model.n_heads} heads"
        )
    _check_layers(model, where)
    _check_moe(model, where)
    return model


def _check_layers(model: Model, where: str) -> None:
    counts = {"n_attention_layers": model.n_attention_layers or 0}
    if swa := model.sliding_window:
        require_positive(swa, f"{where}: sliding_window", "window")
        counts["layers with and without a window"] = swa.n_local_layers + swa.n_global_layers
        counts["kv_shared_layers"] = swa.kv_shared_layers
    if linear := model.linear_attention:
        counts["n_linear_layers"] = linear.n_linear_layers
        counts["n_full_attention_layers"] = linear.n_full_attention_layers
    if model.moe:
        counts["n_moe_layers"] = model.moe.n_moe_layers
    for name, count in counts.items():
        if count > model.n_layers:
            raise UserError(
                f"{where}: contradicts itself: {name} is {count} of {model.n_layers} layers"
            )
    if model.ffn_widths and len(model.ffn_widths) != model.n_layers:
        raise UserError(
            f"{where}: contradicts itself: {len(model.ffn_widths)} ffn_widths for "
            f"{model.n_layers} layers"
        )


def _check_moe(model: Model, where: str) -> None:
    if moe := model.moe:
        inside = f"{where}: moe"
        require_positive(
            moe, inside, "n_experts", "experts_per_token", "n_moe_layers", "moe_intermediate"
        )
        if moe.experts_per_token > moe.n_experts:
            raise UserError(f"{inside}: experts_per_token is above n_experts")
        if max(moe.n_experts, moe.moe_intermediate, moe.shared_intermediate) > MAX_WIDTH:
            raise UserError(f"{inside}: its experts cannot be that many or that wide")
