"""A run on disk: whatever cuts it short, every complete row is readable."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_makers import record

from headroom_bench.errors import UserError
from headroom_bench.records import REQUEST_COLUMNS, RequestRecord
from headroom_bench.results import token_times
from headroom_bench.results.reading import read_manifest, read_requests, read_rows
from headroom_bench.results.rows import compact_json
from headroom_bench.results.run_folder import RecordWriter, RunFolder

NOW = datetime(2026, 1, 2, 3, 4, 5)

JSON = (
    st.none() | st.booleans() | st.floats() | st.integers(-(10**30), 10**30) | st.text(max_size=9)
    | st.lists(st.integers(), max_size=2) | st.just(10**400)
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path / "results", "mock", "demo", NOW)


# --- the folder ---------------------------------------------------------------------------------


def test_names_tell_time_target_and_crowd(tmp_path: Path) -> None:
    made = RunFolder.create(tmp_path / "a" / "b", "http://x:80/v1", "ä crowd/..", NOW)
    assert made.run_id == "20260102-030405-http-x-80-v1-crowd"
    assert made.path.is_dir()


def test_a_second_run_in_the_same_second_gets_a_folder_of_its_own(folder: RunFolder) -> None:
    again = RunFolder.create(folder.path.parent, "mock", "demo", NOW)
    assert again.run_id == f"{folder.run_id}-2"


def test_a_file_where_the_folder_should_go(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"results folder .* cannot be made: Not a directory"):
        RunFolder.create(tmp_path / "file", "mock", "demo", NOW)


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="needs a place nobody can write to")
def test_a_place_that_cannot_be_written_to() -> None:
    with pytest.raises(UserError, match=r"results folder .* cannot be made: "):
        RunFolder.create(Path("/proc/results"), "mock", "demo", NOW)


def test_json_is_replaced_as_a_whole(folder: RunFolder) -> None:
    folder.write_manifest({"status": "running"})
    folder.write_manifest({"status": "complete"})
    assert read_manifest(folder.path) == {"schema_version": 1, "status": "complete"}
    with pytest.raises(ValueError, match="JSON compliant"):
        folder.write_manifest({"status": float("nan")})
    assert read_manifest(folder.path)["status"] == "complete"


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run: it holds no manifest"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        read_manifest(tmp_path)


# --- cut short ----------------------------------------------------------------------------------


def written(folder: RunFolder, count: int = 3) -> None:
    writer = RecordWriter(folder)
    for user in range(count):
        writer.append(record(user, error="größer 🙂\n"), [1.0 + user, 2.5, float(user) * 7])
    writer.close()


def test_what_was_written_is_read_back(folder: RunFolder) -> None:
    written(folder)
    assert read_requests(folder.path) == [record(user, error="größer 🙂\n") for user in range(3)]
    times = dict(token_times.read(folder.path / "tokens.bin"))
    assert {name: list(found) for name, found in times.items()} == {
        f"chat-{user}/c0/t0/r0": [1.0 + user, 2.5, user * 7.0] for user in range(3)
    }


def test_requests_cut_at_any_byte_keep_their_complete_rows(folder: RunFolder) -> None:
    written(folder)
    path = folder.path / "requests.jsonl"
    data = path.read_bytes()
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        whole = data[:cut].count(b"\n")
        complete = whole + (data[cut : cut + 1] == b"\n")  # all but its line end
        assert len(list(read_rows(path))) == complete


def test_token_times_cut_at_any_byte_keep_their_complete_entries(folder: RunFolder) -> None:
    written(folder)
    path = folder.path / "tokens.bin"
    data = path.read_bytes()
    ends, at = [], len(token_times.MAGIC)
    for user in range(3):
        at += len(token_times.encode(f"chat-{user}/c0/t0/r0", [0.0, 0.0, 0.0]))
        ends.append(at)
    assert ends[-1] == len(data)
    for cut in range(len(data) + 1):
        path.write_bytes(data[:cut])
        entries = list(token_times.read(path))
        assert len(entries) == sum(end <= cut for end in ends)
        assert all(times.shape == (3,) for _, times in entries)


def test_a_broken_line_in_the_middle_is_not_passed_over(folder: RunFolder) -> None:
    path = folder.path / "requests.jsonl"
    for broken in ("{", "3", "null"):
        path.write_text(f"{compact_json(record().as_row())}\n{broken}\n{{}}\n")
        with pytest.raises(UserError, match=r"requests\.jsonl:2: is not a JSON record"):
            read_requests(folder.path)


def test_what_other_programs_write_into_rows_is_read(folder: RunFolder) -> None:
    path = folder.path / "requests.jsonl"
    path.write_text(
        '{"a": "\\ud83d", "b": [1e-07, 123456789012345678901]}\n{"a": [NaN, -Infinity]}\n'
    )
    first, second = read_rows(path)
    assert first == {"a": "\ud83d", "b": [1e-7, 123456789012345678901.0]}
    assert second == {"a": [None, None]}, "what is no number is not known"


def test_rows_of_another_kind_or_version(folder: RunFolder) -> None:
    path = folder.path / "requests.jsonl"
    path.write_text(json.dumps({**record().as_row(), "of_a_later_version": 1}) + "\n")
    assert read_requests(folder.path) == [record()]
    path.write_text('{"task": 3}\n')
    with pytest.raises(UserError, match=r"record 1: .*missing required field"):
        read_requests(folder.path)
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_requests(folder.path, "predicted")


@given(st.sampled_from(REQUEST_COLUMNS), JSON)
def test_whatever_stands_in_a_column_it_is_read_or_told(
    tmp_path_factory: pytest.TempPathFactory, column: str, value: object
) -> None:
    run = tmp_path_factory.getbasetemp()
    row = {**record().as_row(), column: value}
    (run / "requests.jsonl").write_text(json.dumps(row) + "\n")
    told: object
    try:
        (read,) = read_requests(run)
    except UserError as why:
        told = str(why).partition("record 1: ")[2].partition(":")[0]
    else:
        told = getattr(read, column)
    if isinstance(told, float) and isinstance(value, int):  # as near as a float comes
        value = float(value)
    unknown = isinstance(value, float) and not math.isfinite(value)
    beyond_floats = value == 10**400  # the whole line is none then
    assert told in ([""] if beyond_floats else [column, None if unknown else value])


def test_what_is_no_tokens_bin(tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(b"something else, and longer than the mark")
    with pytest.raises(UserError, match=r"not a tokens\.bin"):
        list(token_times.read(tmp_path / "tokens.bin"))
    with pytest.raises(UserError, match="cannot be read"):
        list(token_times.read(tmp_path / "none"))


_KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from record_makers import record
from headroom_bench.results.run_folder import RecordWriter, RunFolder
writer = RecordWriter(RunFolder(Path(sys.argv[1])))
for user in range(100000):
    writer.append(record(user), [1.0, 2.0]).result()
    print(user, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")
def test_a_kill_keeps_every_record_that_was_acknowledged(folder: RunFolder) -> None:
    command = [sys.executable, "-c", _KILLED, str(folder.path), str(Path(__file__).parents[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = -1
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged == 200:
                os.kill(process.pid, signal.SIGKILL)
    assert acknowledged >= 200
    ids = [r.request_id for r in read_requests(folder.path)]
    assert ids[: acknowledged + 1] == [f"chat-{n}/c0/t0/r0" for n in range(acknowledged + 1)]
    assert len(list(token_times.read(folder.path / "tokens.bin"))) >= acknowledged + 1


def test_rows_replace_a_file_as_a_whole(folder: RunFolder) -> None:
    """`requests.jsonl` is written once more at the end: whatever stops that, the old one stands."""
    folder.write_rows("requests.jsonl", [record(1), record(2)])
    before = (folder.path / "requests.jsonl").read_bytes()

    def torn() -> Iterator[RequestRecord]:
        yield record(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.write_rows("requests.jsonl", torn())
    assert (folder.path / "requests.jsonl").read_bytes() == before
    folder.write_rows("requests.jsonl", [record(3)])
    assert read_requests(folder.path) == [record(3)]


# --- a full disk --------------------------------------------------------------------------------

full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@full
def test_a_full_disk_is_told_to_whoever_waits_for_the_record(folder: RunFolder) -> None:
    (folder.path / "requests.jsonl").symlink_to("/dev/full")
    writer = RecordWriter(folder)
    lost = [writer.append(record(user), [1.0]) for user in range(3)]
    for done in lost:
        with pytest.raises(UserError, match="results cannot be written: No space left"):
            done.result(timeout=10)
    with pytest.raises(UserError, match="results cannot be written: No space left"):
        writer.close()


@full
def test_full_for_token_times_only(folder: RunFolder) -> None:
    writer = RecordWriter(folder)
    writer._tokens.close()
    writer._tokens = Path("/dev/full").open("ab")  # noqa: SIM115  (the writer closes it)
    with pytest.raises(UserError, match="No space left"):
        writer.append(record(), [1.0]).result(timeout=10)
    with pytest.raises(UserError, match="No space left"):
        writer.close()
    assert read_requests(folder.path) == [record()]


@full
def test_full_from_the_start(folder: RunFolder) -> None:
    (folder.path / "tokens.bin").symlink_to("/dev/full")
    with pytest.raises(UserError, match="results cannot be written: No space left"):
        RecordWriter(folder)


def test_a_folder_that_has_gone(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"requests\.jsonl cannot be written: No such file"):
        RecordWriter(RunFolder(tmp_path / "gone"))


def test_a_record_that_is_no_json_is_refused_where_it_arises(folder: RunFolder) -> None:
    writer = RecordWriter(folder)
    with pytest.raises(ValueError, match="JSON compliant"):
        writer.append(record(ttft_s=float("nan")), [])
    writer.append(record(), []).result(timeout=10)
    writer.close()
    assert len(read_requests(folder.path)) == 1


def test_a_writer_that_opens_an_old_folder_appends(folder: RunFolder) -> None:
    written(folder, 1)
    written(folder, 2)
    assert len(read_requests(folder.path)) == 3
    assert len(list(token_times.read(folder.path / "tokens.bin"))) == 3


CONTRACT = """\
run_id world request_id conversation_id persona user turn round target model started_at_s sent_s
first_byte_s ttft_s ttfv_s end_s e2e_s itl_mean_s itl_p50_s itl_p99_s itl_max_s tpot_s decode_tok_s
prompt_tokens cached_tokens completion_tokens reasoning_tokens visible_tokens stream_events
context_depth_tokens concurrent_at_start finish_reason ok error_kind error truncated tokens_source
server_prefill_s server_prefill_tok_s server_decode_s server_decode_tok_s server_queue_s
draft_tokens accepted_tokens network_s prompt_kind harness_lag_ms valid
connect_s headers_s first_token_s last_token_s
"""


def test_no_column_that_users_rely_on_is_gone() -> None:
    assert set(CONTRACT.split()) <= set(REQUEST_COLUMNS)
