"""`--resume` and `--repeat`: what had ended stays, what had not is run, texts are new each time."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from raw_server import DONE, END, HANG, HEAD, Step, chunk, delta, event, finish, raw_server, usage
from record_makers import failed
from record_makers import record as made
from run_tools import Ran, Running, headroom

from headroom_bench.cli.app import run_app
from headroom_bench.experiments.measuring import Measured
from headroom_bench.results import token_times
from headroom_bench.results.reading import read_manifest, read_requests

WORD = chunk(event(delta(content=" a")))
LAST = chunk(event(finish()) + event(usage(20, 2)) + DONE)
ANSWER: list[Step] = [HEAD, WORD, 0.02, WORD, LAST, END]
TALKERS = """
name = "talkers"
seed = 7
[[group]]
persona = "talker.toml"
count = 3
"""
TALKER = """
name = "talker"
turns = {uniform = [2, 4]}
think_s = {fixed = 0.05}
output = {fixed = 2}
[[segments]]
name = "ask"
role = "user"
kind = "prose"
tokens = {uniform = [5, 40]}
each = "turn"
[target]
metric = "ttft"
limit_s = 5
share = 0.9
"""


@pytest.fixture
def crowd(tmp_path: Path) -> str:
    (tmp_path / "talker.toml").write_text(TALKER)
    path = tmp_path / "talkers.toml"
    path.write_text(TALKERS)
    return str(path)


def ids(run: Path, name: str = "requests.jsonl") -> list[str]:
    return [json.loads(line)["request_id"] for line in (run / name).read_text().splitlines()]


def resumed(run: Path, *words: str) -> Ran:
    """`run --resume`, which takes no `--out`."""
    return headroom("run", *words, "--resume", str(run), out=None)


async def resuming(run: Path, *words: str) -> Ran:
    running = await Running.start("run", *words, "--resume", str(run), out=None)
    return await running.ended()


async def stopped(server_url: str, crowd: str, out: Path, number: int, *words: str) -> Path:
    """A run that a signal ended after some requests."""
    how = ("--crowd", crowd, "--duration", "4s", *words)
    running = await Running.start("run", server_url, *how, out=out)
    run = await running.until_rows(12)
    running.process.send_signal(number)
    await running.process.communicate()
    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_an_ended_run_goes_on_where_it_was(number: int, crowd: str, tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        run = await stopped(server.url, crowd, tmp_path / "out", number)
        before = read_requests(run)
        if number == signal.SIGKILL:  # as a kill while it was writing leaves it
            with (run / "requests.jsonl").open("ab") as torn:
                torn.write(b'{"run_id": "half a li')
            with (run / "tokens.bin").open("ab") as torn:
                torn.write(b"\x20\x00talker")
        for name in ("talker.toml", "talkers.toml"):
            Path(crowd).with_name(name).unlink()  # the manifest knows the crowd
        ran = await resuming(run)
    assert ran.code == 0, ran.err
    after = read_requests(run)
    kept, again = ids(run), ids(run, "requests.unfinished.jsonl")
    assert len(kept) == len(set(kept)), "no id twice"
    assert set(again) <= {record.request_id for record in before}
    former = {record.request_id: record for record in before}
    for record in after:
        if record.request_id in former and record.request_id not in again:
            assert record == former[record.request_id], "what was measured stays"
    manifest = read_manifest(run)
    assert (manifest["status"], manifest["seed"]) == ("complete", 7)
    (resumption,) = manifest["resumptions"]
    assert resumption["kept_requests"] == len(before) - len(again)
    assert resumption["held_again"] == sorted({name.rsplit("/", 2)[0] for name in again})
    assert_whole_talks(after, {record.request_id for record in before})
    last_s = max(record.end_s or 0 for record in before)
    new = [record for record in after if record.request_id not in former]
    assert all(record.started_at_s >= last_s - 0.001 for record in new), "the clock goes on"
    assert all(record.started_at_s <= 4.0 for record in new), "to the end that was asked for"
    summary = json.loads((run / "summary.json").read_text())
    assert summary["requests"] == len([r for r in after if r.error_kind != "interrupted"])
    assert any("taken up" in warning for warning in summary["warnings"])
    told = f"{len(again)} requests of these, asked before, are in the rates"
    assert len(again) < 2 or any(told in warning for warning in summary["warnings"])
    aside = [json.loads(line) for line in (run / "requests.unfinished.jsonl").open()]
    ok = sum(record.ok for record in after) + sum(row["ok"] for row in aside)
    totals = summary["totals"]
    assert totals["requests_per_s"] * totals["window_s"] == pytest.approx(ok), "all it worked on"
    times = dict(token_times.read(run / "tokens.bin"))
    assert times.keys() == set(kept)
    assert ids(run) == [record.request_id for record in after]


def test_progress_counts_what_ended_in_a_former_part_of_the_run() -> None:
    measured = Measured()
    for former in (made(0), made(1), failed(user=2)):
        measured.take_over(former)
    tally = measured.tally
    tally.in_flight = 1  # one that this part of the run has sent
    measured.on_record(made(3), [])
    assert (tally.requests, tally.errors) == (len(measured.records), 1) == (4, 1)
    assert tally.completion_tokens == 3 * 31
    assert tally.in_flight == 0


def assert_whole_talks(records: list[Any], before: set[str]) -> None:
    """Everybody's conversations follow each other without a gap, each from its first turn."""
    turns: dict[tuple[str, int], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        number = int(record.conversation_id.rpartition("/c")[2])
        turns[record.persona, record.user][number].append(record.turn)
    assert len(turns) == 3
    for talks in turns.values():
        assert sorted(talks) == list(range(len(talks)))
        assert all(found == list(range(len(found))) for found in talks.values())
        assert all(len(talks[number]) >= 2 for number in range(len(talks) - 1)), "held to the end"


async def test_resumed_twice_and_by_number_of_requests(crowd: str, tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, "--crowd", crowd, "--requests", "60")
        running = await Running.start(*words, out=tmp_path / "out")
        run = await running.until_rows(8)
        running.process.send_signal(signal.SIGINT)
        await running.process.communicate()
        going_on = await Running.start("run", "--resume", str(run), out=None)
        going_on.folder = run.parent
        await going_on.until_rows(25)
        going_on.process.send_signal(signal.SIGINT)
        ran = await going_on.ended()
        assert ran.code == 4
        assert f"headroom-bench run --resume {run}" in ran.err
        ran = await resuming(run)
    assert ran.code == 0, ran.err
    assert len(ids(run)) == len(set(ids(run))) == 60
    assert len(read_manifest(run)["resumptions"]) == 2


def test_the_mock_and_its_journal_are_taken_up(tmp_path: Path) -> None:
    async def interrupted() -> Path:
        words = ("run", "--duration", "25s", "--time-scale", "5")
        running = await Running.start(*words, out=tmp_path)
        run = await running.until_rows(15)
        running.process.send_signal(signal.SIGINT)
        await running.process.communicate()
        return run

    run = asyncio.run(interrupted())
    ran = resumed(run, "mock", "--json")
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert (summary["status"], summary["run_id"]) == ("complete", run.name)
    report = json.loads((run / "journal_join.json").read_text())
    lines = (run / "requests.unfinished.jsonl").read_text().splitlines()
    aside = [row for row in map(json.loads, lines) if row["ok"]]
    assert aside, "else nobody was in the middle of a conversation"
    asked = [row for row in read_requests(run) if row.ok]
    assert report["requests"] == len(asked) + len(aside) >= 15, "the server answered them all"
    assert report["matched_share"] > 0.9, "both lives of the server are read"
    assert set(ids(run)) == set(ids(run, "predicted.jsonl"))


async def test_what_was_cut_off_after_its_time_is_not_asked_again(tmp_path: Path) -> None:
    """Nobody has time left: going on is concluding, and what was measured stays as it was."""
    plain = ("--users", "2", "--prompt-tokens", "20", "--output-tokens", "2", "--think", "20ms")
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *plain, "--duration", "3s")
        running = await Running.start(*words, out=tmp_path)
        run = await running.until_rows(6)
        server.script = [HEAD, WORD, HANG]
        while b"the time is up" not in (line := await running.process.stderr.readline()):
            assert line, "it ended before"
        running.process.send_signal(signal.SIGINT)
        ended = await running.ended()
        asked = len(server.requests)
        ran = await resuming(run, "--json")
    assert ended.code == 4
    assert "nothing was left to ask" in ended.err
    assert "--resume" not in ended.err
    before = json.loads((run / "manifest.json").read_text())
    assert ran.code == 0, ran.err
    assert len(server.requests) == asked
    summary = json.loads(ran.out)
    assert summary["status"] == before["status"] == "complete"
    assert not any("taken up" in warning for warning in summary["warnings"])
    assert not before["resumptions"]
    assert summary["harness"]["lag_p99_ms"] > 0
    assert summary["harness"]["writer_lag_max_ms"] > 0
    assert summary["harness"]["connections_opened"] == 2
    assert summary["prompts"]["lengths"] is None, "nobody wrote any now"


