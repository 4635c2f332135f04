"""A server to hit: where it is, how it speaks, and what is known about the box behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from headroom_bench.errors import UserError
from headroom_bench.redaction import hide, hide_basic, redacted
from headroom_bench.secret_words import hide_header, shown_fields, shown_words
from headroom_bench.shipped import find_file, shipped_dir
from headroom_bench.toml_table import Check, Table, read_toml
from headroom_bench.units import MOST_S, MOST_SEQUENCE_TOKENS, MOST_SLOTS, MOST_TOKENS

RUNTIMES = {
    "openai": "llama.cpp",
    "llamacpp": "llama.cpp",
    "vllm": "vllm",
    "ollama": "ollama",
    "sglang": "sglang",
    "mlx": "mlx",
}
"""Each dialect, and the runtime that speaks it, where none is named."""
DIALECTS = tuple(RUNTIMES)

MOST_DRAFTED_TOKENS = 64
"""Nobody drafts more in a pass."""
NO_CHECKS: Mapping[str, Check] = MappingProxyType({})

ENVIRONMENT = "env"
"""As a proxy: the one that the environment names. As a header's value, `env:VAR`: that variable."""
OUR_BODY_FIELDS = ("messages", "model", "stream", "max_tokens", "n")
"""What a request cannot have otherwise, or the measurement would not be what it says."""
_OUR_HEADERS = ("content-length", "transfer-encoding", "connection")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


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
    """`mtp` or a model's name, with `:N` for the tokens that it drafts a pass: see `draft_of`."""


MOCK = "mock"
"""The name of the bundled mock server's target."""
MOCK_BOX = ServerSpec(hardware="dgx-spark", model="gpt-oss-20b", quant="MXFP4", slots=4, ctx=32_768)
"""What the bundled mock server is where nothing else is told."""


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
    """May hold {port} where `start` picks the port. Never a password: that becomes a header."""
    dialect: str = "openai"
    model: str | None = None
    api_key_env: str | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; a value `env:VAR` stands for that variable's."""
    body: dict[str, Any] = field(default_factory=dict)
    """Further fields of every request's body; None leaves out one that we would send."""
    ca_file: str | None = None
    """Certificates (PEM) to trust besides nothing else; None: the system's."""
    insecure: bool = False
    """Trust any certificate."""
    proxy: str | None = None
    """A URL without its user and password, or `env`."""
    proxy_login: str | None = field(default=None, repr=False)
    """`user:password` for the proxy."""
    link: str | None = None
    """A network of the catalogue, for predictions where no round trip was measured."""
    journal: str | None = None
    """A journal source, or `started`: the log of the server that `start` started."""
    server: ServerSpec = ServerSpec()
    start: StartSpec | None = None
    embedded_mock: bool = False
    """The run starts the bundled mock server itself."""
    source: str = ""
    """What `load_target` was given, so that it can be read again: a name, a whole path, a URL."""

    @property
    def runtime(self) -> str:
        """The runtime that was named, else the one that speaks the dialect."""
        return self.server.runtime or RUNTIMES[self.dialect]

    def shown(self) -> dict[str, Any]:
        """All of it that may be written down: of headers only the names, no login, and commands
        without the values of options that sound secret."""
        rows = asdict(self)
        del rows["proxy_login"]
        rows["headers"] = sorted(self.headers)
        rows["body"] = shown_fields(self.body)
        if self.start is not None:
            rows["start"]["command"] = shown_words(self.start.command)
            rows["start"]["stop"] = shown_words(self.start.stop) if self.start.stop else None
        if self.journal is not None:
            rows["journal"] = " ".join(shown_words(self.journal.split(" ")))
        shown: dict[str, Any] = redacted(rows)
        return shown


def draft_of(text: str) -> tuple[str, int | None]:
    """The drafter and its tokens a pass from `mtp:4` or `MODEL:4`; None where no number is given.

    Raises `UserError`.
    """
    name, colon, count = text.rpartition(":")
    if not colon or not (count.isascii() and count.isdigit()):
        return text, None
    if not name or not count.strip("0") or float(count) > MOST_DRAFTED_TOKENS:
        raise UserError(f"draft {text!r}: 1 to {MOST_DRAFTED_TOKENS} tokens a pass, as in mtp:4")
    return name, int(count)


