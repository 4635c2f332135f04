"""Target files: the shipped ones hold, and mistakes are told where they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headroom_bench.designs import design_of
from headroom_bench.errors import UserError
from headroom_bench.experiments.box_words import in_words, memory_complaint
from headroom_bench.experiments.deployment import deployment_of, name_checks
from headroom_bench.shipped import names_in, shipped_dir
from headroom_bench.target import (
    MOCK_BOX,
    ServerSpec,
    Target,
    can_be_host,
    checked_headers,
    draft_of,
    load_target,
    read_target,
    with_overrides,
)
from headroom_bench.toml_table import parse_toml

GOOD = """\
url = "http://127.0.0.1:{port}"
dialect = "llamacpp"
headers = {x-user = "me"}

[server]
hardware = "rtx-4090"
slots = 4

[start]
command = ["serve", "{port}"]
port = 0
"""


def read(text: str) -> Target:
    return read_target(parse_toml(text, Path("t.toml")))


@pytest.mark.parametrize("name", names_in(shipped_dir("targets")))
def test_shipped_targets_hold(name: str) -> None:
    assert load_target(name).name == name
    assert load_target(name).server.hardware


def test_a_file_in_full() -> None:
    target = read(GOOD)
    assert target.name == "t"
    assert target.headers == {"x-user": "me"}
    assert target.server.slots == 4
    assert target.start is not None
    assert target.start.command == ("serve", "{port}")
    assert target.start.stop is None


def test_a_url_is_a_target() -> None:
    target = load_target("http://box:8080/v1/")
    assert (target.name, target.url) == ("box:8080/v1", "http://box:8080/v1/")
    assert target.dialect == "openai"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("url", "ulr"), "t.toml: url: is missing"),
        (
            ("url =", "urls = 1\nurl ="),
            "t.toml:1: urls: is not a field here; known are api_key_env",
        ),
        (('"llamacpp"', '"llama"'), "t.toml:2: dialect: 'llama' is not one of openai, llamacpp"),
        (('"me"', "1"), "t.toml:3: headers.x-user: 1 is not a text"),
        (("{x-user", "[{x-user"), "t.toml:5: is not valid TOML: Unclosed"),
        (("slots = 4", "slots = 0"), "t.toml:7: server.slots: 0 is out of range"),
        (("slots = 4", "slots = true"), "t.toml:7: server.slots: True is not a whole number"),
        (
            ("slots = 4", "slot = 4"),
            "t.toml:7: server.slot: is not a field here; known are backend",
        ),
        (('["serve", "{port}"]', '"serve"'), "t.toml:10: start.command: 'serve' is not a list"),
        (('["serve", "{port}"]', "[]"), "t.toml:10: start.command: is empty"),
        (("command =", "# command ="), "t.toml:9: start.command: is missing"),
        (
            ("port = 0", "port = 99999"),
            "t.toml:11: start.port: 99999 is out of range; it must be 0",
        ),
        ((':{port}"', ':99999"'), "t.toml:1: url: the URL has no valid"),
        (("[start]", "[begin]"), "t.toml:9: begin: is not a field here"),
    ],
)
def test_mistakes_are_told_with_file_line_and_field(change: tuple[str, str], told: str) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    with pytest.raises(UserError) as why:
        read(text)
    assert str(why.value).startswith(told)


def test_a_port_that_nobody_fills() -> None:
    with pytest.raises(UserError, match=r"t\.toml:1: url: holds \{port\}, which only a \[start\]"):
        read('url = "http://127.0.0.1:{port}"')


def test_the_embedded_mock_needs_no_url() -> None:
    assert read("embedded_mock = true").url == "http://127.0.0.1:{port}"


def test_the_embedded_mock_stands_where_it_was_started() -> None:
    """Elsewhere nobody would answer, and the run wait for it."""
    with pytest.raises(UserError, match=r"t\.toml:2: url: is not for embedded_mock"):
        read('embedded_mock = true\nurl = "http://127.0.0.1:1"')


def test_the_embedded_mock_is_a_whole_box_in_llama_cpps_dialect() -> None:
    target = read("embedded_mock = true")
    assert target.dialect == "llamacpp"
    assert target.server == replace(MOCK_BOX, runtime="llama.cpp")
    other = read('embedded_mock = true\nmodel = "qwen3-8b"\n[server]\ndraft = "qwen3-0.6b"')
    assert (other.server.model, other.server.draft) == ("qwen3-8b", "qwen3-0.6b")
    assert with_overrides(other, {}, dialect="vllm").server.runtime == "vllm"
    assert with_overrides(other, {"runtime": "sglang"}, dialect="vllm").server.runtime == "sglang"


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown target 'mok'; did you mean mock"):
        load_target("mok")


def test_flags_win_over_the_file() -> None:
    target = with_overrides(read(GOOD), {"slots": 9, "quant": None}, model="m", dialect=None)
    assert (target.server.slots, target.server.hardware) == (9, "rtx-4090")
    assert (target.model, target.dialect) == ("m", "llamacpp")
    with pytest.raises(UserError, match="--dialect 'x' is not one of"):
        with_overrides(target, {}, dialect="x")


REACHED = """\
url = "https://box/team/v1"
api_key_env = "KEY"
ca_file = "certs/ca.pem"
insecure = true
proxy = "http://me:p%40ss@proxy:3128"

