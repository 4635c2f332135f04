"""The catalogue for a reader: a table of a kind, one entry in words with its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from headroom_bench.report.persona_words import persona_words

Entry = Mapping[str, Any]

_COLUMNS: dict[str, dict[str, Callable[[Entry], str]]] = {
    "models": {
        "model": lambda e: e["id"],
        "total\nB": lambda e: _plain(e.get("params_total_b")),
        "active\nB": lambda e: _plain(e.get("params_active_b")),
        "layers": lambda e: str(e["n_layers"]),
        "cache\nKiB/token": lambda e: _plain(e["kv_bytes_per_token"] / 1024),
        "context": lambda e: _plain(e.get("max_context")),
        "released": lambda e: e.get("released", ""),
    },
    "hardware": {
        "box": lambda e: e["id"],
        "memory\nGB": lambda e: _plain(e["memory_gb"]),
        "GB/s": lambda e: _plain(e["bandwidth_gb_s"]),
        "TFLOPS\n16-bit": lambda e: _plain(e["tflops_dense"]["fp16_bf16"]),
        "kind": lambda e: e.get("kind", ""),
        "name": lambda e: e["name"],
    },
    "quants": {
        "format": lambda e: e["name"],
        "bits": lambda e: _plain(e.get("whole_file_bpw") or e.get("block_bpw")),
        "file": lambda e: e["format"],
        "kind": lambda e: e.get("kind", ""),
        "covers": lambda e: e.get("covers", "all"),
    },
    "runtimes": {
        "runtime": lambda e: e["id"],
        "name": lambda e: e["name"],
        "memory": lambda e: e["design"].replace("_", " "),
        "version": lambda e: e.get("version", ""),
    },
    "networks": {
        "network": lambda e: e["id"],
        "round trip\nms": lambda e: _plain(e.get("rtt_ms")),
        "loss": lambda e: _plain(e.get("loss")),
        "down\nMbit/s": lambda e: _plain(e.get("down_mbit_s")),
        "name": lambda e: e["name"],
    },
    "personas": {
        "persona": lambda e: e["id"],
        "what they do": lambda e: e.get("summary", ""),
    },
    "crowds": {
        "crowd": lambda e: e["id"],
        "who": lambda e: _people(e),
        "what": lambda e: e.get("summary", ""),
    },
    "targets": {
        "target": lambda e: e["id"],
        "url": lambda e: e.get("url", ""),
        "dialect": lambda e: e.get("dialect", ""),
        "hardware": lambda e: e.get("server", {}).get("hardware", ""),
        "model": lambda e: e.get("server", {}).get("model", e.get("model", "")),
    },
}

_FIGURES = (
    "total\nB", "active\nB", "layers", "cache\nKiB/token", "context", "memory\nGB", "GB/s",
    "TFLOPS\n16-bit", "bits", "round trip\nms", "loss", "down\nMbit/s",
)  # fmt: skip


def print_list(kind: str, entries: Iterable[Entry], console: Console) -> None:
    """One line an entry; `~` marks entries with estimated values."""
    columns = _COLUMNS[kind]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in columns:
        # Figures and dates stay whole; names and prose fold where the terminal is narrow.
        table.add_column(
            name,
            justify="right" if name in _FIGURES else "left",
            no_wrap=name in _FIGURES or name == "released",
            overflow="fold",
        )
    count = 0
    for entry in entries:
        cells = [cell(entry) for cell in columns.values()]
        cells[0] += " ~" if entry.get("estimated") else ""
        table.add_row(*(Text(cell) for cell in cells))
        count += 1
    console.print(table)
    console.print(Text(f"{count} {kind}; ~ has estimated values", style="dim"))


def print_entry(kind: str, entry: Entry, console: Console) -> None:
    """One entry in sentences, then where they come from."""
    for line in _WORDS[kind](entry):
        if line:
            console.print(Text(line), soft_wrap=True)
    for key, label in (("params_source", "counts from"), ("source", "source")):
        for source in str(entry.get(key, "")).split("; "):
            if source:
                console.print(Text(f"{label}: {source}"), soft_wrap=True)
    for source in entry.get("sources", ()):
        console.print(Text(f"source: {source}"), soft_wrap=True)


def _notes(entry: Entry) -> Iterator[str]:
    if entry.get("notes"):
        yield f"Notes: {entry['notes'].rstrip('.')}."
    if entry.get("estimated"):
        yield "Some of these values are estimated; the notes say which."


def _model(entry: Entry) -> Iterator[str]:
    released = f", released {entry['released']}" if entry.get("released") else ""
    yield f"{entry['name']}{released}: {_counts(entry)}."
    yield _layers(entry)
    if moe := entry.get("moe"):
        shared = f", {moe['n_shared_experts']} shared" if moe.get("n_shared_experts") else ""
        yield (
            f"Each of {moe['n_moe_layers']} layers has {moe['n_experts']} experts, "
            f"{moe['experts_per_token']} of them for a token{shared}."
        )
    window = entry.get("kv_window_bytes_per_token")
    yield (
        f"A token of context takes {entry['kv_bytes_per_token'] / 1024:,.4g} KiB at 16 bits"
        + (f", and {window / 1024:,.4g} KiB more inside the window" if window else "")
        + f" ({entry['kv_provenance']}); it reads up to {_plain(entry.get('max_context'))} tokens."
    )
    if state := entry.get("linear_attention", {}).get("state_bytes_per_sequence"):
        yield f"A sequence keeps a state of {state / 2**20:,.1f} MiB."
    if stored := entry.get("native_quant"):
        yield "Published as " + ", ".join(f"{part}: {kind}" for part, kind in stored.items()) + "."
    if reasoning := entry.get("reasoning"):
        yield f"Thinking: {reasoning.get('mode', 'known')}, {reasoning.get('format', '')}."
    if draft := entry.get("native_speculative"):
        yield f"Drafts its own next tokens: {draft.get('kind', '')}."
    yield from _notes(entry)


def _counts(entry: Entry) -> str:
    total, active = entry.get("params_total_b"), entry.get("params_active_b")
    told = f"{_plain(total)} billion parameters" if total else "a count that was not published"
    if active and active != total:
        told += f", {_plain(active)} of them used for a token"
    if computed := entry.get("computed_total_b"):
        told += f" ({computed:.2f} from the shape)"
    return told


def _layers(entry: Entry) -> str:
    line = f"{entry['n_layers']} layers"
    if swa := entry.get("sliding_window"):
        line += f", {swa['n_local_layers']} of which see only the last {swa['window']:,} tokens"
    if linear := entry.get("linear_attention"):
        line += (
            f", {linear['n_linear_layers']} of which keep a state ({linear['kind']}) and "
            f"{linear['n_full_attention_layers']} attend to everything"
        )
    if mla := entry.get("mla"):
        line += f", caching one latent of {mla['kv_lora_rank']} + {mla['qk_rope_head_dim']} values"
    heads = f"{entry.get('n_heads', '?')} heads and {entry['n_kv_heads']} key-value heads"
    return f"{line}; width {_plain(entry.get('hidden_size'))}, {heads} of {entry['head_dim']}."


def _hardware(entry: Entry) -> Iterator[str]:
    measured = entry.get("measured_read_bandwidth_gb_s")
    yield (
        f"{entry['name']} ({entry.get('kind', 'gpu')}, {entry['architecture']}): "
        f"{_plain(entry['memory_gb'])} GB of memory, {_plain(entry['usable_memory_gb'])} of them "
        f"usable, at {_plain(entry['bandwidth_gb_s'])} GB/s by the data sheet"
        + (f" and {_plain(measured)} measured" if measured else "")
        + "."
    )
    rates = {k: v for k, v in entry["tflops_dense"].items() if v}
    yield "TFLOPS, dense: " + ", ".join(f"{k} {_plain(v)}" for k, v in rates.items()) + "."
    if entry.get("tflops_basis"):
        yield f"They are {entry['tflops_basis']}."
    if link := entry.get("second_box_link"):
        yield (
            f"A second one is reached over {link['kind']}: {_plain(link['bandwidth_gb_s'])} GB/s "
            f"one way, {_plain(link['latency_us'])} µs."
        )
    power = [
        f"{_plain(entry['tdp_w'])} W" if entry.get("tdp_w") else "",
        f"${_plain(entry['launch_price_usd'])} at launch" if entry.get("launch_price_usd") else "",
        f"launched {entry['launch']}" if entry.get("launch") else "",
    ]
    yield ", ".join(part for part in power if part) + "." if any(power) else ""
    if entry.get("usual_backends"):
        yield "Usual servers: " + ", ".join(entry["usual_backends"]) + "."
    yield from _notes(entry)


def _quant(entry: Entry) -> Iterator[str]:
    covers = {
        "all": "every weight",
        "linear": "attention, FFN and experts",
        "experts": "routed experts",
    }[entry.get("covers", "all")]
    yield f"{entry['name']} ({entry['format']}, {entry.get('kind', 'plain')}): covers {covers}."
    if entry.get("block_bpw"):
        layout = f" ({entry['block_layout']})" if entry.get("block_layout") else ""
        yield f"A block takes {_plain(entry['block_bpw'])} bits a weight{layout}."
    if entry.get("whole_file_bpw"):
        yield f"A whole file takes {_plain(entry['whole_file_bpw'])}, its mixed types together."
    if entry.get("covers", "all") != "all":
        yield f"The rest stays at {_plain(entry.get('rest_bpw', 16.0))} bits."
    if entry.get("attention_bpw"):
        hybrid = _plain(entry.get("hybrid_attention_bpw", entry["attention_bpw"]))
        yield f"Attention stays at {_plain(entry['attention_bpw'])} bits (hybrids: {hybrid})."
    if entry.get("methodology_bpw"):
        yield f"The Methodology page reckons with {_plain(entry['methodology_bpw'])}."
    yield from _notes(entry)


def _runtime(entry: Entry) -> Iterator[str]:
    yield f"{entry['name']}, {entry.get('version', 'version not known')}: {entry['design']}."
    for key in (
        "memory_design", "context_per_slot", "scheduling", "queueing", "prompt_cache",
        "oversize_prompt", "streaming", "multi_gpu", "multi_box", "memory_limit", "speculation",
    ):  # fmt: skip
        if entry.get(key):
            yield f"{key.replace('_', ' ').capitalize()}: {entry[key]}."
    if entry.get("defaults"):
        yield "Defaults: " + ", ".join(f"{k} {v}" for k, v in entry["defaults"].items()) + "."
    yield from _notes(entry)


def _network(entry: Entry) -> Iterator[str]:
    facts = [
        f"round trip {_plain(entry.get('rtt_ms'))} ms" if entry.get("rtt_ms") else "",
        f"jitter {_plain(entry['jitter_ms'])} ms" if entry.get("jitter_ms") else "",
        f"{entry['loss']:.2%} of packets lost" if entry.get("loss") else "",
        f"{_plain(entry['up_mbit_s'])} Mbit/s up" if entry.get("up_mbit_s") else "",
        f"{_plain(entry['down_mbit_s'])} Mbit/s down" if entry.get("down_mbit_s") else "",
    ]
    yield f"{entry['name']}: " + ", ".join(fact for fact in facts if fact) + "."
    if entry.get("shared_medium"):
        yield "All clients share the air: their frames wait in one queue."
    if entry.get("airtime"):
        yield "Airtime: " + ", ".join(f"{k} {v}" for k, v in entry["airtime"].items()) + "."
    if entry.get("handshake"):
        yield f"Handshake: {entry['handshake']}."
    yield from _notes(entry)


def _people(entry: Entry) -> str:
    groups = entry.get("group", ())
    return ", ".join(
        f"{group.get('count', 1)} {_renamed(group) or group['persona']}" for group in groups
    )


def _renamed(group: Entry) -> str | None:
    """What a crowd calls its persona, where that is another name than the persona's own."""
    name: str | None = group.get("overrides", {}).get("name")
    return name


def _crowd(entry: Entry) -> Iterator[str]:
    yield f"{entry['id']}: {entry.get('summary', 'a crowd')}."
    for group in entry.get("group", ()):
        link = f" over {group['link']}" if "link" in group else ""
        other = _renamed(group)
        name = f" as {other}" if other else ""
        yield f"  {group.get('count', 1)} {group['persona']}{name}{link}"


def _file(entry: Entry) -> Iterator[str]:
    summary = f": {entry['summary']}" if entry.get("summary") else ""
    yield f"{entry.get('name', entry['id'])}{summary}"
    for key, value in entry.items():
        if key not in ("id", "name", "summary", "sources"):
            yield f"  {key}: {_nested(value)}"


def _nested(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_nested(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return "; ".join(_nested(item) for item in value)
    return str(value)


def _plain(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) and value < 10_000 else f"{value:,}"


_WORDS: dict[str, Callable[[Entry], Iterator[str]]] = {
    "models": _model,
    "hardware": _hardware,
    "quants": _quant,
    "runtimes": _runtime,
    "networks": _network,
    "personas": persona_words,
    "crowds": _crowd,
    "targets": _file,
}
