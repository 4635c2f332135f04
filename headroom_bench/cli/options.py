"""Options that several commands share, and how their words become values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from headroom_bench.crowd.crowd import Crowd, crowd_of, load_crowd, plain_crowd
from headroom_bench.crowd.persona import probe_persona
from headroom_bench.crowd.script import PROMPT_KINDS, Prompts
from headroom_bench.crowd.sessions import read_sessions
from headroom_bench.errors import UserError, unknown_name
from headroom_bench.live.timeouts import Timeouts
from headroom_bench.paths import typed_path
from headroom_bench.target import (
    Target,
    checked_body,
    checked_headers,
    load_target,
    proxy_fields,
    with_overrides,
)
from headroom_bench.units import (
    MOST_PEOPLE,
    MOST_SEQUENCE_TOKENS,
    MOST_SLOTS,
    parse_duration_s,
    parse_size,
    parse_whole,
    shown,
)

DEFAULT_CROWD = "demo"
DEFAULT_DURATION_S = 30.0
MOST = 10**12
"""Of counts that have no bound of their own."""

TargetName = Annotated[
    str, typer.Argument(help="A name in targets/, a .toml file, a URL, or mock.", metavar="TARGET")
]
CrowdName = Annotated[
    str | None, typer.Option("--crowd", help="A shipped crowd or a .toml file.", metavar="FILE")
]
Personas = Annotated[
    list[str] | None,
    typer.Option("--persona", help="Instead of a crowd; may be repeated.", metavar="NAME:N"),
]
Users = Annotated[
    int | None,
    typer.Option(
        "--users", help="Plain crowd: so many users without think time.", min=1, max=MOST_PEOPLE
    ),
]
PromptTokens = Annotated[
    str | None, typer.Option("--prompt-tokens", help="Plain crowd: tokens of every prompt.")
]
OutputTokens = Annotated[
    str | None, typer.Option("--output-tokens", help="Plain crowd: tokens of every answer.")
]
Think = Annotated[
    str | None, typer.Option("--think", help="Plain crowd: pause between requests, such as 5s.")
]
Duration = Annotated[
    str | None, typer.Option("--duration", help="How long, in life time (30s, 5m). Default 30s.")
]
Requests = Annotated[
    int | None, typer.Option("--requests", help="End after so many requests.", min=1, max=MOST)
]
Warmup = Annotated[
    str | None, typer.Option("--warmup", help="Leave the first stretch out of the figures.")
]
Seed = Annotated[
    int | None, typer.Option("--seed", help="Another crowd of the same kind.", min=0, max=MOST)
]
PromptsOption = Annotated[
    str,
    typer.Option(
        "--prompts",
        help="distinct; identical (everybody sends the same); shared-prefix (new texts begin "
        "alike); or recorded sessions from a file.",
        metavar="distinct|identical|shared-prefix|file:SESSIONS.jsonl",
    ),
]
Out = Annotated[Path, typer.Option("--out", help="Where run folders are made.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Model = Annotated[str | None, typer.Option("--model", help="The model's name at the server.")]
Dialect = Annotated[str | None, typer.Option("--dialect", help="How the server speaks.")]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option("--api-key-env", help="The environment variable with the API key.", metavar="VAR"),
]
ServedModel = Annotated[
    str | None,
    typer.Option("--served-model", help="The model's name at the server, where not --model."),
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", help="Sent with every request; may be repeated.", metavar="'K: V'"),
]
ExtraBody = Annotated[
    str | None,
    typer.Option("--extra-body", help="Further fields of every request's body.", metavar="JSON"),
]
CaFile = Annotated[
    Path | None, typer.Option("--ca-file", help="Certificates to trust (PEM).", metavar="FILE")
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Trust any certificate.")]
ProxyUrl = Annotated[
    str | None,
    typer.Option("--proxy", help="An HTTP proxy; env: the environment's.", metavar="URL|env"),
]
ConnectTimeout = Annotated[
    str, typer.Option("--connect-timeout", help="Longest wait for a connection.")
]
HeadersTimeout = Annotated[
    str | None,
    typer.Option("--headers-timeout", help="Longest wait for headers; default: as first token."),
]
FirstTokenTimeout = Annotated[
    str, typer.Option("--first-token-timeout", help="Longest wait for the first token.")
]
SilenceTimeout = Annotated[
    str, typer.Option("--silence-timeout", help="Longest silence between two events.")
]
RequestTimeout = Annotated[
    str, typer.Option("--request-timeout", help="Longest that one request may take.")
]
Drain = Annotated[str, typer.Option("--drain", help="How long answers may go on after --duration.")]
Hardware = Annotated[str | None, typer.Option("--hardware", help="Box, for the prediction.")]
Quant = Annotated[str | None, typer.Option("--quant", help="Quantization, for the prediction.")]
Runtime = Annotated[str | None, typer.Option("--runtime", help="Runtime, for the prediction.")]
Backend = Annotated[str | None, typer.Option("--backend", help="Backend (cuda, vulkan, cpu…).")]
Slots = Annotated[
    int | None, typer.Option("--slots", help="Parallel slots of the box.", min=1, max=MOST_SLOTS)
]
Ctx = Annotated[
    str | None, typer.Option("--ctx", help="Context of the whole server, tokens (32k).")
]
KvK = Annotated[str | None, typer.Option("--kv-k", help="Type of the K cache (f16, q8_0).")]
KvV = Annotated[str | None, typer.Option("--kv-v", help="Type of the V cache.")]
Ubatch = Annotated[
    int | None,
    typer.Option(
        "--ubatch",
        help="Prompt tokens per run over the weights.",
        min=1,
        max=MOST_SEQUENCE_TOKENS,
    ),
]
KvUnified = Annotated[
    bool | None, typer.Option("--kv-unified/--kv-split", help="One cache for all slots.")
]

Thinking = Annotated[
    bool,
    typer.Option("--thinking", help="Models that may reason before they answer do."),
]


@dataclass(frozen=True, slots=True)
class CrowdFlags:
    """Who asks."""

    crowd: CrowdName = None
    persona: Personas = None
    users: Users = None
    prompt_tokens: PromptTokens = None
    output_tokens: OutputTokens = None
    think: Think = None
    seed: Seed = None


@dataclass(frozen=True, slots=True)
class LengthFlags:
    """For how long."""

    duration: Duration = None
    requests: Requests = None
    warmup: Warmup = None


@dataclass(frozen=True, slots=True)
class AccessFlags:
    """How a server is reached, beside its URL."""

    served_model: ServedModel = None
    header: Header = None
    extra_body: ExtraBody = None
    ca_file: CaFile = None
    insecure: Insecure = False
    proxy: ProxyUrl = None


@dataclass(frozen=True, slots=True)
class BoxFlags:
    """What runs there, for predictions; named like the fields of a target's [server]."""

    hardware: Hardware = None
    quant: Quant = None
    runtime: Runtime = None
    backend: Backend = None
    slots: Slots = None
    ctx: Ctx = None
    kv_k: KvK = None
    kv_v: KvV = None
    ubatch: Ubatch = None
    kv_unified: KvUnified = None


