"""Bad input gets one clear line, the exit code of the contract, and no traceback."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from headroom_bench.cli.app import run_app

PLAIN = ("--users", "1", "--prompt-tokens", "20", "--output-tokens", "5")


def headroom(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "headroom_bench", *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )
    assert "Traceback" not in done.stderr + done.stdout
    return done


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "local-lamacpp"), "unknown target 'local-lamacpp'; did you mean local-llamacpp"),
        (("run", "mock", "--crowd", "dmo"), "unknown crowd 'dmo'; did you mean demo"),
        (("run", "mock", "--persona", "chat-reeder:2"), "unknown persona 'chat-reeder'; did you"),
        (("run", "mock", "--persona", "chat-reader"), "--persona 'chat-reader' is not NAME:N"),
        (("run", "mock", "--crowd", "demo", *PLAIN), "give one of --crowd, --persona or the plain"),
        (("run", "mock", "--users", "2"), "also needs --prompt-tokens and --output-tokens"),
        (("run", "mock", "--think", "5s"), "--think goes with the plain crowd"),
        (("run", "mock", "--duration", "soon"), "--duration 'soon' is not a duration"),
        (("run", "mock", "--duration", "10s", "--warmup", "10s"), "--warmup 10s leaves nothing"),
        (("run", "mock", "--requests", "0"), "--requests"),
        (("run", "mock", "--max-rps", "0"), "--max-rps 0 must be above zero"),
        (("run", "mock", "--max-rps", "inf"), "--max-rps inf must be above zero and finite"),
        (("run", "mock", "--time-scale", "nan"), "--time-scale nan must be above zero and finite"),
        (("run", "mock", "--prometheus", "nine"), "--prometheus 'nine' is not [HOST:]PORT"),
        (("run", "mock", "--durration", "5s"), "No such option"),
        (("run", "ftp://127.0.0.1/"), "is not a URL; write http://HOST:PORT"),
        (("run", "ftp://127.0.0.1/", "--show-config"), "is not a URL; write http://HOST:PORT"),
        (("run", "http://127.0.0.1:99999"), "has no valid port"),
        (("run", "http://127.0.0.1:1", "--ca-file", "c.pem"), "are for https targets"),
        (("run", "http://127.0.0.1:1", "--insecure"), "are for https targets"),
        (("run", "https://127.0.0.1:1", "--insecure", "--ca-file", "c.pem"), "leave one out"),
        (("run", "http://127.0.0.1:0"), "has port 0, where nothing can be reached"),
        (("run", "http://xn--a:1"), "holds letters that a URL cannot"),
        (("run", "http://☃.net:1"), "holds letters that a URL cannot"),
        *(
            (("run", "http://127.0.0.1:1", "--proxy", url), "write http://HOST:PORT as the proxy")
            for url in (
                "http://h:x",
                "http://h:80:90",
                "http://h\t:1",
                "http://h:0",
                "http://xn--a",
            )
        ),
        (("run", "http://127.0.0.1:1", "--header", "X-a: 1", "--header", "x-A: 2"), "x-a is given"),
        (("run", "http://127.0.0.1:99999", "--show-config"), "has no valid port"),
        (("run", "./missing.toml"), "target file './missing.toml' does not exist"),
        (("run", "http://127.0.0.1:1", "--time-scale", "2"), "--time-scale is for the mock only"),
        (("run", "http://127.0.0.1:1", "--dialect", "lamacpp"), "--dialect 'lamacpp' is not one"),
        (("run", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
        (("simulate", "mock", "--hardware", "dgx-sparc"), "dgx-spark"),
        (
            ("run", "~no-one-here/t.toml"),
            "'~no-one-here/t.toml' cannot be a path: Could not determine home",
        ),
        (("run", f"./{'t' * 300}.toml"), "cannot be a path: File name too long"),
        (
            ("run", "mock", "--crowd", "~no-one-here/c.toml"),
            "'~no-one-here/c.toml' cannot be a path",
        ),
        (("run", "mock", "--crowd", "c" * 300), "unknown crowd 'ccc"),
        (
            ("run", "mock", "--persona", "~no-one-here/p.toml:2"),
            "'~no-one-here/p.toml' cannot be a path",
        ),
        (("run", "mock", "--prompts", "file:~no-one-here/s"), "'~no-one-here/s' cannot be a path"),
        (("simulate", "mock", "--model", "~no-one-here"), "unknown model '~no-one-here'"),
        (("simulate", "mock", "--model", "m" * 300), "unknown model 'mmm"),
        (
            ("simulate", "mock", "--hardware", "~no-one-here/h.toml"),
            "'~no-one-here/h.toml' cannot be a path",
        ),
        (("inspect", "~no-one-here/m.gguf"), "'~no-one-here/m.gguf' cannot be a path"),
        (("simulate", "mock", "--quant", "Q9_Z"), "Q9_Z"),
        (("simulate", "mock", "--runtime", "vllm", "--kv-unified"), "vLLM has no slots: leave out"),
        (("run", "mock", "--dialect", "sglang", "--kv-split"), "SGLang has no slots: leave out"),
        (("redline", "mock", "--runtime", "mlx", "--kv-unified"), "has no slots: leave out"),
        (("simulate", "http://127.0.0.1:1"), "give --hardware, --quant, --model"),
        (("run", "http://127.0.0.1:1", "--backend", "x"), "unknown backend 'x'"),
        (("run", "http://127.0.0.1:1", "--hardware", "rtx-4090", "--backend", "metal"), "metal"),
        (("fetch-model", "smollm3"), "unknown small model 'smollm3'"),
        (("run", "mock", "--journal", ""), "--journal is followed by an empty one: leave it out"),
        (("predict", "--hardware=", "--model", "gpt-oss-20b"), "--hardware is empty: leave it out"),
        (("simulate", "--out", ""), "--out is followed by an empty one"),
        (("", "run"), "the first word is empty"),
        (("nonsense",), "No such command"),
        (("run", "mock", "--crowd", "d\x1b[31mmo\u202e"), "crowd 'd\\x1b[31mmo\\u202e'"),
    ],
)
def test_wrong_words_are_told_in_one_line(
    words: tuple[str, ...],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = run_app(list(words))
    said = capsys.readouterr()
    assert code == 2, said.err
    (line,) = said.err.strip().splitlines()
    assert told in line
    assert line.startswith("headroom-bench: ")
    assert said.out == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("url = ", "is not valid TOML"),
        ("dialect = 'openai'\n", "url: is missing"),
        ("url = 'http://127.0.0.1:1'\n\n[server]\nhardwear = 'x'\n", ":4: server.hardwear: is not"),
        ("url = 'http://127.0.0.1:1'\n[server]\nslots = 'two'\n", ":3: server.slots: 'two' is not"),
        ("url = 'http://127.0.0.1:{port}'\n", ":1: url: holds {port}"),
    ],
)
def test_a_broken_target_file_is_told_with_file_line_and_field(
    text: str, told: str, tmp_path: Path
) -> None:
    target = tmp_path / "mine.toml"
    target.write_text(text)
    done = headroom("run", "./mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.toml" in done.stderr
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_dead_url_ends_within_the_connect_timeout(tmp_path: Path) -> None:
    began = time.monotonic()
    done = headroom("run", "http://127.0.0.1:9", "--connect-timeout", "3s", cwd=tmp_path)
    assert time.monotonic() - began < 3 + 5  # the interpreter's start included
    assert done.returncode == 3
    assert "http://127.0.0.1:9/v1/models: connection refused" in done.stderr


def test_a_results_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    done = headroom("run", "mock", *PLAIN, cwd=tmp_path)
    assert done.returncode == 2
    assert "results" in done.stderr.strip().splitlines()[-1]


@contextmanager
def server(status: int, body: bytes, kind: str = "text/html") -> Iterator[str]:
    """Answers everything alike."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None: ...

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=listener.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.server_address[1]}"
    finally:
        listener.shutdown()
        listener.server_close()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, b"<html>boom</html>", "server_error"),
        (200, b"<html>hello</html>", "nonsense"),
    ],
)
def test_a_server_that_refuses_is_recorded_and_named(
    status: int, body: bytes, kind: str, tmp_path: Path
) -> None:
    with server(status, body) as url:
        done = headroom("run", url, *PLAIN, "--requests", "2", cwd=tmp_path)
    assert done.returncode == 3
    assert f"2 × {kind}" in done.stdout
    assert "no request succeeded" in done.stderr
    (rows,) = tmp_path.glob("results/*/requests.jsonl")
    lines = rows.read_text().splitlines()
    assert len(lines) == 2
    assert all(f'"error_kind":"{kind}"' in line and '"ok":false' in line for line in lines)