def load_target(name: str, checks: Mapping[str, Check] = NO_CHECKS) -> Target:
    """A target from a URL, the path of a .toml file, or the name of a shipped one. `checks` look up
    what a file names, by field.

    Raises:
        UserError: unknown name, or a wrong file (file, line and field are named).
    """
    if "://" in name:
        url, login = split_login(name)
        headers = {"Authorization": hide_basic(*login)} if login else {}
        return Target(url.split("://", 1)[1].strip("/"), url, headers=headers, source=url)
    path = find_file("target", name, shipped_dir("targets"))
    source = str(path.resolve()) if path.suffix == ".toml" and "/" in name else name
    return replace(read_target(read_toml(path), checks), source=source)


def split_login(url: str) -> tuple[str, tuple[str, str] | None]:
    """A URL without its user and password, and those.

    Raises:
        UserError: it cannot be read, or asks for more than a place; the message does not show it,
            for what may stand in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError as why:
        raise UserError(f"the URL cannot be read: {why}") from None
    if parts.query or parts.fragment:
        raise UserError("the URL has a query or a fragment, which we do not send; use a header")
    login, at, place = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, colon, password = login.partition(":")
    if not colon:  # a lone token
        hide(unquote(user))
    return urlunsplit(parts._replace(netloc=place)), (unquote(user), unquote(password))


def _check_port(url: str) -> None:
    """Raises `UserError` for a port that can be none. {port} is filled in later."""
    try:
        usable = urlsplit(url.replace("{port}", "1")).port != 0
    except ValueError:  # whose text shows what may be a key
        usable = False
    if not usable:
        raise UserError("the URL has no valid port; write http://HOST:PORT")


def read_target(table: Table, checks: Mapping[str, Check] = NO_CHECKS) -> Target:
    """The target that a table describes."""
    embedded = table.flag("embedded_mock", False)
    if embedded and table.raw("url") is not None:
        raise table.error("url", "is not for embedded_mock, which is started at a place of its own")
    headers, body = table.table("headers"), table.table("body")
    named = table.text("url", "http://127.0.0.1:{port}" if embedded else ...)
    url, login = table.told("url", lambda: split_login(named))
    table.told("url", lambda: _check_port(url))
    proxy = table.text("proxy", None)
    sent = _texts(headers) if headers else {}
    if login:
        sent["Authorization"] = hide_basic(*login)
    target = Target(
        name=table.text("name", table.path.stem),
        url=url,
        dialect=table.choice("dialect", DIALECTS, "llamacpp" if embedded else "openai"),
        model=table.text("model", None),
        api_key_env=table.text("api_key_env", None),
        headers=checked_headers(sent.items(), table.place("headers")),
        body=checked_body(body.as_dict() if body else {}, table.place("body")),
        ca_file=_beside(table, "ca_file"),
        insecure=table.flag("insecure", False),
        **table.told("proxy", lambda: proxy_fields(proxy)),
        link=table.name("link", checks.get("link")),
        journal=table.text("journal", None),
        server=_read_server(table.table("server"), checks),
        start=_read_start(table.table("start")),
        embedded_mock=embedded,
    )
    if embedded:
        target = replace(target, server=_mocked(target))
    table.raw("summary")
    table.done()
    if "{port}" in target.url and target.start is None and not embedded:
        raise table.error("url", "holds {port}, which only a [start] table can fill")
    return target


def as_mock_names_it(target: Target) -> Target:
    """For the bundled mock, `model` says what it is to be: what it will call that is its own
    business, and asked of it. Any other target as it is."""
    if not target.embedded_mock or target.model is None:
        return target
    server = replace(target.server, model=target.server.model or target.model)
    return replace(target, model=None, server=server)


def _mocked(target: Target) -> ServerSpec:
    """What the bundled mock will be, so that a prediction knows it too."""
    told = {name: value for name, value in asdict(target.server).items() if value is not None}
    if target.model is not None:
        told.setdefault("model", target.model)
    told.setdefault("runtime", RUNTIMES[target.dialect])
    return replace(MOCK_BOX, **told)


def _beside(table: Table, field: str) -> str | None:
    """A path in a file, from the folder of that file on."""
    named = table.text(field, None)
    return None if named is None else str((table.path.parent / named).resolve())


def checked_headers(headers: Iterable[tuple[str, str]], where: str) -> dict[str, str]:
    """Headers that can be sent, their values hidden from now on; of two the later one counts.

    Raises:
        UserError: a name or a value that HTTP cannot carry, or a header that is ours to set. The
            value is not shown.
    """
    found: dict[str, str] = {}
    for name, value in headers:
        if not _HEADER_NAME.fullmatch(name):
            raise UserError(f"{where}: a header's name cannot be {name[:40]!r}")
        if name.lower() in _OUR_HEADERS:
            raise UserError(f"{where}: {name} is set by HTTP itself; leave it out")
        clean = value.strip()
        hide_header(name, clean)
        if not clean.isprintable() or any(ord(letter) > 255 for letter in clean):
            raise UserError(f"{where}: the value of {name} holds what a header cannot")
        for known in [other for other in found if other.lower() == name.lower()]:
            del found[known]
        found[name] = clean
    return found


def checked_body(body: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Further body fields, the secrets in them hidden from now on. Raises `UserError` for those
    that the measurement rests on, and for what no JSON can hold (NaN, infinity, TOML's dates)."""
    shown_fields(body)
    for name, value in body.items():
        if name in OUR_BODY_FIELDS:
            raise UserError(f"{where}: {name} is not for the user to set; the crowd decides it")
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise UserError(f"{where}: {name} holds what JSON cannot, such as NaN") from None
    return dict(body)


