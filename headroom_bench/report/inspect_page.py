"""What `inspect` found, as lines and tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headroom_bench.units import counted

_GIB = 2**30
_KINDS = {
    "full": "attend to everything",
    "latent": "attend to everything through a latent",
    "window": "attend to a window",
    "compressed": "attend to a compressed cache",
    "state": "keep a state",
    "no_cache": "have no memory of their own",
}
_PARTS = {
    "experts": "experts (routed)",
    "attention": "attention (always)",
    "embeddings_output": "embeddings/output",
    "dense_ffn": "dense FFN, routers, shared (always)",
    "other": "norms and other",
}


def print_inspection(document: Mapping[str, Any], console: Console) -> None:
    """Prints one document of `experiments.inspect`."""
    for line in _head(document):
        _say(console, line)
    if document["weights"]:
        _print_weights(document, console)
    _print_kv(document["kv"], console)
    for line in (*_memory(document["memory"]), *_fit(document["fit"])):
        _say(console, line)
    if document.get("vs"):
        _print_versus(document, console)


def _say(console: Console, line: str) -> None:
    """One line, left whole: the terminal wraps it, a pipe gets it as it is."""
    console.print(Text(line), soft_wrap=True)


def gib(size: float) -> str:
    """Bytes in GiB, or in MiB where they are few."""
    return f"{size / _GIB:,.2f} GiB" if abs(size) >= 0.1 * _GIB else f"{size / 2**20:,.1f} MiB"


def _head(document: Mapping[str, Any]) -> Iterator[str]:
    shape, params = document["shape"], document["params"]
    yield document["name"] + (f" ({shape['family']})" if shape["family"] else "")
    if document["same_shape_as"]:
        yield f"  same shape as: {document['same_shape_as']}"
    kinds = ", ".join(f"{count} {_KINDS[kind]}" for kind, count in shape["layer_kinds"].items())
    yield f"  {shape['layers']} layers: {kinds}" + _window(shape)
    yield (
        f"  width {shape['hidden_size']:,}, {_heads(shape)}, FFN {shape['ffn_intermediate']:,}, "
        f"vocabulary {shape['vocab_size']:,}" + (" (tied)" if shape["tied_embeddings"] else "")
    )
    if moe := shape["moe"]:
        shared = f", {moe['shared']} shared of {moe['shared_width']:,}" if moe["shared"] else ""
        yield (
            f"  experts: {moe['used']} of {moe['experts']} a token, {moe['width']:,} wide, in "
            f"{moe['layers']} layers{shared}"
        )
    if shape["mtp_layers"]:
        yield f"  {shape['mtp_layers']} more for predicting further tokens (MTP)"
    if params:
        yield _params(params)
    if document["source"]:
        yield f"  source: {document['source']}"
    if document["notes"]:
        yield f"  notes: {document['notes']}"


def _heads(shape: Mapping[str, Any]) -> str:
    if mla := shape["mla"]:
        return f"{shape['heads']} heads over one latent of {mla['latent']} + {mla['rope']} values"
    widths = str(shape["head_dim"])
    if shape["v_head_dim"] != shape["head_dim"]:
        widths = f"{shape['head_dim']} (K) and {shape['v_head_dim']} (V)"
    return f"{shape['heads']} heads, {shape['kv_heads']} key-value heads of {widths}"


def _window(shape: Mapping[str, Any]) -> str:
    told = f" of {shape['window']:,} tokens" if shape["window"] else ""
    return told + (f" ({shape['linear_kind']})" if shape["linear_kind"] else "")


_SAME_COUNT = 0.02
"""Counts of parameters that differ by no more are the same: the published are rounded."""


def _params(params: Mapping[str, Any]) -> str:
    line = f"  parameters: {_billions(params['total_b'])}"
    if params["experts"]:
        line += f", {_billions(params['active_b'])} active a token"
    line += f" (counted in the {params['counted_in']}"
    if params["published_total_b"]:
        line += f"; published {_billions(params['published_total_b'])}"
        if params["experts"] and params["published_active_b"]:
            line += f" and {_billions(params['published_active_b'])}{_without_tables(params)}"
    return line + ")"


def _without_tables(params: Mapping[str, Any]) -> str:
    """Where a publisher does not count the embedding, of which a token uses a row."""
    tables_b = (params["embedding"] + params["per_layer_embedding"]) / 1e9
    published_b = params["published_active_b"]
    if abs(params["active_b"] - tables_b - published_b) > _SAME_COUNT * published_b:
        return ""
    if abs(params["active_b"] - published_b) <= _SAME_COUNT * published_b:
        return ""
    return f", without the embedding's {_billions(tables_b)}"


def _billions(value: float) -> str:
    return f"{value * 1000:.1f} M" if value < 1 else f"{value:.2f} B"


def _print_weights(document: Mapping[str, Any], console: Console) -> None:
    weights, per_pass = document["weights"], document["per_pass"]
    told = "as the file has it" if weights["told_by"] == "file" else "by the table of formats"
    _say(
        console,
        f"\nweights: {weights['quant']}, {weights['bits_per_weight']:.2f} bits each, {told}",
    )
    if weights["types"]:
        for name, entry in weights["types"].items():
            _say(console, f"  {name:<8} {entry['tensors']:>5} tensors  {gib(entry['bytes'])}")
    for name in weights["types_only_in_name"]:
        _say(console, f"  the file's name says {name}, but no tensor is stored so")
    table = _plain_table("part", "bytes", "share")
    for part, size in weights["parts"].items():
        if size:
            table.add_row(_PARTS[part], gib(size), f"{size / weights['tensor_bytes']:.1%}")
    table.add_row("all tensors", gib(weights["tensor_bytes"]), "")
    if weights["file_bytes"]:
        table.add_row("file, with header", gib(weights["file_bytes"]), "")
    console.print(table)
    if per_pass["experts"]:
        _say(
            console,
            f"  a pass, {per_pass['experts_used']} of {per_pass['experts']} experts: "
            f"{gib(per_pass['total'])} = always active {gib(per_pass['always_active'])} "
            f"({per_pass['always_active_share']:.0%}) + routed {gib(per_pass['routed'])}",
        )
    else:
        _say(console, f"  a pass reads {gib(per_pass['total'])}")
    if published := document["published"]:
        _say(
            console,
            f"  by published counts at {published['bits_per_weight']} bits: "
            f"{published['weights_gb']:.1f} GB, {published['per_token_gb']:.1f} GB a token",
        )


def _print_kv(kv: Mapping[str, Any], console: Console) -> None:
    why = f": {kv['why']}" if kv["why"] else ""
    _say(console, f"\ncache ({kv['provenance']}{why})")
    types = kv["bytes_per_token"]
    table = _plain_table("bytes a token", *types)
    rows = {"layers that keep everything": "full"}
    if kv["window_tokens"]:
        rows[f"layers that keep {kv['window_tokens']:,} tokens"] = "window"
    for label, key in rows.items():
        table.add_row(label, *(f"{entry[key]:,.0f}" for entry in types.values()))
    console.print(table)
    if kv["state_bytes_per_sequence"]:
        _say(console, f"  state of a sequence: {gib(kv['state_bytes_per_sequence'])}")


def _memory(memory: Mapping[str, Any] | None) -> Iterator[str]:
    if memory is None:
        yield "\nmemory: not known, the shape is only partly published"
        return
    slots = counted(memory["slots"], "slot")
    beyond = " (more than it was trained for)" if memory["beyond_training"] else ""
    kinds = "/".join(dict.fromkeys((memory["kv_k"], memory["kv_v"])))
    yield (
        f"\nmemory with {slots} of {memory['context_tokens']:,} tokens{beyond}, cache in {kinds}: "
        f"{memory['total_gb']:.2f} GB = weights {memory['weights_gb']:.2f} + cache "
        f"{memory['kv_gb']:.2f} + overhead {memory['overhead_gb']:.1f}"
    )


def _fit(fit: Mapping[str, Any] | None) -> Iterator[str]:
    if fit is None:
        return
    if fit["fits"]:
        yield (
            f"fits into {fit['hardware']}: {fit['free_gb']:.1f} GB of {fit['usable_gb']:.1f} "
            f"stay free; at most {fit['max_context_tokens']:,} tokens a slot, or "
            f"{fit['max_users']} slots"
        )
        return
    yield (
        f"does not fit into {fit['hardware']}: {-fit['free_gb']:.1f} GB too much for its "
        f"{fit['usable_gb']:.1f} GB"
    )
    for remedy in fit["would_fit"]:
        yield (
            f"  would fit: {remedy['change']} ({remedy['total_gb']:.1f} of "
            f"{remedy['usable_gb']:.1f} GB)"
        )
    if not fit["would_fit"]:
        yield "  no smaller format, context or second box of the kind is enough"


def _print_versus(document: Mapping[str, Any], console: Console) -> None:
    versus = document["vs"]
    _say(console, f"\nagainst {versus['model']} ({versus['quant']})")
    for key, (here, there) in versus["shape_differs_in"].items():
        _say(console, f"  not the same model: {key} {here} here, {there} there")
    for name, (here, there) in versus["types"].items():
        _say(console, f"  {name:<8} {here:>5} tensors here, {there} there")
    table = _plain_table("part", "other minus this")
    for part, size in versus["parts"].items():
        if size:
            table.add_row(_PARTS[part], f"{_signed(size)}")
    table.add_row("all tensors", _signed(versus["tensor_bytes"]))
    table.add_row("a pass", f"{_signed(versus['per_pass'])} ({versus['per_pass_ratio'] - 1:+.1%})")
    console.print(table)


def _signed(size: float) -> str:
    return ("+" if size > 0 else "") + gib(size)


def _plain_table(first: str, *rest: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim", pad_edge=True)
    table.add_column(first)
    for name in rest:
        table.add_column(name, justify="right")
    return table