# --- refusals -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("complete")
    words = ("--users", "1", "--prompt-tokens", "20", "--output-tokens", "2", "--requests", "2")
    ran = headroom("run", *words, "--time-scale", "5", out=out)
    assert ran.code == 0, ran.err
    return ran.run


def as_if(complete: Path, tmp_path: Path, **changes: Any) -> Path:
    """A copy whose manifest says something else."""
    run = tmp_path / "copy"
    shutil.copytree(complete, run)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps({**manifest, "status": "running", **changes}))
    return run


def refused(run: Path, *words: str) -> str:
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    ran = resumed(run, *words)
    assert ran.code == 2, ran.err
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    (line,) = ran.err.splitlines()
    return line


def test_what_is_not_taken_up(complete: Path, tmp_path: Path) -> None:
    assert "is complete: there is nothing to resume" in refused(complete)
    assert "is not a run: it holds no manifest.json" in refused(tmp_path)
    run = as_if(complete, tmp_path)
    assert "is a run against mock, not http://127.0.0.1:1" in refused(run, "http://127.0.0.1:1")
    assert "leave out --users" in refused(run, "--users", "2")
    assert "leave out --seed" in refused(run, "--seed", "1")


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of plain data with another value in one place."""
    copy = json.loads(json.dumps(value))
    inside = copy
    for step in path[:-1]:
        inside = inside[step]
    inside[path[-1]] = new
    return copy


@pytest.mark.parametrize(
    ("path", "new", "told"),
    [
        (("config", "duration_s"), float("nan"), "manifest.json cannot be read: NaN is no number"),
        (("config", "duration_s"), -5, "manifest.json: config.duration_s: -5 is not what"),
        (("config", "warmup_s"), -1.0, "manifest.json: config.warmup_s: -1 is not what"),
        (("config", "max_requests"), 0, "manifest.json: config.max_requests: 0 is not what"),
        (("config", "max_rps"), 10**400, "manifest.json: config.max_rps: 1000"),
        (("config", "time_scale"), 0.0, "manifest.json: config.time_scale: 0 is not what"),
        (("config", "timeouts", "silence_s"), -1.0, ": config.timeouts.silence_s: -1 is not what"),
        (("config", "crowd", "groups", 0, "count"), 10**12, "1,000,000,000,000 people; there may"),
        (("config", "crowd"), [1], "manifest.json: config.crowd: [1] is not what"),
        (("config", "prompts_digest"), [1], "manifest.json: config.prompts_digest: [1] is not"),
        (("config", "seed"), 10**4000, "manifest.json cannot be read: a number of too many digits"),
        (("harness",), 3, "manifest.json: harness: 3 is not what"),
        (("harness", "lag_p99_ms"), "x", "manifest.json: harness.lag_p99_ms: 'x' is not what"),
        (("harness", "writer_lag_max_ms"), "x", "manifest.json: harness.writer_lag_max_s: 'x'"),
        (("resumptions",), "x", "manifest.json: resumptions: 'x' is not what"),
        (("resumptions",), [{"clock_s": "x"}], "manifest.json: resumptions[0]: at is missing"),
        (("repeats",), -3, "manifest.json: repeats: -3 is not what"),
        (("repeats",), 10**9, "manifest.json: repeats: 1000000000 is not what"),
    ],
)
def test_a_damaged_manifest_is_told_with_its_field(
    path: tuple[Any, ...],
    new: Any,
    told: str,
    complete: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    manifest = json.loads((complete / "manifest.json").read_text()) | {"status": "running"}
    run = as_if(complete, tmp_path, **changed(manifest, path, new))
    assert run_app(["run", "--resume", str(run)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line


def damage(run: Path, change: Callable[[list[str]], list[str]]) -> None:
    rows = run / "requests.jsonl"
    rows.write_text("".join(change(rows.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (r'"sent_s":[^,]*', '"sent_s":"x"', "record 1: sent_s: Expected"),
        (r'"user":[^,]*', '"user":"x"', "record 1: user: Expected"),
        (r'"turn":[^,]*', f'"turn":{"9" * 99}', "record 1: turn: Expected"),
        (r'"started_at_s":[^,]*', '"started_at_s":NaN', "record 1: started_at_s: Expected"),
        (
            r'"conversation_id":"[^"]*',
            '"conversation_id":"x',
            "requests.jsonl: a record is of the conversation 'x'",
        ),
        (r'"user":[^,]*', '"user":999', "requests.jsonl: a record is of probe-999, who is not in"),
        (r'"end_s":[^,]*', '"end_s":1e18', "ends at 1e+18 s: no run lasts so long"),
    ],
)
def test_a_damaged_record_is_told(
    old: str,
    new: str,
    told: str,
    complete: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = as_if(complete, tmp_path, config=longer(complete))
    damage(run, lambda lines: [re.sub(old, new, lines[0], count=1), *lines[1:]])
    assert run_app(["run", "--resume", str(run)]) == 2
    assert told in capsys.readouterr().err


def longer(complete: Path) -> Any:
    config = json.loads((complete / "manifest.json").read_text())["config"]
    return {**config, "max_requests": 3}


def test_a_record_that_stands_twice_is_counted_once(complete: Path, tmp_path: Path) -> None:
    run = as_if(complete, tmp_path)
    damage(run, lambda lines: [*lines, lines[0]])
    ran = resumed(run, "--json")
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert summary["requests"] == 2
    assert any("1 records stood twice" in line for line in summary["warnings"])


@pytest.mark.parametrize("name", ["requests.jsonl", "tokens.bin", "manifest.json", "server.log"])
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_a_files_place(
    name: str,
    make: Callable[[Path], None],
    complete: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A pipe would be read until somebody writes into it."""
    run = as_if(complete, tmp_path)
    (run / name).unlink()
    make(run / name)
    assert run_app(["run", "--resume", str(run)]) == 2
    assert f"{run / name} is no file, which a run would have" in capsys.readouterr().err


