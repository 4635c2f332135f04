"""Secrets are found in what users hand over, wherever in it they stand."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.redaction import forget, redact
from headroom_bench.secret_words import hide_header, holds_mask, shown_fields, shown_words

KEYS = st.text("abcXYZ0189-_.+/=!$ '\"\\&;", min_size=5, max_size=20).map(lambda t: f"q{t}q")
NAMES = st.sampled_from(
    ("--api-key", "--token", "--hf-token", "--password", "--auth-token", "--client-secret")
)


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("Authorization", "Bearer abcdefgh", "it said *** and ***"),
        ("X-Api-Key", "abcdefgh", "it said Bearer *** and ***"),
        ("X-Team", "abcdefgh", "it said Bearer *** and ***"),
        ("X-Team", "abcdef", "it said Bearer abcdefgh and abcdefgh"),
    ],
)
def test_headers(name: str, value: str, masked: str) -> None:
    hide_header(name, value)
    assert redact("it said Bearer abcdefgh and abcdefgh") == masked


def test_commands() -> None:
    words = ["env", "HF_TOKEN=abcd", "serve", "--api-key", "efgh", "--auth-token=ijkl", "-np", "4"]
    assert shown_words(words) == [
        "env", "HF_TOKEN=***", "serve", "--api-key", "***", "--auth-token=***", "-np", "4",
    ]  # fmt: skip
    assert redact("abcd efgh ijkl") == "*** *** ***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("exec x --api-key sk-INLINE88888 --port 3", "exec x --api-key *** --port 3"),
        ("x -k sk-INLINE88888 -np 4", "x -k *** -np 4"),
        ("export MY_TOKEN=abcde; exec x", "export MY_TOKEN=***; exec x"),
        (
            "python -c 'serve(api_key = \"abcde\", n=3)'",
            "python -c 'serve(api_key = \"***\", n=3)'",
        ),
        ("curl http://me:abcde@h/v1 -s", "curl http://me:***@h/v1 -s"),
        ("curl -H 'X-Api-Key: abcde' h", "curl -H 'X-Api-Key: ***' h"),
        ("sh -c 'sh -c \"x --token abcde\"'", "sh -c 'sh -c \"x --token ***\"'"),
        ("x --api-key ab -c abc", "x --api-key *** -c abc"),
        ("x --max-num-batched-tokens 8192 --tokenizer Qwen/Qwen3", None),
    ],
)
def test_a_text_for_a_shell(text: str, shown: str | None) -> None:
    assert shown_words(["-c", text]) == ["-c", text if shown is None else shown]


def test_a_quote_that_nobody_closes() -> None:
    assert "abcde" not in " ".join(shown_words(["-c", "x --api-key 'abcde\" y"]))


@given(NAMES, KEYS, st.integers(0, 2), st.booleans())
def test_whatever_the_key_and_however_deep_the_shells(
    name: str, key: str, depth: int, joined: bool
) -> None:
    forget()
    words = ["serve", f"{name}={key}"] if joined else ["serve", name, key]
    words += ["--port", "8080"]
    for _ in range(depth):
        words = ["sh", "-c", shlex.join(words)]
    shown = shown_words(words)
    assert len(shown) == len(words)
    assert key not in redact(" ".join(shown))
    assert key not in redact(f"the server said: bad key {key}")
    forget()


@given(st.text(max_size=60))
def test_any_text_can_be_searched(text: str) -> None:
    forget()
    assert len(shown_words(["x", text])) == 2
    forget()


def nested(key: str) -> st.SearchStrategy[Any]:
    under = st.sampled_from(("token", "api_key", "apiKey", "password", "X-Auth", "client_secret"))
    held = st.builds(lambda name: {name: key}, under)
    held |= st.builds(lambda name: {name: ["x", {"y": key}]}, under)
    wrap = lambda inner: st.builds(lambda v: [1, v], inner) | st.builds(lambda v: {"a": v}, inner)  # noqa: E731
    return st.recursive(held, wrap, max_leaves=4)


@given(KEYS.flatmap(lambda key: st.tuples(st.just(key), nested(key))))
def test_a_body_at_any_depth(pair: tuple[str, Any]) -> None:
    forget()
    key, body = pair
    shown = shown_fields(body)
    assert json.dumps(key)[1:-1] not in json.dumps(shown)
    assert redact(key) == "***"
    assert holds_mask(shown)
    forget()


def test_what_is_no_secret_stays() -> None:
    body = {
        "max_completion_tokens": 3, "stop_token_ids": [1, 2], "chat": {"add_special_tokens": True},
        "api_key": None, "user": "sketch-book", "seed": 1,
    }  # fmt: skip
    assert shown_fields(body) == body
    assert not holds_mask(body)


def test_what_looks_like_a_key_is_one_under_any_name() -> None:
    assert shown_fields({"x": ["sk-abcdef12 it is"]}) == {"x": ["*** it is"]}
    assert shown_fields({"password": 12345678, "key": 5}) == {"password": "***", "key": "***"}
    assert redact("12345678, 5") == "***, 5"


@pytest.mark.parametrize("word", ["EMPTY", "none", "auto"])
def test_a_word_in_place_of_a_key_hides_no_word_of_ours(word: str) -> None:
    assert shown_words(["--api-key", word]) == ["--api-key", "***"]
    assert redact(f"join_method {word}") == f"join_method {word}"
