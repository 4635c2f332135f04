"""What is set beside a measured run, and that nothing measured is lost where nothing can be."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from raw_server import DONE, END, HEAD, Step, chunk, delta, event, finish, raw_server, usage
from run_tools import Running, headroom

from headroom_bench.cli.app import run_app
from headroom_bench.experiments import beside, get_to_know
from headroom_bench.live.lifecycle import free_port
from headroom_bench.results.reading import read_manifest

WORD = chunk(event(delta(content=" a")))
LAST = chunk(event(finish()) + event(usage(20, 2)) + DONE)
run_module = importlib.import_module("headroom_bench.experiments.run")
ANSWER: list[Step] = [HEAD, WORD, 0.02, WORD, LAST, END]
PLAIN = ("--users", "2", "--prompt-tokens", "100", "--output-tokens", "8")
BOX = ("--hardware", "dgx-spark", "--quant", "MXFP4")


@contextlib.contextmanager
def mock(*words: str) -> Iterator[str]:
    """A mock server of its own process, which a run does not know to be one."""
    port = free_port()
    command = [sys.executable, "-m", "mock_server", "--port", str(port), "--time-scale", "6"]
    with subprocess.Popen([*command, *words], stderr=subprocess.DEVNULL) as server:
        url = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(transport=httpx.HTTPTransport(retries=60), trust_env=False) as client:
                for _ in range(200):
                    with contextlib.suppress(httpx.ConnectError):
                        client.get(f"{url}/v1/models")
                        break
            yield url
        finally:
            server.terminate()


def test_windowed_models_share_no_part_of_a_message(tmp_path: Path) -> None:
    """The server sees one message where the crowd has two texts, a shared one and one's own; the
    model with windows goes back to checkpoints between messages only."""
    how = ("--prompts", "shared-prefix", "--prompt-tokens", "1k", "--requests", "8", "--json")
    model = ("--model", "gpt-oss-20b", "--quant", "MXFP4", "--time-scale", "4")
    ran = headroom("run", "mock", *model, *how, "--users", "2", "--output-tokens", "8",
                   out=tmp_path)  # fmt: skip
    assert ran.code == 0, ran.err
    for name in ("requests.jsonl", "predicted.jsonl"):
        assert [row["cached_tokens"] for row in ran.rows(name)] == [0] * 8, name


def test_spaced_starts_are_spaced_in_the_prediction_too(tmp_path: Path) -> None:
    """Four people who would ask at once; the box of the prediction must not see them so."""
    how = ("--users", "4", *PLAIN[2:], "--requests", "8", "--max-rps", "2", "--time-scale", "4")
    ran = headroom("run", "mock", *how, "--json", out=tmp_path)
    assert ran.code == 0, ran.err
    for name in ("requests.jsonl", "predicted.jsonl"):
        sent = sorted(row["sent_s"] for row in ran.rows(name))
        gaps = [after - before for before, after in itertools.pairwise(sent)]
        assert all(0.49 < gap < 0.75 for gap in gaps), (name, gaps)
        assert {row["concurrent_at_start"] for row in ran.rows(name)} == {1}, name


def test_slots_that_share_a_cache_are_given_as_much_as_split_ones(tmp_path: Path) -> None:
    ran = headroom("run", "mock", "--runtime", "lm-studio", *PLAIN, "--requests", "2", "--json",
                   out=tmp_path)  # fmt: skip
    assert ran.code == 0, ran.err
    assert "up to 16 sequences of 131,072 tokens, 131,072 together" in json.loads(ran.out)["box"]


def told(ran: Any, words: str) -> str:
    """The one warning with these words."""
    (found,) = (line for line in json.loads(ran.out)["warnings"] if words in line)
    return str(found)


def test_a_file_as_the_servers_model_is_understood(tmp_path: Path) -> None:
    words = ("--model", "gpt-oss-20b", "--quant", "MXFP4", "--slots", "2", "--ctx", "16k")
    with mock(*words) as url:
        known = headroom("run", url, "--hardware", "dgx-spark", *PLAIN, "--requests", "4",
                         "--json", out=tmp_path / "known")  # fmt: skip
    assert known.code == 0, known.err
    summary = json.loads(known.out)
    assert summary["model"].endswith("MXFP4.gguf")
    assert "gpt-oss 20B MXFP4" in summary["box"]
    assert "2 slots of 8,192 tokens" in summary["box"]
    assert len(known.rows("predicted.jsonl")) == 4
    assert not any("prediction" in line for line in summary["warnings"])


def test_answers_that_the_box_cannot_have_written_are_marked(tmp_path: Path) -> None:
    """The mock lives six times faster than life, and is not known to be one."""
    box = ("--hardware", "dgx-spark")
    with mock("--dialect", "vllm", *box, "--model", "llama-3.1-8b", "--quant", "FP8") as url:
        ran = headroom(
            "run", url, "--dialect", "vllm", *box, *PLAIN, "--requests", "4", "--json", out=tmp_path
        )
    assert ran.code == 0, ran.err
    for row in ran.rows("requests.jsonl"):
        assert row["suspect"].startswith("decoded faster than NVIDIA DGX Spark")
    line = told(ran, "cannot be right")
    assert line.startswith("4 answers cannot be right: decoded faster than NVIDIA DGX Spark")


@pytest.mark.parametrize("told", [True, False])
def test_drafts_that_the_prediction_lacks_are_told(told: bool, tmp_path: Path) -> None:
    words = ("--model", "qwen3-8b", "--quant", "Q4_K_M", "--draft", "qwen3-0.6b")
    target = tmp_path / "drafting.toml"
    with mock(*words) as url:
        draft = 'draft = "qwen3-0.6b"\n' if told else ""
        target.write_text(f'url = "{url}"\n[server]\nhardware = "dgx-spark"\n{draft}')
        ran = headroom(
            "run", str(target), *PLAIN, "--requests", "4", "--json", out=tmp_path / "out"
        )
    assert ran.code == 0, ran.err
    assert all(row["draft_tokens"] for row in ran.rows("requests.jsonl"))
    warnings = json.loads(ran.out)["warnings"]
    line = "the server drafted in 4 answers, and the prediction is of one that does not"
    assert any(line in warning for warning in warnings) == (not told)


@pytest.mark.parametrize(
    ("dialect", "room", "assumed"),
    [
        ("vllm", "up to 1024 sequences of 16,000 tokens", ["1,024 sequences"]),
        ("openai", "up to 4 sequences of 16,000 tokens", ["llama.cpp", "4 sequences"]),
    ],
)
def test_a_told_length_is_one_sequences_own(
    dialect: str, room: str, assumed: list[str], tmp_path: Path
) -> None:
    words = ("--dialect", "vllm", "--model", "gpt-oss-20b", "--slots", "2", "--ctx", "16k")
    with mock(*words) as url:
        how = ("--dialect", dialect, *BOX, *PLAIN, "--requests", "2", "--json")
        ran = headroom("run", url, *how, out=tmp_path)
    assert ran.code == 0, ran.err
    assert room in json.loads(ran.out)["box"]
    line = told(ran, "neither the server nor an option told")
    assert all(words in line for words in assumed)
    assert "--ctx" not in line, "that was told"


async def test_an_unknown_model_costs_the_prediction_only(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        how = (*BOX, "--model", "nobody-knows-9x.gguf", *PLAIN, "--requests", "4", "--json")
        running = await Running.start("run", server.url, *how, out=tmp_path)
        ran = await running.ended()
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["requests"] == 4
    assert json.loads(ran.out)["predicted"] is None
    assert "nobody-knows-9x.gguf" in told(ran, "no prediction:")
    assert "no prediction beside it" in ran.err, "said before the run too"
    assert read_manifest(ran.run)["status"] == "complete"


@pytest.mark.parametrize(
    ("slots", "ctx"), [(0, 0), (10**30, 8192), (4, 10**300), (True, "x"), (None, -5)]
)
async def test_what_a_server_says_of_itself_costs_no_measurement(
    slots: object, ctx: object, tmp_path: Path
) -> None:
    async with raw_server(*ANSWER) as server:
        settings = {"default_generation_settings": {"n_ctx": ctx}, "total_slots": slots}
        server.documents["/props"] = json.dumps(settings).encode()
        models = {"data": [{"id": "gpt-oss-20b", "max_model_len": ctx}]}
        server.documents["/v1/models"] = json.dumps(models).encode()
        how = (*BOX, *PLAIN, "--requests", "2", "--prometheus", "0", "--json")
        ran = await (await Running.start("run", server.url, *how, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert summary["requests"] == 2
    assert summary["predicted"] is not None
    told = [line for line in summary["warnings"] if "cannot be: taken as not told" in line]
    assert len(told) == (slots not in (4, None)) + 2 * (ctx != 8192)


@pytest.mark.parametrize(
    "wrong",
    [("--hardware", "dgx-sprak"), ("--quant", "Q4_K_W"), ("--runtime", "vlllm")],
)
def test_names_are_looked_up_before_anything_is_asked(
    wrong: tuple[str, str], tmp_path: Path
) -> None:
    ran = headroom("run", "http://127.0.0.1:1", *BOX, *PLAIN, "--requests", "2", *wrong,
                   out=tmp_path)  # fmt: skip
    assert ran.code == 2
    assert wrong[1] in ran.err
    assert not list(tmp_path.iterdir()), "no folder for it"


async def test_a_failed_run_is_concluded_from_what_stands_on_disk(tmp_path: Path) -> None:
    """As an earlier version left it: all was asked, then something failed."""
    async with raw_server(*ANSWER) as server:
        how = (*BOX, "--model", "gpt-oss-20b", *PLAIN, "--requests", "6")
        ran = await (await Running.start("run", server.url, *how, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    rows, run = ran.rows("requests.jsonl"), ran.run
    first = ran.json("summary.json")
    for name in ("summary.json", "turns.jsonl", "predicted.jsonl"):
        (run / name).unlink()
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "failed"}))
    again = headroom("run", "--resume", str(run), "--json", out=None)
    assert again.code == 0, again.err
    summary = json.loads(again.out)
    assert summary["requests"] == len(rows) == first["requests"] >= 6
    assert summary["duration_s"] == max(row["end_s"] for row in rows)
    assert summary["by_persona"]["probe"]["ttft_s"] == first["by_persona"]["probe"]["ttft_s"]
    assert summary["predicted"]["requests"] == first["predicted"]["requests"]
    assert summary["box"] == first["box"]
    assert not any("no prediction" in line for line in summary["warnings"])


async def test_nothing_is_predicted_where_nothing_succeeded(tmp_path: Path) -> None:
    broken = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}"
    async with raw_server(broken) as server:
        how = (*BOX, "--model", "gpt-oss-20b", *PLAIN, "--requests", "4", "--json")
        ran = await (await Running.start("run", server.url, *how, out=tmp_path)).ended()
    assert ran.code == 3, ran.err
    summary = json.loads(ran.out)
    assert (summary["errors"], summary["predicted"]) == (4, None)
    assert "no request succeeded" in told(ran, "no prediction:")


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (beside, "predict_crowd"),
        (run_module, "predict_crowd"),
        (run_module, "deployment_for"),
        (get_to_know, "deployment_for"),
    ],
)
def test_a_defect_in_a_prediction_is_told_and_costs_nothing_else(
    where: ModuleType,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ValueError("a size of -1")

    monkeypatch.setattr(where, what, broken)
    words = ["run", "mock", *PLAIN, "--requests", "2", "--time-scale", "6", "--json"]
    assert run_app([*words, "--prometheus", "0", "--out", str(tmp_path)]) == 0
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert summary["requests"] == 2
    assert (summary["predicted"] is None) == (where is beside)
    lines = summary["warnings"] if where is beside else told.err.splitlines()
    assert [line for line in lines if "by a defect that is ours: ValueError: a size of -1" in line]


async def test_people_who_still_think_are_no_failure(tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        how = (*BOX, "--model", "gpt-oss-20b", "--persona", "chat-reader:1", "--duration", "1s")
        ran = await (await Running.start("run", server.url, *how, "--json", out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["requests"] == 0
    assert "nobody asked anything in the 1 s" in told(ran, "no prediction:")
    (note,) = json.loads(ran.out)["notes"]
    assert note.startswith("nobody asked anything in 1 s (people come within their first think_s")
    assert "no request succeeded" not in ran.out
