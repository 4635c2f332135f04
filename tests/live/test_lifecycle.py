"""A server is started, found healthy, stopped; whatever happens, none is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headroom_bench.errors import TargetError, UserError
from headroom_bench.live import lifecycle, llamacpp_server
from headroom_bench.live.lifecycle import ManagedServer, StartError, fill, free_port
from headroom_bench.target import StartSpec

ROOT = Path(__file__).parents[2]

SERVER = """
import http.server, signal, subprocess, sys
port, manner = int(sys.argv[1]), sys.argv[2]
if manner == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if manner == "with-child":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid)
if manner == "breaks":
    print("loading")
    sys.exit("cannot find the weights")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if manner == "loads-for-ever" else 200)
        self.end_headers()
print("serving")
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def gone(pid: int) -> bool:
    """No such process, or only its entry is left because nobody has asked for its status."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return state == "" or state.startswith("Z")


def is_gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not gone(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def spec(port: int, manner: str = "plain", timeout_s: float = 20.0) -> StartSpec:
    command = (sys.executable, "-c", SERVER, str(port), manner)
    return StartSpec(command, health="/health", ready_timeout_s=timeout_s)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def managed(port: int, log: Path, manner: str = "plain", timeout_s: float = 20.0) -> ManagedServer:
    return ManagedServer(spec(port, manner, timeout_s), f"http://127.0.0.1:{port}", log)


async def test_it_is_healthy_inside_and_gone_after(port: int, log: Path) -> None:
    log.write_text("an earlier run\n")
    server = managed(port, log)
    assert server.pid is None
    async with server:
        assert server.pid is not None
        assert server.exited is None
        assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).status_code == 200
    assert server.exited == -signal.SIGTERM
    assert gone(server.pid)
    assert log.read_text().startswith("an earlier run\nserving\n")


async def test_it_is_gone_after_an_exception_which_stays_what_it_was(port: int, log: Path) -> None:
    server = managed(port, log)
    with pytest.raises(ZeroDivisionError):
        async with server:
            raise ZeroDivisionError
    assert server.pid is not None
    assert gone(server.pid)


async def test_what_the_server_started_is_gone_too(port: int, log: Path) -> None:
    async with managed(port, log, "with-child"):
        child = int(log.read_text().split()[1])
        assert not gone(child)
    assert is_gone_within(child, 5.0)


async def test_a_server_that_will_not_stop_is_killed(
    port: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.3)
    server = managed(port, log, "stubborn")
    async with server:
        pass
    assert server.exited == -signal.SIGKILL


async def test_cancelling_stops_the_server_and_still_cancels(port: int, log: Path) -> None:
    server, inside = managed(port, log), asyncio.Event()

    async def run() -> None:
        async with server:
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.pid is not None
    assert gone(server.pid)


async def test_cancelling_while_it_starts_or_stops_does_not_leave_it(
    port: int, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "STOP_GRACE_S", 0.5)
    server = managed(port, log, "stubborn")
    leaving = asyncio.Event()

    async def run() -> None:
        async with server:
            leaving.set()

    task = asyncio.create_task(run())
    await leaving.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert server.exited == -signal.SIGKILL

    late = managed(port, log, "loads-for-ever")
    starting = asyncio.create_task(late.__aenter__())
    while late.pid is None:
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert gone(late.pid)


async def test_kill_ends_it_at_once_and_may_be_repeated(port: int, log: Path) -> None:
    server = managed(port, log, "stubborn")
    server.kill()
    async with server:
        server.kill()
        assert server.exited == -signal.SIGKILL
        server.kill()


async def test_the_stop_command_is_used(port: int, log: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    stop = (
        sys.executable,
        "-c",
        f"import os, signal; os.kill(int(open({str(pid_file)!r}).read()), signal.SIGUSR1)",
    )
    plain = spec(port)
    server = ManagedServer(
        StartSpec(plain.command, plain.health, stop), f"http://127.0.0.1:{port}", log
    )
    async with server:
        pid_file.write_text(str(server.pid))
    assert server.exited == -signal.SIGUSR1


@pytest.mark.parametrize("stop", [("no-such-program-here",), (sys.executable, "-c", "exit(1)")])
async def test_a_stop_command_that_fails_is_made_good_by_sigterm(
    port: int, log: Path, stop: tuple[str, ...]
) -> None:
    plain = spec(port)
    server = ManagedServer(
        StartSpec(plain.command, plain.health, stop), f"http://127.0.0.1:{port}", log
    )
    async with server:
        pass
    assert server.exited == -signal.SIGTERM


async def test_a_server_that_dies_is_told_with_its_last_words(port: int, log: Path) -> None:
    log.write_text("of an earlier run\n")
    with pytest.raises(StartError) as caught:
        await managed(port, log, "breaks").__aenter__()
    message = str(caught.value)
    assert "exited with status 1" in message
    assert message.endswith("cannot find the weights")
    assert caught.value.detail == "loading\ncannot find the weights"
    assert caught.value.exit_code == 3


async def test_a_server_that_is_never_ready_is_stopped_and_told(port: int, log: Path) -> None:
    server = managed(port, log, "loads-for-ever", timeout_s=1.0)
    with pytest.raises(StartError, match="not healthy after 1 s"):
        await server.__aenter__()
    assert server.pid is not None
    assert gone(server.pid)


async def test_options_of_the_command_are_not_told(port: int, log: Path) -> None:
    command = (sys.executable, "-c", "exit(4)", "--api-key", "hush")
    with pytest.raises(StartError, match="exited with status 4") as caught:
        await ManagedServer(
            StartSpec(command, "/health"), f"http://127.0.0.1:{port}", log
        ).__aenter__()
    assert "hush" not in str(caught.value)


async def test_a_port_that_is_taken_is_not_measured_by_mistake(log: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        server = managed(port, log)
        with pytest.raises(TargetError, match="something already listens"):
            await server.__aenter__()
    assert server.pid is None


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (StartSpec((), "/health"), "start.command is empty"),
        (StartSpec(("no-such-program-here",), "/health"), "no program 'no-such-program-here'"),
        (StartSpec((sys.executable,), "ftp://127.0.0.1/"), "not a URL"),
    ],
)
async def test_a_start_table_that_cannot_work_is_one_line(
    port: int, log: Path, start: StartSpec, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        await ManagedServer(start, f"http://127.0.0.1:{port}", log).__aenter__()


async def test_a_log_that_cannot_be_written_is_one_line(port: int, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write the server's log"):
        await managed(port, tmp_path / "missing" / "log").__aenter__()


BENCHMARK = """
import asyncio, signal, sys
from pathlib import Path
from headroom_bench.live.lifecycle import ManagedServer
from headroom_bench.target import StartSpec
async def main():
    command = (sys.executable, "-c", *sys.argv[3:])
    spec = StartSpec(command, "/health", ready_timeout_s=20)
    async with ManagedServer(spec, sys.argv[1], Path(sys.argv[2])) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)
