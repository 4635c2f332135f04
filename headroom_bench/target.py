"""A server to hit: where it is, how it speaks, and what is known about the box behind it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from headroom_bench.errors import UserError
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import Table, read_toml

DIALECTS = ("openai", "llamacpp", "vllm", "ollama", "sglang", "mlx")


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """The box behind the URL, for predictions. None: not told."""

    hardware: str | None = None
    model: str | None = None
    """The catalogue's name of the model, where the target's `model` is only the server's."""
    runtime: str | None = None
    backend: str | None = None
    quant: str | None = None
    slots: int | None = None
    ctx: int | None = None
    """Context of the whole server, tokens (`-c`); split over the slots unless `kv_unified`."""
    kv_unified: bool | None = None
    kv_k: str | None = None
    kv_v: str | None = None
    ubatch: int | None = None
    draft: str | None = None


@dataclass(frozen=True, slots=True)
class StartSpec:
    """How to start and stop the server for a run."""

    command: tuple[str, ...]
    """Stays in the foreground and serves. Placeholders: {python}, {host}, {port}, {model_file}."""
    health: str = "/health"
    """A path on the target or a whole URL; it answers 200 once requests may come."""
    stop: tuple[str, ...] | None = None
    """A command that makes the server end; without one it gets SIGTERM."""
    model_file: str | None = None
    """The path of a GGUF file, or a name that `fetch-model` knows."""
    port: int = 0
    """0: any free one."""
    ready_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class Target:
    name: str
    url: str
    """May hold {port} where `start` picks the port."""
    dialect: str = "openai"
    model: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    link: str | None = None
    journal: str | None = None
    """A journal source, or `started`: the log of the server that `start` started."""
    server: ServerSpec = ServerSpec()
    start: StartSpec | None = None
    embedded_mock: bool = False
    """The run starts the bundled mock server itself."""


def load_target(name: str) -> Target:
    """A target from a URL, the path of a .toml file, or the name of a shipped one.

    Raises:
        UserError: unknown name, or a wrong file (file, line and field are named).
    """
    if "://" in name:
        return Target(name=name.split("://", 1)[1].strip("/"), url=name)
    return read_target(read_toml(find_file("target", name, shipped_dir("targets"))))


def read_target(table: Table) -> Target:
    """The target that a table describes."""
    embedded = table.flag("embedded_mock", False)
    headers = table.table("headers")
    target = Target(
        name=table.text("name", table.path.stem),
        url=table.text("url", "http://127.0.0.1:{port}" if embedded else ...),
        dialect=table.choice("dialect", DIALECTS, "openai"),
        model=table.text("model", None),
        api_key_env=table.text("api_key_env", None),
        headers=_texts(headers) if headers else {},
        link=table.text("link", None),
        journal=table.text("journal", None),
        server=_read_server(table.table("server")),
        start=_read_start(table.table("start")),
        embedded_mock=embedded,
    )
    table.raw("summary")
    table.done()
    if "{port}" in target.url and target.start is None and not embedded:
        raise table.error("url", "holds {port}, which only a [start] table can fill")
    return target


def _texts(table: Table) -> dict[str, str]:
    return {name: table.text(name) for name in table.as_dict()}


def _read_server(table: Table | None) -> ServerSpec:
    if table is None:
        return ServerSpec()
    spec = ServerSpec(
        hardware=table.text("hardware", None),
        model=table.text("model", None),
        runtime=table.text("runtime", None),
        backend=table.text("backend", None),
        quant=table.text("quant", None),
        slots=table.whole("slots", None, least=1),
        ctx=table.whole("ctx", None, least=1),
        kv_unified=table.flag("kv_unified", None),
        kv_k=table.text("kv_k", None),
        kv_v=table.text("kv_v", None),
        ubatch=table.whole("ubatch", None, least=1),
        draft=table.text("draft", None),
    )
    table.done()
    return spec


def _read_start(table: Table | None) -> StartSpec | None:
    if table is None:
        return None
    stop = table.texts("stop", None)
    spec = StartSpec(
        command=tuple(table.texts("command")),
        health=table.text("health", "/health"),
        stop=tuple(stop) if stop else None,
        model_file=table.text("model_file", None),
        port=table.whole("port", 0, most=65_535),
        ready_timeout_s=table.number("ready_timeout_s", 120.0, least=0.1),
    )
    table.done()
    if not spec.command:
        raise table.error("command", "is empty")
    return spec


def with_overrides(target: Target, server: dict[str, Any], **fields: Any) -> Target:
    """The target with what the command line says; None leaves a field as it is."""
    own = {name: value for name, value in server.items() if value is not None}
    top = {name: value for name, value in fields.items() if value is not None}
    if "dialect" in top and top["dialect"] not in DIALECTS:
        raise UserError(f"--dialect {top['dialect']!r} is not one of {', '.join(DIALECTS)}")
    return replace(target, server=replace(target.server, **own), **top)
