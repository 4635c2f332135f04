"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from headroom_bench.units import (
    MOST_PEOPLE,
    MOST_SEQUENCE_TOKENS,
    MOST_SLOTS,
)

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
Model = Annotated[
    str | None, typer.Option("--model", help="The model: the catalogue's name, and the server's.")
]
Dialect = Annotated[str | None, typer.Option("--dialect", help="How the server speaks.")]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option("--api-key-env", help="The environment variable with the API key.", metavar="VAR"),
]
ServedModel = Annotated[
    str | None,
    typer.Option("--served-model", help="What the server calls the model, where not as --model."),
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
