"""What a server says of itself before a run, and what stands between us and it."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest

from headroom_bench.errors import TargetError
from headroom_bench.live.access import Access, Proxy
from headroom_bench.live.exchange import Origin
from headroom_bench.live.lifecycle import free_port
from headroom_bench.live.probe import Control, TargetFacts, probe

LLAMACPP_PROPS = {
    "total_slots": 4,
    "default_generation_settings": {"n_ctx": 2048},
    "build_info": "b11549-x",
}


class Said:
    """A server that answers these routes, and 404 elsewhere."""

    def __init__(self, owner: str, props: dict[str, Any] | None) -> None:
        models = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": owner}]}
        self._routes: dict[str, Any] = {"/v1/models": models}
        if props is not None:
            self._routes["/props"] = props

    async def get(self, path: str) -> httpx.Response:
        if path not in self._routes:
            return httpx.Response(404, json={"error": "not found"})
        return httpx.Response(200, json=self._routes[path])


async def told(dialect: str, owner: str, props: dict[str, Any] | None = None) -> TargetFacts:
    return await probe(cast(Control, Said(owner, props)), dialect, lambda: 0.0)


@pytest.mark.parametrize(
    ("dialect", "owner", "props", "speaks"),
    [
        ("vllm", "llamacpp", LLAMACPP_PROPS, "llamacpp"),
        ("ollama", "someone", LLAMACPP_PROPS, "llamacpp"),
        ("llamacpp", "vllm", None, "vllm"),
        ("sglang", "vllm", None, "vllm"),
    ],
)
async def test_a_server_of_another_dialect_than_was_said_is_told(
    dialect: str, owner: str, props: dict[str, Any] | None, speaks: str
) -> None:
    facts = await told(dialect, owner, props)
    (note,) = facts.notes
    assert f"it is {speaks}, and is asked and predicted as {dialect}" in note
    assert note.endswith(f"give --dialect {speaks}")
    assert (facts.dialect, facts.slots) == (dialect, None), "as was asked for"


@pytest.mark.parametrize(
    ("dialect", "owner", "props"),
    [
        ("llamacpp", "llamacpp", LLAMACPP_PROPS),
        ("llamacpp", "a gateway's", None),
        ("vllm", "vllm", None),
        ("ollama", "library", None),
        ("openai", "vllm", None),
    ],
)
async def test_one_that_is_what_was_said_or_may_be_is_not(
    dialect: str, owner: str, props: dict[str, Any] | None
) -> None:
    facts = await told(dialect, owner, props)
    assert facts.notes == []
    assert facts.dialect == dialect


async def test_llama_cpp_is_known_by_its_properties() -> None:
    facts = await told("openai", "llamacpp", LLAMACPP_PROPS)
    assert (facts.dialect, facts.slots, facts.ctx_per_slot) == ("llamacpp", 4, 2048)
    assert facts.build == "b11549-x"


@pytest.mark.parametrize(
    ("asked", "model", "ctx"), [(None, "small", 4096), ("large", "large", 131_072),
                                ("unknown", "small", 4096)]
)  # fmt: skip
async def test_of_several_models_the_one_that_is_asked_for_is_told_of(
    asked: str | None, model: str, ctx: int
) -> None:
    class Two(Said):
        async def get(self, path: str) -> httpx.Response:
            listed = [{"id": "small", "max_model_len": 4096}, 7,
                      {"id": "large", "max_model_len": 131_072}]  # fmt: skip
            return httpx.Response(200, json={"data": listed if path == "/v1/models" else []})

    facts = await probe(cast(Control, Two("vllm", None)), "vllm", lambda: 0.0, asked)
    assert (facts.model, facts.ctx_per_slot, facts.served) == (model, ctx, ["small", "large"])


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_nobody_is_behind_is_not_called_the_server(scheme: str) -> None:
    proxy = f"http://127.0.0.1:{free_port()}"
    control = Control(Access(Origin.of(f"{scheme}://model.test"), proxy=Proxy(proxy)))
    try:
        with pytest.raises(TargetError) as why:
            await control.get("/v1/models")
    finally:
        await control.close()
    where = f"GET {scheme}://model.test/v1/models, over the proxy {proxy}"
    assert str(why.value) == f"{where}: connection refused; is it running?"


async def test_without_a_proxy_it_is_the_server() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    control = Control(Access(Origin.of(url)))
    try:
        with pytest.raises(TargetError) as why:
            await control.get("/v1/models")
    finally:
        await control.close()
    assert str(why.value) == f"GET {url}/v1/models: connection refused; is it running?"