def resolve_target(
    name: str,
    box: BoxFlags,
    *,
    model: str | None,
    dialect: str | None = None,
    api_key_env: str | None = None,
    access: AccessFlags = AccessFlags(),
) -> Target:
    """The target with the flags over its file.

    Raises:
        UserError: unknown name, or a value that makes no sense.
    """
    server = asdict(box)
    server["ctx"] = parse_size(box.ctx, "--ctx") if box.ctx is not None else None
    from headroom_bench.experiments.deployment import name_checks

    target = with_access(load_target(name, name_checks()), access)
    served = access.served_model
    if served is not None and target.embedded_mock:
        raise UserError("--served-model: the bundled mock names its model itself; use --model")
    if model is not None:
        told = target.embedded_mock or served is not None
        server["model"] = model if told else target.server.model
    elif served is not None:
        server["model"] = target.server.model or target.model
    chosen = with_overrides(
        target, server, model=served or model, dialect=dialect, api_key_env=api_key_env
    )
    if box.kv_unified is not None:
        _check_slots(chosen.runtime)
    if box.ctx is not None or chosen.runtime == target.runtime:
        return chosen
    from headroom_bench.experiments.whatif import with_same_sequence

    return with_same_sequence(target, chosen)


def _check_slots(runtime: str) -> None:
    """Raises `UserError` for a runtime that has no slots which could share a cache, or not."""
    from headroom_bench.catalog import find_runtime

    found = find_runtime(runtime)
    if not found.has_slots:
        raise UserError(f"{found.name} has no slots: leave out --kv-unified and --kv-split")


def with_access(target: Target, access: AccessFlags) -> Target:
    """The target with what the flags say of how it is reached.

    Raises:
        UserError: a value that makes no sense; what may hold a key is not shown.
    """
    given = _headers(access.header)
    fields: dict[str, Any] = {} if access.proxy is None else proxy_fields(access.proxy)
    return replace(
        target,
        headers=checked_headers([*target.headers.items(), *given], "--header"),
        body=target.body | checked_body(_json_object(access.extra_body), "--extra-body"),
        ca_file=target.ca_file if access.ca_file is None else str(access.ca_file.resolve()),
        insecure=access.insecure or target.insecure,
        **fields,
    )


def resolve_headers(headers: list[str] | None) -> dict[str, str]:
    """Headers of the command line. Raises `UserError`; a value is not shown."""
    return checked_headers(_headers(headers), "--header")