@pytest.mark.parametrize(
    ("status", "body", "helps"),
    [
        (401, b'{"error":{"message":"Invalid API Key"}}', "--api-key-env VAR"),
        (404, b"nope", "--served-model NAME"),
    ],
)
def test_a_server_that_will_answer_nobody_ends_the_run_before_it_begins(
    status: int, body: bytes, helps: str, tmp_path: Path
) -> None:
    with server(status, body) as url:
        done = headroom("run", url, *PLAIN, "--duration", "1h", cwd=tmp_path)
    assert done.returncode == 3
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("headroom-bench: ")]
    assert f"HTTP {status}" in line
    assert helps in line


def test_the_api_key_is_nowhere_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "s3cr3t-value")
    with server(401, b'{"error":{"message":"no"}}') as url:
        done = headroom(
            "run", url, *PLAIN, "--requests", "1", "--api-key-env", "OUR_KEY", cwd=tmp_path
        )
    assert done.returncode == 3
    assert "s3cr3t-value" not in done.stdout + done.stderr
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"s3cr3t-value" in path.read_bytes() for path in files)


def test_a_context_that_is_too_small_is_said_before_the_run(tmp_path: Path) -> None:
    done = headroom("run", "mock", "--persona", "ide-coder:1", "--ctx", "8k", "--requests", "1",
                    "--slots", "8", "--time-scale", "200", cwd=tmp_path)  # fmt: skip
    said = done.stderr.splitlines()
    warned = [n for n, line in enumerate(said) if "a slot holds 1,024" in line]
    ended = [n for n, line in enumerate(said) if line.startswith("results in ")]
    assert warned
    assert ended
    assert warned[0] < ended[0]


def test_help_and_version_are_light() -> None:
    done = headroom("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("headroom-bench 0.")
    heavy = "import sys, headroom_bench.cli.app; print(sorted({'pandas','numpy','aiohttp','httpx',"
    done = subprocess.run(
        [sys.executable, "-c", heavy + "'scipy','uvloop'} & set(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--api-key-env", "NO_SUCH_VARIABLE"), "the environment has no NO_SUCH_VARIABLE"),
        (("--api-key-env", "sk-planted0123"), "the environment has no variable ***, which is no"),
        (("--port", "99999"), "--port 99999 is no port"),
        (("--time-scale", "nan"), "--time-scale must be above 0"),
        (("--loading-s", "inf"), "--loading-s must be from 0 to 31,622,400"),
    ],
)
def test_wrong_sizes_of_the_mock_are_told_in_one_line(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_app(["mock", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert told in line