def test_a_manifest_of_an_older_version(complete: Path, tmp_path: Path) -> None:
    run = as_if(complete, tmp_path, config={"target": {}, "crowd": {"name": "x"}})
    assert "an older version wrote it" in refused(run)


def test_a_run_that_still_goes_on(tmp_path: Path) -> None:
    async def both() -> str:
        running = await Running.start("run", "--duration", "60s", out=tmp_path)
        run = await running.until_rows(2)
        second = await Running.start("run", "--resume", str(run), out=None)
        ran = await second.ended()
        running.process.send_signal(signal.SIGINT)
        await running.process.communicate()
        assert ran.code == 2
        return ran.err

    assert "is still being written by another process" in asyncio.run(both())


async def test_headers_must_be_given_again(crowd: str, tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("--header", "X-Key: planted-value")
        run = await stopped(server.url, crowd, tmp_path / "out", signal.SIGINT, *words)
        ran = await resuming(run)
        assert ran.code == 2
        assert "give it again: --header 'X-Key: …'" in ran.err
        ran = await resuming(run, server.url, *words)
    assert ran.code == 0, ran.err
    sent = [request for request in server.requests if b"/chat/" in request[:80]]
    assert all(b"X-Key: planted-value" in request for request in sent)


async def test_two_signals_end_it_at_once_and_say_how_to_go_on(crowd: str, tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, "--crowd", crowd, "--duration", "60s")
        running = await Running.start(*words, out=tmp_path / "out")
        run = await running.until_rows(6)
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        ran = await running.ended(within_s=20)
    assert ran.code == 4, ran.err
    assert f"headroom-bench run --resume {run}" in ran.err
    assert read_manifest(run)["status"] == "interrupted"


async def test_two_signals_in_a_repeat_say_how_the_series_goes_on(tmp_path: Path) -> None:
    plain = ("--users", "2", "--prompt-tokens", "20", "--output-tokens", "2", "--duration", "60s")
    async with raw_server(*ANSWER) as server:
        running = await Running.start("run", server.url, *plain, "--repeat", "2", out=tmp_path)
        await running.until_rows(6)
        running.process.send_signal(signal.SIGINT)
        running.process.send_signal(signal.SIGTERM)
        ran = await running.ended(within_s=20)
    assert ran.code == 4, ran.err
    assert ran.err.rstrip().endswith(f"headroom-bench run --resume {ran.run}")


async def test_another_model_is_another_target(crowd: str, tmp_path: Path) -> None:
    async with raw_server(*ANSWER) as server:
        run = await stopped(server.url, crowd, tmp_path / "out", signal.SIGINT)
        manifest = read_manifest(run)
        manifest["target_facts"]["model"] = "the-former"
        (run / "manifest.json").write_text(json.dumps(manifest))
        listed = b'{"data": [{"id": "the-latter"}]}'
        server.script = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(listed) + listed]
        ran = await resuming(run)
    assert ran.code == 2
    assert "another target" in ran.err


