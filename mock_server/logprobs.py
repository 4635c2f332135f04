"""Log-probabilities of tokens: made up, but plausible, the same for the same token and place."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mock_server.answers import WORDS

MOST = 20
"""Alternatives that OpenAI and vLLM tell at most."""


class Chance(NamedTuple):
    text: str
    logprob: float


def chances(text: str, place: int, most: int) -> list[Chance]:
    """The token itself first, then the words that might have come instead, each half as likely as
    the one before: `most` in all, at least the token."""
    drawn = random.Random(f"{place}/{text}")
    own = drawn.uniform(0.35, 0.95)
    told = [Chance(text, math.log(own))]
    others = [word for word in drawn.sample(WORDS, min(most, len(WORDS))) if word != text]
    for rank, word in enumerate(others[: max(0, most - 1)], 1):
        told.append(Chance(word, math.log((1 - own) / 2**rank)))
    return told


Entry = Callable[[Chance], dict[str, Any]]
"""How a server tells one token and its chance."""


def entry(chance: Chance) -> dict[str, Any]:
    """OpenAI's and vLLM's."""
    return {"token": chance.text, "logprob": chance.logprob, "bytes": _bytes(chance.text)}


def entry_bytes_first(chance: Chance) -> dict[str, Any]:
    """llama.cpp's (without its id) and SGLang's."""
    return {"token": chance.text, "bytes": _bytes(chance.text), "logprob": chance.logprob}


def told_by_token(
    texts: Iterable[str], first_place: int, most: int, entry: Entry
) -> list[dict[str, Any]]:
    """A chat's `logprobs.content`: an entry a token, with its alternatives in `top_logprobs`."""
    told = []
    for place, text in enumerate(texts, first_place):
        found = chances(text, place, most)
        top = [entry(chance) for chance in found[:most]]
        told.append(entry(found[0]) | {"top_logprobs": top})
    return told


def told_by_column(texts: list[str], first_place: int, most: int, offset: int) -> dict[str, Any]:
    """A completion's `logprobs`. `offset`: letters of the answer before these tokens."""
    found = [chances(text, place, most) for place, text in enumerate(texts, first_place)]
    offsets = []
    for text in texts:
        offsets.append(offset)
        offset += len(text)
    return {
        "text_offset": offsets,
        "token_logprobs": [chance[0].logprob for chance in found],
        "tokens": texts,
        "top_logprobs": [{c.text: c.logprob for c in chance[: max(1, most)]} for chance in found],
    }


def _bytes(text: str) -> list[int]:
    return list(text.encode("utf-8", "surrogatepass"))