def proxy_fields(proxy: str | None) -> dict[str, Any]:
    """`proxy` and `proxy_login` of a target, from a URL that may hold a login.

    Raises:
        UserError: it is neither `env` nor an http(s) URL; the message does not show it.
    """
    if proxy is None or proxy == ENVIRONMENT:
        return {"proxy": proxy}
    url, login = split_login(proxy)
    if not _is_place(url):
        raise UserError("write http://HOST:PORT as the proxy, or env (SOCKS is not spoken here)")
    if login is None:
        return {"proxy": url}
    hide_basic(*login)
    return {"proxy": url, "proxy_login": ":".join(login)}


def _is_place(url: str) -> bool:
    """Whether it says over HTTP which host and, perhaps, which port of it."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        port = parts.port
    except ValueError:
        return False
    named = parts.scheme in ("http", "https") and can_be_host(host)
    return named and port != 0 and url.isprintable()


def can_be_host(name: str) -> bool:
    """Whether sockets and httpx can both look up a host of that name. They differ: Python's own
    codec is IDNA 2003 and has no `xn--` name with a ß in it, httpx's is IDNA 2008."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    if not name.isascii() or "xn--" in name.lower():
        import httpx  # few addresses ask for it

        try:
            return bool(httpx.URL(f"http://{name}").host)
        except (UnicodeError, httpx.InvalidURL):
            return False
    return bool(name)


def _texts(table: Table) -> dict[str, str]:
    return {name: table.text(name, empty=True) for name in table.as_dict()}


def _read_server(table: Table | None, checks: Mapping[str, Check]) -> ServerSpec:
    if table is None:
        return ServerSpec()
    spec = ServerSpec(
        hardware=table.name("hardware", checks.get("hardware")),
        model=table.name("model", checks.get("model")),
        runtime=table.name("runtime", checks.get("runtime")),
        backend=table.text("backend", None),
        quant=table.name("quant", checks.get("quant")),
        slots=table.whole("slots", None, least=1, most=MOST_SLOTS),
        ctx=table.whole("ctx", None, least=1, most=MOST_TOKENS),
        kv_unified=table.flag("kv_unified", None),
        kv_k=table.text("kv_k", None),
        kv_v=table.text("kv_v", None),
        ubatch=table.whole("ubatch", None, least=1, most=MOST_SEQUENCE_TOKENS),
        draft=table.name("draft", checks.get("draft")),
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
        ready_timeout_s=table.number("ready_timeout_s", 120.0, least=0.1, most=MOST_S),
    )
    table.done()
    if not spec.command:
        raise table.error("command", "is empty")
    for words in (spec.command, spec.stop or ()):
        shown_words(words)  # hides what is secret before anything can go wrong
    return spec


def with_overrides(target: Target, server: dict[str, Any], **fields: Any) -> Target:
    """The target with what the command line says; None leaves a field as it is.

    Another box or runtime has another backend: the file's goes with what it was for. The bundled
    mock is the runtime that speaks its dialect.
    """
    own = {name: value for name, value in server.items() if value is not None}
    dialect = fields.get("dialect")
    if target.embedded_mock and dialect in RUNTIMES and dialect != target.dialect:
        own.setdefault("runtime", RUNTIMES[dialect])
    if own.keys() & {"hardware", "runtime"}:
        own.setdefault("backend", None)
    top = {name: value for name, value in fields.items() if value is not None}
    if "dialect" in top and top["dialect"] not in DIALECTS:
        raise UserError(f"--dialect {top['dialect']!r} is not one of {', '.join(DIALECTS)}")
    return replace(target, server=replace(target.server, **own), **top)