# --- repeats ------------------------------------------------------------------------------------


def prompts(requests: list[bytes]) -> list[str]:
    """Of the crowd's; those before it, which count tokens, want one token."""
    bodies = [json.loads(r.partition(b"\r\n\r\n")[2]) for r in requests if b"/chat/" in r[:80]]
    return [body["messages"][-1]["content"] for body in bodies if body["max_tokens"] > 1]


async def test_repeats_have_new_text_and_one_summary(tmp_path: Path) -> None:
    plain = ("--users", "2", "--prompt-tokens", "30", "--output-tokens", "2", "--requests", "8")
    async with raw_server(*ANSWER) as server:
        words = ("run", server.url, *plain, "--repeat", "3", "--json")
        ran = await (await Running.start(*words, out=tmp_path)).ended()
    assert ran.code == 0, ran.err
    summary = json.loads(ran.out)
    assert summary == ran.json("summary.json")
    assert sorted(path.name for path in ran.run.iterdir()) == [
        "manifest.json", "repeat-1", "repeat-2", "repeat-3", "summary.json",
    ]  # fmt: skip
    runs = [ran.run / f"repeat-{number}" for number in (1, 2, 3)]
    assert all(ids(run).__len__() == 8 for run in runs)
    assert {r.run_id for run in runs for r in read_requests(run)} == {
        f"{ran.run.name}/{run.name}" for run in runs
    }
    assert summary["requests"] == 24
    # A busy machine may have been too late to measure some.
    valid = [record for run in runs for record in read_requests(run) if record.valid]
    assert summary["by_persona"]["probe"]["turns"] == len(valid) > 12
    assert summary["repeats"]["done"] == 3
    spread = summary["repeats"]["between"]["ttft_p50"]
    assert len(spread["values"]) == spread["n"] == 3
    assert min(spread["values"]) <= spread["mean"] <= max(spread["values"])
    each = [json.loads((run / "summary.json").read_text()) for run in runs]
    assert summary["duration_s"] == pytest.approx(sum(one["duration_s"] for one in each))
    texts = prompts(server.requests)
    assert len(texts) == len(set(texts)) == 24
    assert all(text.split()[:4] != texts[0].split()[:4] for text in texts[1:])


async def test_repeats_are_taken_up_where_they_were(tmp_path: Path) -> None:
    plain = ("--users", "2", "--prompt-tokens", "30", "--output-tokens", "2", "--requests", "30")
    async with raw_server(*ANSWER) as server:
        running = await Running.start("run", server.url, *plain, "--repeat", "3", out=tmp_path)
        async with asyncio.timeout(30):
            while not list(tmp_path.glob("*/repeat-2/requests.jsonl")):
                await asyncio.sleep(0.02)
        running.process.send_signal(signal.SIGINT)
        ran = await running.ended()
        assert ran.code == 4
        parent = ran.run
        assert read_manifest(parent)["status"] == "interrupted"
        assert not (parent / "repeat-3").exists()
        first = (parent / "repeat-1" / "summary.json").stat().st_mtime_ns
        ran = await resuming(parent, "--json")
    assert ran.code == 0, ran.err
    assert (parent / "repeat-1" / "summary.json").stat().st_mtime_ns == first
    summary = json.loads(ran.out)
    assert summary["repeats"]["done"] == 3
    assert summary["requests"] == 90
    assert refused(parent).endswith("is complete: there is nothing to resume")
