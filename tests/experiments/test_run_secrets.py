"""Keys reach the server and nothing else, though the server says them back in every way it can."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from echo_server import EchoServer, echo_server
from run_tools import Ran, headroom

KEY = 'sk-test"0123/456<789>'
FROM_FILE = "file-planted-secret-in-a-header"
FROM_ENVIRONMENT = "env-planted-secret-in-a-header"
FROM_FLAG = "flag-planted-secret-in-a-header"
PASSWORD = "pass:word+planted"
BASIC = b64encode(f"me:{PASSWORD}".encode()).decode()
BODY_KEY = "planted-in-the-body"
SECRETS = (KEY, FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG, PASSWORD, BASIC, BODY_KEY, "sk-test",
           "planted-secret", "planted-in", "word+planted", "word%2Bplanted")  # fmt: skip


@pytest.fixture
def echo() -> Iterator[EchoServer]:
    with echo_server() as server:
        yield server


def everything(ran: Ran) -> dict[str, bytes]:
    """All that a run left or said."""
    said = {"stdout": ran.out.encode(), "stderr": ran.err.encode()}
    files = {str(path): path.read_bytes() for path in ran.folder.rglob("*") if path.is_file()}
    names = "\n".join(map(str, ran.folder.rglob("*"))).encode()
    return {**said, **files, "names": names}


def assert_silent(ran: Ran) -> None:
    for where, what in everything(ran).items():
        for secret in SECRETS:
            assert secret.encode() not in what, f"{secret} is in {where}"


WORDS = ("--users", "2", "--prompt-tokens", "20", "--output-tokens", "5", "--requests", "16")


def test_no_key_is_written_or_shown(echo: EchoServer, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        f'url = "http://127.0.0.1:{echo.port}/base/v1"\napi_key_env = "PLANTED"\n'
        f'[headers]\nX-Team = "{FROM_FILE}"\nX-Env = "env:PLANTED_HEADER"\n'
        f'[body]\ndeep = [{{ token = "{BODY_KEY}" }}]\n'
    )
    words = ("run", str(tmp_path / "t.toml"), *WORDS, "--header", f"X-Flag: {FROM_FLAG}", "--json")
    env = {"PLANTED": f" {KEY}\n", "PLANTED_HEADER": FROM_ENVIRONMENT}
    ran = headroom(*words, out=tmp_path / "out", **env)
    assert ran.code == 0, ran.err
    sent = echo.told[0]
    assert sent["Authorization"] == f"Bearer {KEY}"
    assert [sent[name] for name in ("X-Team", "X-Env", "X-Flag")] == [
        FROM_FILE, FROM_ENVIRONMENT, FROM_FLAG,
    ]  # fmt: skip
    assert echo.bodies[0]["deep"] == [{"token": BODY_KEY}]
    assert_silent(ran)
    rows = ran.rows("requests.jsonl")
    kinds = {row["error_kind"] for row in rows}
    assert kinds >= {"unauthorized", "server_error", "refused", "stream_error", "nonsense"}
    assert any("***" in (row["error"] or "") for row in rows), "errors are told, but for the keys"
    manifest = ran.json("manifest.json")
    assert manifest["config"]["target"]["headers"] == ["X-Env", "X-Flag", "X-Team"]


def test_a_password_in_a_url_becomes_a_header(echo: EchoServer, tmp_path: Path) -> None:
    url = f"http://me:{PASSWORD.replace('+', '%2B')}@127.0.0.1:{echo.port}"
    ran = headroom("run", url, *WORDS, out=tmp_path / "out")
    assert ran.code == 0, ran.err
    assert echo.told[0]["Authorization"] == f"Basic {BASIC}"
    assert_silent(ran)
    assert ran.json("manifest.json")["config"]["target"]["url"] == f"http://127.0.0.1:{echo.port}"


@pytest.mark.parametrize(
    "words",
    [
        (f"http://127.0.0.1:1?key={FROM_FLAG}",),
        (f"http://me:{PASSWORD}@127.0.0.1:1/", "--api-key-env", "PLANTED"),
        (f"http://me:{PASSWORD}@[::1/",),
        (f"ftp://me:{PASSWORD}@h/",),
        (f"http:/me:{PASSWORD}@h",),
        (f"me:{PASSWORD}@h:8080",),
        (f"http://me:sk-test/{PASSWORD}@h",),
        (f"http://me:{PASSWORD}@127.0.0.1:1/",),
        ("http://127.0.0.1:1", "--proxy", f"socks5://me:{PASSWORD}@h"),
        ("http://127.0.0.1:1", "--header", FROM_FLAG),
        ("http://127.0.0.1:1", "--header", f"X-A: {FROM_FLAG}\r\nX-B: c"),
        ("http://127.0.0.1:1", "--header", f"X A: {FROM_FLAG}"),
        ("http://127.0.0.1:1", "--extra-body", f'{{"api_key": "{BODY_KEY}", "model": "x"}}'),
        ("http://127.0.0.1:1", "--extra-body", f'{{"a": [{{"token": "{BODY_KEY}"}}], "n": 2}}'),
        ("http://127.0.0.1:1", "--api-key-env", KEY),
        ("http://127.0.0.1:1", "--header", "X-Key: env:sk-test01"),
    ],
)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_what_goes_wrong_is_told_without_them(
    words: tuple[str, ...], debug: tuple[str, ...], tmp_path: Path
) -> None:
    ran = headroom(*debug, "run", *words, out=tmp_path / "out", PLANTED=KEY, traceback=bool(debug))
    assert ran.code in (2, 3), ran.err
    assert_silent(ran)


@pytest.mark.parametrize(
    "command",
    [
        f'["{{python}}", "-c", "import sys; print(sys.argv)", "--api-key", "{FROM_FILE}"]',
        f'["sh", "-c", "echo $0 $1; exit 1 --api-key {FROM_FILE}", "--api-key", "{FROM_FLAG}"]',
    ],
)
def test_a_started_server_that_logs_its_key(command: str, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(
        f'url = "http://127.0.0.1:{{port}}"\n[start]\nport = 0\ncommand = {command}'
    )
    ran = headroom("run", str(tmp_path / "t.toml"), *WORDS, out=tmp_path / "out")
    assert ran.code == 3
    assert_silent(ran)
    assert "--api-key" in (ran.run / "server.log").read_text()
