"""How the words of shared options become values."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from typing import Any

from headroom_bench.cli.options import AccessFlags, BoxFlags, CrowdFlags, LengthFlags
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
from headroom_bench.units import parse_duration_s, parse_size, parse_whole, shown

DEFAULT_CROWD = "demo"
DEFAULT_DURATION_S = 30.0


def target_of(
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
    _check_trust(target, access)
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


def _check_trust(target: Target, access: AccessFlags) -> None:
    """Raises `UserError` for flags of trust that trust nobody, or everybody."""
    if access.ca_file is not None and access.insecure:
        raise UserError("--ca-file says whom to trust and --insecure trusts anybody: leave one out")
    proxy = (access.proxy or target.proxy or "").lower()
    tls = target.url.lower().startswith("https:") or proxy.startswith(("https:", "env"))
    if (access.ca_file is not None or access.insecure) and not tls:
        raise UserError("--ca-file and --insecure are for https targets, which this one is not")


def headers_of(headers: list[str] | None) -> dict[str, str]:
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


def timeouts_of(
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


def crowd_named(who: CrowdFlags) -> Crowd:
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


def prompts_of(text: str) -> Prompts:
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


def length_of(length: LengthFlags) -> tuple[float | None, int | None, float]:
    """Duration in seconds and number of requests (half a minute where neither is given), and the
    seconds to leave out at the start."""
    duration_s = DEFAULT_DURATION_S if length.requests is None else None
    if length.duration is not None:
        duration_s = parse_duration_s(length.duration, "--duration")
    warmup_s = 0.0 if length.warmup is None else parse_duration_s(length.warmup, "--warmup")
    if duration_s is not None and warmup_s >= duration_s:
        raise UserError(f"--warmup {length.warmup} leaves nothing of --duration {duration_s:g}s")
    return duration_s, length.requests, warmup_s


def address_of(text: str) -> tuple[str, int]:
    """`[HOST:]PORT`; loopback where no host is given."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal()):
        raise UserError(
            f"--prometheus {shown(text)} is not [HOST:]PORT; write 9464 or 0.0.0.0:9464"
        )
    number = parse_whole(port, "--prometheus: the port", 65_535, least=0)
    return host.strip("[]") or "127.0.0.1", number


def time_scale_of(target: Target, scale: float) -> float:
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
