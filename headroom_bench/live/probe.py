"""What a target says about itself before the run, over the control plane (httpx)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import httpx

from headroom_bench.crowd.prompts import TemplateTokens, Vocabulary, common_words, write_text
from headroom_bench.errors import TargetError

CONTROL_TIMEOUT_S = 10.0
_ROUND_TRIPS = 5


@dataclass(slots=True)
class TargetFacts:
    """The probed properties; None where the server does not tell."""

    dialect: str
    model: str | None = None
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

    def __init__(self, url: str, headers: Mapping[str, str], timeout_s: float) -> None:
        self.url = url
        timeout = httpx.Timeout(CONTROL_TIMEOUT_S, connect=timeout_s)
        # trust_env off: a proxy of the environment would stand between us and the server
        self._client = httpx.AsyncClient(
            base_url=url, headers=dict(headers), timeout=timeout, trust_env=False
        )

    async def get(self, path: str) -> httpx.Response:
        """Raises `TargetError` when there is no HTTP answer at all."""
        return await self._send("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        """Raises `TargetError` when there is no HTTP answer at all."""
        return await self._send("POST", path, body)

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        try:
            return await self._client.request(method, path, json=body)
        except httpx.TimeoutException:
            raise TargetError(f"{method} {self.url}{path}: no answer in time") from None
        except (httpx.HTTPError, httpx.InvalidURL) as why:
            raise TargetError(f"{method} {self.url}{path}: {_reason(why)}") from None

    async def close(self) -> None:
        await self._client.aclose()


def _reason(why: BaseException) -> str:
    """What the operating system said, from under what the libraries made of it."""
    cause: BaseException | None = why
    while cause is not None:
        if isinstance(cause, ConnectionRefusedError):
            return "connection refused; is the server running?"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(why) or type(why).__name__


async def probe(control: Control, dialect: str, clock_ms: Any) -> TargetFacts:
    """Asks a target what it is.

    `clock_ms` reads a monotonic clock in milliseconds. Only silence is an error here: whatever a
    server answers, the run's own requests will tell what it makes of them.

    Raises:
        TargetError: nothing answers HTTP at the URL.
    """
    facts = TargetFacts(dialect)
    models = await control.get("/v1/models")
    _read_models(facts, models)
    if dialect in ("openai", "llamacpp"):
        props = await control.get("/props")
        if _read_props(facts, props) and dialect == "openai":
            facts.dialect = "llamacpp"
    trips = []
    for _ in range(_ROUND_TRIPS):
        before = clock_ms()
        await control.get("/health")
        trips.append(clock_ms() - before)
    facts.round_trip_ms = min(trips)
    return facts


def _read_models(facts: TargetFacts, response: httpx.Response) -> None:
    if response.status_code != 200:
        facts.notes.append(f"/v1/models answered HTTP {response.status_code}")
        return
    listed = _dict(response).get("data")
    if not isinstance(listed, list) or not listed or not isinstance(listed[0], dict):
        facts.notes.append("/v1/models lists no model")
        return
    first = listed[0]
    facts.model = first["id"] if isinstance(first.get("id"), str) else None
    for where, key in ((first.get("meta"), "n_ctx"), (first, "max_model_len")):
        if isinstance(where, dict) and isinstance(where.get(key), int):
            facts.ctx_per_slot = where[key]


def _read_props(facts: TargetFacts, response: httpx.Response) -> bool:
    """llama.cpp's properties; False when this is not llama.cpp."""
    props = _dict(response) if response.status_code == 200 else {}
    if "total_slots" not in props:
        return False
    if isinstance(props["total_slots"], int):
        facts.slots = props["total_slots"]
    settings = props.get("default_generation_settings")
    if isinstance(settings, dict) and isinstance(settings.get("n_ctx"), int):
        facts.ctx_per_slot = settings["n_ctx"]
    if isinstance(props.get("build_info"), str):
        facts.build = props["build_info"]
    return True


def _dict(response: httpx.Response) -> dict[str, Any]:
    try:
        parsed = response.json()
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


async def vocabulary_of(control: Control, dialect: str) -> Vocabulary:
    """Words that the server's own tokenizer holds as one token, where it can be asked.

    Else common words with an estimate of one token each; the server's usage corrects the length.
    """
    if dialect != "llamacpp":
        return Vocabulary(common_words())
    words = common_words()
    inside = await _pieces(control, "x " + " ".join(words))
    starting = await _pieces(control, "\n".join(words))
    single = {piece[1:] for piece in inside if piece.startswith(" ")} & set(starting)
    kept = tuple(word for word in words if word in single)
    vocabulary = Vocabulary(kept, exact=True)
    if len(kept) < 100 or not await _adds_up(control, vocabulary):
        return Vocabulary(words)
    return vocabulary


async def _pieces(control: Control, text: str) -> list[str]:
    """The text of each token; empty when the server has no tokenizer for us."""
    response = await control.post("/tokenize", {"content": text, "with_pieces": True})
    tokens = _dict(response).get("tokens")
    if response.status_code != 200 or not isinstance(tokens, list):
        return []
    return [_piece_text(token) for token in tokens]


def _piece_text(token: Any) -> str:
    """A piece is a text, or a list of bytes where it is not UTF-8 by itself."""
    piece = token.get("piece") if isinstance(token, dict) else None
    return piece if isinstance(piece, str) else ""


async def _adds_up(control: Control, vocabulary: Vocabulary) -> bool:
    """Whether a written text really has the length that was asked for."""
    text = write_text("check", "", 200, vocabulary)
    return len(await _pieces(control, text)) == 200


async def template_of(control: Control, dialect: str) -> TemplateTokens:
    """What the server's chat template adds, where it can be asked; else zeros, to be learnt."""
    if dialect != "llamacpp":
        return TemplateTokens()
    system, user = ("system", "time"), ("user", "time")
    first = await _template_extra(control, [system, user])
    alone = await _template_extra(control, [user])
    again = await _template_extra(control, [system, user, ("assistant", "time"), user])
    if first is None or alone is None or again is None:
        return TemplateTokens()
    turn = max(0, again - first)
    return TemplateTokens(system=max(0, first - turn), lone_turn=alone, turn=turn)


async def _template_extra(control: Control, messages: list[tuple[str, str]]) -> int | None:
    """Tokens of a rendered prompt beyond those of its messages' texts."""
    chat = [{"role": role, "content": text} for role, text in messages]
    response = await control.post("/apply-template", {"messages": chat})
    prompt = _dict(response).get("prompt")
    if response.status_code != 200 or not isinstance(prompt, str):
        return None
    whole = await _tokens(control, prompt, add_special=True)
    texts = [await _tokens(control, text, add_special=False) for _, text in messages]
    return whole - sum(texts) if whole and all(texts) else None


async def _tokens(control: Control, text: str, *, add_special: bool) -> int:
    """How many tokens a text is; 0 when the server does not say."""
    body = {"content": text, "add_special": add_special, "parse_special": True}
    response = await control.post("/tokenize", body)
    tokens = _dict(response).get("tokens")
    return len(tokens) if response.status_code == 200 and isinstance(tokens, list) else 0


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