def _headers(texts: list[str] | None) -> list[tuple[str, str]]:
    given = [_header(text) for text in texts or ()]
    names = [name.lower() for name, _ in given]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"--header: {name} is given twice; requests carry one of a name")
    return given


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise UserError("--header: write 'Name: value'")
    return name.strip(), value


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        fields = json.loads(text) if text is not None else {}
    except (ValueError, RecursionError) as why:
        raise UserError(f"--extra-body is not JSON: {why}") from None
    if not isinstance(fields, dict):
        raise UserError("--extra-body is not a JSON object; write '{\"temperature\": 0}'")
    return fields


def resolve_timeouts(
    connect: str, headers: str | None, first_token: str, silence: str, request: str
) -> Timeouts:
    """How long each phase may take. Raises `UserError` for what is no duration."""
    return Timeouts(
        parse_duration_s(connect, "--connect-timeout"),
        None if headers is None else parse_duration_s(headers, "--headers-timeout"),
        parse_duration_s(first_token, "--first-token-timeout"),
        parse_duration_s(silence, "--silence-timeout"),
        parse_duration_s(request, "--request-timeout"),
    )


def resolve_crowd(who: CrowdFlags) -> Crowd:
    """The one crowd that the flags name; the demo where they name none.

    Raises:
        UserError: two kinds of crowd at once, or half of a plain one.
    """
    users, prompt_tokens, output_tokens = who.users, who.prompt_tokens, who.output_tokens
    plain = {"--users": users, "--prompt-tokens": prompt_tokens, "--output-tokens": output_tokens}
    given = [flag for flag, value in plain.items() if value is not None]
    kinds = [bool(who.crowd), bool(who.persona), bool(given)]
    if sum(kinds) > 1:
        raise UserError("give one of --crowd, --persona or the plain crowd's --users, not several")
    if who.think is not None and not given:
        raise UserError("--think goes with the plain crowd: --users, --prompt-tokens …")
    seed = 1 if who.seed is None else who.seed
    from headroom_bench.network import link_named

    if who.persona:
        return crowd_of(who.persona, seed, link_named)
    if not given:
        return load_crowd(who.crowd or DEFAULT_CROWD, link_named).with_seed(who.seed)
    missing = [flag for flag in plain if flag not in given]
    if missing or users is None or prompt_tokens is None or output_tokens is None:
        raise UserError(f"the plain crowd also needs {' and '.join(missing)}")
    persona = probe_persona(
        parse_size(prompt_tokens, "--prompt-tokens"),
        parse_size(output_tokens, "--output-tokens"),
        _think_s(who.think),
    )
    return plain_crowd(persona, users, seed)


def _think_s(text: str | None) -> float:
    """None at all is what the plain crowd does where nothing is said, and may be said."""
    if text is None or text.strip() in ("0", "0s"):
        return 0.0
    return parse_duration_s(text, "--think")


def resolve_prompts(text: str) -> Prompts:
    """What prompts are made of.

    Raises:
        UserError: no such kind, or a file of sessions that cannot be read.
    """
    if text.startswith("file:"):
        return Prompts("file", read_sessions(typed_path(text.removeprefix("file:"))))
    for kind in PROMPT_KINDS:
        if text == kind != "file":
            return Prompts(kind)
    raise unknown_name("kind of --prompts", text, (*PROMPT_KINDS[:-1], "file:SESSIONS.jsonl"))


def prompts_source(text: str) -> str:
    """`--prompts` as it can be read again from another folder."""
    kind, colon, name = text.partition(":")
    return f"{kind}:{typed_path(name).resolve()}" if colon else text


def resolve_length(length: LengthFlags) -> tuple[float | None, int | None, float]:
    """Duration in seconds and number of requests (half a minute where neither is given), and the
    seconds to leave out at the start."""
    duration_s = DEFAULT_DURATION_S if length.requests is None else None
    if length.duration is not None:
        duration_s = parse_duration_s(length.duration, "--duration")
    warmup_s = 0.0 if length.warmup is None else parse_duration_s(length.warmup, "--warmup")
    if duration_s is not None and warmup_s >= duration_s:
        raise UserError(f"--warmup {length.warmup} leaves nothing of --duration {duration_s:g}s")
    return duration_s, length.requests, warmup_s


def resolve_address(text: str) -> tuple[str, int]:
    """`[HOST:]PORT`; loopback where no host is given."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()):
        raise UserError(
            f"--prometheus {shown(text)} is not [HOST:]PORT; write 9464 or 0.0.0.0:9464"
        )
    number = parse_whole(port, "--prometheus: the port", 65_535, least=0)
    return host.strip("[]") or "127.0.0.1", number


def resolve_time_scale(target: Target, scale: float) -> float:
    """How many times faster than life a target lives. Raises `UserError` for a real server, and for
    what is no scale."""
    if scale != 1.0 and not target.embedded_mock:
        raise UserError("--time-scale is for the mock only: a real server lives in real time")
    return positive(scale, "--time-scale")


def positive(value: float, flag: str) -> float:
    """Raises `UserError` for what is not above zero and finite."""
    if not 0 < value < math.inf:
        raise UserError(f"{flag} {value:g} must be above zero and finite")
    return value