[headers]
X-Team = "planted-value"

[body]
temperature = 0
stop = ["a"]
"""


def test_how_a_target_is_reached() -> None:
    target = read_target(parse_toml(REACHED, Path("folder/t.toml")))
    assert target.ca_file == str(Path("folder/certs/ca.pem").resolve())
    assert (target.proxy, target.proxy_login) == ("http://proxy:3128", "me:p@ss")
    assert target.body == {"temperature": 0, "stop": ["a"]}
    shown = str(target.shown()) + repr(target)
    assert "planted-value" not in shown
    assert "p@ss" not in shown
    assert target.shown()["headers"] == ["X-Team"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("https://box/team/v1", "https://box?key=planted-value"), "a query or a fragment"),
        (("http://me:p%40ss@proxy:3128", "socks5://me:p%40ss@proxy"), "proxy: write http://"),
        (("X-Team", '"X Team"'), "headers: a header's name cannot be 'X Team'"),
        (("X-Team", "Content-Length"), "headers: Content-Length is set by HTTP itself"),
        (("planted-value", "planted-value\\n"), None),
        (("planted-value", "planted-value\\nX: y"), "headers: the value of X-Team holds what"),
        (("planted-value", "planted-välue–"), "headers: the value of X-Team holds what"),
        (("temperature", "stream"), "body: stream is not for the user to set"),
        (("temperature = 0", "temperature = nan"), "body: temperature holds what JSON cannot"),
        (("temperature = 0", "a = {b = [-inf]}"), "body: a holds what JSON cannot"),
        (("temperature = 0", "since = 2026-01-01"), "body: since holds what JSON cannot"),
    ],
)
def test_how_a_target_cannot_be_reached(change: tuple[str, str], told: str | None) -> None:
    text = REACHED.replace(*change)
    if told is None:
        assert read(text).headers == {"X-Team": "planted-value"}, "as files end with a newline"
        return
    with pytest.raises(UserError) as why:
        read(text)
    assert told in str(why.value)
    assert "planted" not in str(why.value)
    assert "ss@" not in str(why.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("https://box/team/v1", "http://[box"), "t.toml:1: url: the URL cannot be read: Invalid"),
        (("https://box/team/v1", "https://box?key=1"), "t.toml:1: url: the URL has a query"),
        (("http://me:p%40ss@proxy:3128", "socks5://proxy"), "t.toml:5: proxy: write http://HOST"),
        (("X-Team", '"X Team"'), "t.toml:7: headers: a header's name cannot be"),
        (("temperature", "stream"), "t.toml:10: body: stream is not for the user to set"),
        (("insecure", 'journal = ""\ninsecure'), "t.toml:4: journal: is empty; leave it out"),
        (("insecure", 'link = "pigeon"\ninsecure'), "t.toml:4: link: unknown network 'pigeon'"),
        (("[body]", '[server]\nhardware = "dgx-sparc"\n[body]'), "t.toml:11: server.hardware: unk"),
        (("[body]", '[server]\nmodel = "gpt-oss-12b"\n[body]'), "t.toml:11: server.model: unknown"),
        (("[body]", '[server]\nquant = "Q9_Z"\n[body]'), "t.toml:11: server.quant: unknown"),
        (("[body]", '[server]\nruntime = "vlm"\n[body]'), "t.toml:11: server.runtime: unknown"),
        (("[body]", '[server]\ndraft = "mpt:4"\n[body]'), "t.toml:11: server.draft: unknown model"),
        (("[body]", '[server]\ndraft = "mtp:65"\n[body]'), "t.toml:11: server.draft: draft 'mtp:"),
    ],
)  # fmt: skip
def test_what_a_file_names_and_nobody_knows_is_told_with_its_place(
    change: tuple[str, str], told: str
) -> None:
    text = REACHED.replace(*change)
    assert text != REACHED
    with pytest.raises(UserError) as why:
        read_target(parse_toml(text, Path("t.toml")), name_checks())
    assert str(why.value).startswith(told)


@pytest.mark.parametrize(
    ("text", "drafter"),
    [
        ("mtp", ("mtp", None)),
        ("mtp:4", ("mtp", 4)),
        ("gpt-oss-20b:16", ("gpt-oss-20b", 16)),
        ("qwen3:8b", ("qwen3:8b", None)),
        ("mtp:²", ("mtp:²", None)),
    ],
)
def test_a_drafter_with_its_tokens_a_pass(text: str, drafter: tuple[str, int | None]) -> None:
    assert draft_of(text) == drafter


@pytest.mark.parametrize("text", ["mtp:0", "mtp:65", ":4", "mtp:" + "9" * 5000])
def test_a_drafter_that_drafts_nothing_or_too_much(text: str) -> None:
    with pytest.raises(UserError, match="1 to 64 tokens a pass"):
        draft_of(text)


def test_a_box_drafts_as_many_tokens_as_its_file_says() -> None:
    server = ServerSpec("dgx-spark", "gpt-oss-120b", quant="MXFP4", draft="gpt-oss-20b:7")
    drafting = deployment_of(Target("t", "http://127.0.0.1:1", server=server))
    assert drafting.draft_model is not None
    speculation = design_of(drafting, server).speculation
    assert speculation is not None
    assert speculation.tokens == 7


def test_of_two_headers_the_later_counts() -> None:
    headers = checked_headers([("x-team", "a"), ("X-Team", "b")], "x")
    assert headers == {"X-Team": "b"}


def test_another_box_does_not_keep_the_files_backend() -> None:
    target = load_target("mock")
    assert target.server.backend == "cuda"
    moved = with_overrides(target, {"hardware": "strix-halo", "backend": None})
    assert moved.server.backend is None
    assert with_overrides(target, {"hardware": "x", "backend": "rocm"}).server.backend == "rocm"
    assert with_overrides(target, {"hardware": None, "slots": 2}).server.backend == "cuda"


@pytest.mark.parametrize(
    ("name", "can_be"),
    [
        ("localhost", True), ("my_host", True), ("localhost.", True), ("fe80::1%eth0", True),
        ("xn--strae-oqa.de", True), ("xn--zca", True), ("straße.de", True), ("日本.jp", True),
        ("xn--a", False), ("☃.net", False), ("a..b", False), ("a" * 64, False), ("", False),
    ],
)  # fmt: skip
def test_what_can_be_a_host(name: str, can_be: bool) -> None:
    assert can_be_host(name) == can_be


@pytest.mark.parametrize("name", names_in(shipped_dir("targets")))
def test_every_shipped_target_can_be_read_and_predicted(name: str) -> None:
    target = load_target(name)
    assert target.name == name
    deployment = deployment_of(target)
    assert in_words(deployment, target.server).startswith(deployment.hardware.name)
    assert memory_complaint(deployment, target.server) is None


def test_a_dialect_alone_names_the_runtime() -> None:
    server = ServerSpec(hardware="dgx-spark", model="gpt-oss-20b", quant="MXFP4")
    target = Target("t", "http://127.0.0.1:1", dialect="vllm", server=server)
    assert deployment_of(target).runtime.id == "vllm"
    named = replace(target, server=replace(server, runtime="sglang"))
    assert deployment_of(named).runtime.id == "sglang"
