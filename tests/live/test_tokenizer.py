"""Asking a server's tokenizer, and taking nothing from answers that are not as they should be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import httpx
import pytest

from headroom_bench.errors import TargetError
from headroom_bench.live.probe import Control
from headroom_bench.live.tokenizer import LlamaCppTokenizer, VllmTokenizer, tokenizer_of

Answering = Callable[[str, Mapping[str, Any]], httpx.Response]


class Canned:
    """A control plane with the answers of one function."""

    def __init__(self, answer: Answering) -> None:
        self._answer = answer
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    async def post(self, path: str, body: Mapping[str, Any]) -> httpx.Response:
        self.asked.append((path, body))
        return self._answer(path, body)


def canned(answer: Answering) -> tuple[Canned, Control]:
    control = Canned(answer)
    return control, cast(Control, control)


def always(status: int, **content: Any) -> Answering:
    return lambda path, body: httpx.Response(status, **content)


def test_llamacpp_takes_content_and_renders_apart() -> None:
    def answer(path: str, body: Mapping[str, Any]) -> httpx.Response:
        if path == "/apply-template":
            said = "".join(message["content"] for message in body["messages"])
            return httpx.Response(200, json={"prompt": f"<{said}>"})
        return httpx.Response(200, json={"tokens": list(range(len(body["content"])))})

    control, plane = canned(answer)
    tokenizer = LlamaCppTokenizer(plane)
    assert asyncio.run(tokenizer.ids("river")) == [0, 1, 2, 3, 4]
    assert asyncio.run(tokenizer.chat_tokens([("user", "river"), ("user", "x")])) == 8
    (_, first), _, (_, rendered) = control.asked
    assert first["add_special"] is first["parse_special"] is False
    assert rendered["add_special"] is rendered["parse_special"] is True


def test_vllm_takes_a_prompt_or_messages() -> None:
    control, plane = canned(always(200, json={"count": 3, "tokens": [274, 280, 386]}))
    tokenizer = VllmTokenizer(plane, "tiny")
    assert asyncio.run(tokenizer.ids("river stone")) == [274, 280, 386]
    assert asyncio.run(tokenizer.chat_tokens([("user", "a")])) == 3
    (_, text), (_, chat) = control.asked
    assert text == {"model": "tiny", "prompt": "river stone", "add_special_tokens": False}
    assert chat["messages"] == [{"role": "user", "content": "a"}]
    assert chat["add_generation_prompt"]


@pytest.mark.parametrize(
    "answer",
    [
        always(404, json={"detail": "Not Found"}),
        always(200, text="<html>"),
        always(200, json=[1, 2]),
        always(200, json={"tokens": "many"}),
        always(200, json={"tokens": [{"id": 4}]}),
        always(200, json={"count": 3}),
        always(500, json={"tokens": [1]}),
    ],
)
def test_any_other_answer_is_none(answer: Answering) -> None:
    for dialect in ("llamacpp", "vllm", "openai"):
        _, plane = canned(answer)
        assert asyncio.run(tokenizer_of(plane, dialect, "m")) is None


def silent(path: str, body: Mapping[str, Any]) -> httpx.Response:
    raise TargetError(f"POST {path}: no answer in time")


def test_a_plain_server_need_not_answer() -> None:
    _, plane = canned(silent)
    assert asyncio.run(tokenizer_of(plane, "openai", None)) is None
    with pytest.raises(TargetError):
        asyncio.run(tokenizer_of(plane, "llamacpp", None))


@pytest.mark.parametrize("dialect", ["ollama", "sglang", "mlx"])
def test_who_has_none_is_not_asked(dialect: str) -> None:
    control, plane = canned(silent)
    assert asyncio.run(tokenizer_of(plane, dialect, "m")) is None
    assert control.asked == []
