"""What a target says about itself before the run, over the control plane (httpx)."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from headroom_bench.errors import TargetError
from headroom_bench.live.access import Access
from headroom_bench.redaction import shortened

CONTROL_TIMEOUT_S = 10.0
"""Longest silence of the control plane."""
CONTROL_LIMIT_S = 60.0
"""Longest that one of its answers may take."""
CONTROL_BODY_BYTES = 32 * 2**20
CLOSE_S = 5.0
_MOST_TOLD = 1 << 24
"""Slots, or tokens of one: a server that tells of more, or of none, tells nothing."""
_ROUND_TRIPS = 5
_OWNERS = ("llamacpp", "vllm", "sglang")
"""Servers that call themselves the owners of their models, by the names of their dialects."""


@dataclass(slots=True)
class TargetFacts:
    """The probed properties; None where the server does not tell."""

    dialect: str
    model: str | None = None
    served: list[str] = field(default_factory=list)
    """All that it lists."""
    slots: int | None = None
    ctx_per_slot: int | None = None
    build: str | None = None
    round_trip_ms: float | None = None
    """Smallest of a few small control requests on a kept-alive connection."""
    notes: list[str] = field(default_factory=list)
    """What looked wrong, for the summary's warnings."""

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


class Control:
    """Small JSON requests to a target's control routes."""

    def __init__(self, access: Access) -> None:
        self.url = access.origin.url
        proxy = access.proxy
        self._proxy = None if proxy is None else proxy.url
        # trust_env off: a proxy of the environment would stand between us and the server
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers=dict(access.headers),
            timeout=httpx.Timeout(CONTROL_TIMEOUT_S, connect=access.timeouts.connect_s),
            verify=access.tls or False,  # never used without TLS
            proxy=None if proxy is None else httpx.Proxy(proxy.url, auth=proxy.login),
            trust_env=False,
        )

    async def get(self, path: str) -> httpx.Response:
        """Raises `TargetError` when there is no HTTP answer at all."""
        return await self._send("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Raises `TargetError` when there is no HTTP answer at all."""
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        where = f"{method} {self.url}{path}"
        try:
            async with asyncio.timeout(CONTROL_LIMIT_S):
                return await self._whole(method, path, body)
        except (httpx.TimeoutException, TimeoutError) as why:
            raise TargetError(f"{where}{self._over(why)}: no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as why:
            raise TargetError(f"{where}{self._over(why)}: {_reason(why)}") from None

    def _over(self, why: BaseException) -> str:
        """Names the proxy, where it is what was not reached, or what refused."""
        kinds = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)
        if self._proxy is None or not isinstance(why, kinds):
            return ""
        return f", over the proxy {self._proxy}"

    async def _whole(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> httpx.Response:
        """The answer with its body, which must be of a size that memory holds."""
        # In ASCII: a server may have told us half a surrogate pair, which no UTF-8 holds.
        content = None if body is None else json.dumps(body).encode()
        headers = None if body is None else {"content-type": "application/json"}
        async with self._client.stream(method, path, content=content, headers=headers) as response:
            pieces: list[bytes] = []
            size = 0
            async for piece in response.aiter_bytes():
                pieces.append(piece)
                size += len(piece)
                if size > CONTROL_BODY_BYTES:
                    raise TargetError(
                        f"{method} {self.url}{path}: answers with more than "
                        f"{CONTROL_BODY_BYTES:,} bytes; is that the server?"
                    )
            kept = {"content-type": response.headers.get("content-type", "")}
            return httpx.Response(response.status_code, headers=kept, content=b"".join(pieces))

    async def close(self) -> None:
        """Closes its connections, within seconds."""
        closing = asyncio.ensure_future(self._client.aclose())
        await asyncio.wait({closing}, timeout=CLOSE_S)
        closing.cancel()


def _reason(why: BaseException) -> str:
    """What the operating system said, from under what the libraries made of it."""
    cause: BaseException | None = why
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused; is it running?"
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"{cause.verify_message}; trust it with --ca-file FILE, or --insecure"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(why) or type(why).__name__


async def probe(
    control: Control, dialect: str, clock_ms: Any, asked: str | None = None
) -> TargetFacts:
    """Asks a target what it is. `asked`: the model that it will be asked for, where that is known.

    `clock_ms` reads a monotonic clock in milliseconds. Only silence is an error here: whatever a
    server answers, the run's own requests will tell what it makes of them.

    Raises:
        TargetError: nothing answers HTTP at the URL.
    """
    facts = TargetFacts(dialect)
    owner = _read_models(facts, await control.get("/v1/models"), asked)
    props = await control.get("/props")
    is_llamacpp = _is_llamacpp(props)
    speaks = "llamacpp" if is_llamacpp else owner
    if is_llamacpp and dialect in ("openai", "llamacpp"):
        _read_props(facts, props)
        facts.dialect = "llamacpp"
    elif dialect != "openai" and speaks in _OWNERS and speaks != dialect:
        facts.notes.append(
            f"the server says that it is {speaks}, and is asked and predicted as {dialect}: "
            f"give --dialect {speaks}"
        )
    trips = []
    for _ in range(_ROUND_TRIPS):
        before = clock_ms()
        await control.get("/health")
        trips.append(clock_ms() - before)
    facts.round_trip_ms = min(trips)
    return facts


def _read_models(facts: TargetFacts, response: httpx.Response, asked: str | None) -> str | None:
    """Which models there are, and what is said of the one that is asked for, else of the first;
    returns whose they are said to be."""
    if response.status_code != 200:
        facts.notes.append(f"/v1/models answered HTTP {response.status_code}")
        return None
    listed = json_object(response).get("data")
    if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict):
        facts.notes.append("/v1/models lists no model")
        return None
    models = [each for each in listed if isinstance(each, dict)]
    facts.served = [each["id"] for each in models if isinstance(each.get("id"), str)]
    found = next((each for each in models if asked and each.get("id") == asked), listed[0])
    facts.model = found["id"] if isinstance(found.get("id"), str) else None
    for where, key in ((found.get("meta"), "n_ctx"), (found, "max_model_len")):
        told = _told_count(facts, "/v1/models", where, key)
        facts.ctx_per_slot = facts.ctx_per_slot if told is None else told
    owner = found.get("owned_by")
    return owner if isinstance(owner, str) else None


def _is_llamacpp(props: httpx.Response) -> bool:
    return props.status_code == 200 and "total_slots" in json_object(props)


def _read_props(facts: TargetFacts, response: httpx.Response) -> None:
    """llama.cpp's properties, where they can be had."""
    props = json_object(response)
    facts.slots = _told_count(facts, "/props", props, "total_slots")
    told = _told_count(facts, "/props", props.get("default_generation_settings"), "n_ctx")
    facts.ctx_per_slot = facts.ctx_per_slot if told is None else told
    if isinstance(props.get("build_info"), str):
        facts.build = props["build_info"]


def _told_count(facts: TargetFacts, route: str, where: Any, key: str) -> int | None:
    """A count that a server tells of itself, as far as it can be one; a note where it cannot."""
    value = where.get(key) if isinstance(where, dict) else None
    if type(value) is int and 1 <= value <= _MOST_TOLD:
        return value
    if value is not None:
        facts.notes.append(
            f"{route} says {key} {shortened(repr(value), 20)}, which cannot be: taken as not told"
        )
    return None


def json_object(response: httpx.Response) -> dict[str, Any]:
    """The body as an object; empty where it is none."""
    try:
        parsed = response.json()
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def in_doubt(facts: TargetFacts, asked: str | None) -> bool:
    """Whether a server may refuse whatever it is asked: it does not list its models to us, or it
    lists others than the one that is asked for."""
    return facts.model is None or (asked is not None and asked not in facts.served)


def too_small(facts: TargetFacts, needs: Iterable[tuple[str, float, float]]) -> list[str]:
    """Warnings for personas that a slot cannot hold.

    `needs` are (persona, tokens of its typical first request, tokens of its largest context).
    """
    room = facts.ctx_per_slot
    if room is None:
        return []
    warnings = []
    for persona, typical, largest in needs:
        if typical > room:
            warnings.append(
                f"{persona} needs about {typical:,.0f} tokens at once and a slot holds {room:,}: "
                "most of its requests will be refused or cut"
            )
        elif largest > room:
            most = f"{largest:,.0f}" if largest != float("inf") else "any number of"
            warnings.append(
                f"{persona} can grow to {most} tokens and a slot holds {room:,}: "
                "its longest conversations will be refused or cut"
            )
    return warnings