# A shell starts its background jobs with SIGINT ignored, and that is inherited.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main())
"""


@pytest.fixture
def benchmark_run(port: int, log: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that holds a server, and the server's pid."""
    arguments = [f"http://127.0.0.1:{port}", str(log), SERVER, str(port), "plain"]
    process = subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout is not None
    with process, process.stdout:
        yield process, int(process.stdout.readline())
        process.kill()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_the_benchmark_however_that_dies(
    benchmark_run: tuple[subprocess.Popen[str], int], how: signal.Signals
) -> None:
    process, server = benchmark_run
    assert not gone(server)
    process.send_signal(how)
    process.wait(15)
    assert is_gone_within(server, 10.0)


def test_placeholders_are_filled_and_other_braces_left() -> None:
    words = ["{python}", "--url=http://{host}:{port}", '{"thinking": false}', "{}", "plain"]
    assert fill(words, {"host": "127.0.0.1", "port": "8080"}) == (
        sys.executable,
        "--url=http://127.0.0.1:8080",
        '{"thinking": false}',
        "{}",
        "plain",
    )


def test_an_unknown_placeholder_is_named() -> None:
    with pytest.raises(
        UserError, match=r"unknown placeholder 'prt'; did you mean port.* \(in '\{prt\}'\)"
    ):
        fill(["--port", "{prt}"], {"port": "1"})


def test_the_server_names_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(llamacpp_server, "_die_with", lambda _: None)
    arguments = ["--port", "1", "--model", str(tmp_path / "missing.gguf")]
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    assert llamacpp_server.main(arguments) == 2
    assert "pip install 'headroom-bench[llamacpp]'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "xllamacpp", llamacpp_server)
    assert llamacpp_server.main(arguments) == 2
    assert "there is no model file" in capsys.readouterr().err


def shipped_start(model: Path, port: int) -> tuple[StartSpec, str]:
    """`targets/local-llamacpp.toml` as a run would resolve it, on one thread."""
    target = tomllib.loads((ROOT / "targets" / "local-llamacpp.toml").read_text())
    values = {"host": "127.0.0.1", "port": str(port), "model_file": str(model)}
    command = fill([*target["start"]["command"], "--threads", "1"], values)
    (url,) = fill([target["url"]], values)
    return StartSpec(command, target["start"]["health"]), url


async def test_the_real_server_serves_writes_its_journal_and_ends(
    smollm2: Path, xllamacpp: None, port: int, log: Path
) -> None:
    start, url = shipped_start(smollm2, port)
    async with (
        ManagedServer(start, url, log) as server,
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client,
    ):
        assert (await client.get("/health")).json() == {"status": "ok"}
        props = (await client.get("/props")).json()
        assert props["total_slots"] == 2
        assert props["default_generation_settings"]["n_ctx"] == 2048
        question = [{"role": "user", "content": "Name three fruits."}]
        reply = await client.post(
            "/v1/chat/completions", json={"messages": question, "max_tokens": 8}
        )
        answer = reply.json()
        assert answer["model"] == "SmolLM2-135M-Instruct"
        assert 1 <= answer["usage"]["completion_tokens"] <= 8
        assert "llamacpp:prompt_tokens_total" in (await client.get("/metrics")).text
    assert server.pid is not None
    assert server.exited == 0
    assert gone(server.pid)
    journal = log.read_text()
    assert "print_timing" in journal
    assert "listening on http://127.0.0.1" in journal


def test_the_real_server_ends_with_its_parent(
    smollm2: Path, xllamacpp: None, port: int, log: Path
) -> None:
    """Without the guard: started by any program that is then killed."""
    words = [sys.executable, "-m", "headroom_bench.live.llamacpp_server", "--threads", "1"]
    words += ["--model", str(smollm2), "--port", str(port)]
    starter = (
        "import subprocess, sys; child = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE,"
        " stderr=subprocess.DEVNULL, text=True); line = child.stdout.readline();"
        " print(child.pid, line, flush=True); child.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starter, *words], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert parent.stdout is not None
    with parent, parent.stdout:
        pid, line = parent.stdout.readline().split(" ", 1)
        assert line.startswith("listening on ")
        parent.kill()
        parent.wait()
        assert is_gone_within(int(pid), 5.0)
