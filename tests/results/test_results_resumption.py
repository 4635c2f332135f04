"""An unfinished folder made fit to go on with, wherever it was cut."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from record_makers import record

from headroom_bench.errors import UserError
from headroom_bench.records import RequestRecord
from headroom_bench.results import token_times
from headroom_bench.results.reading import read_requests
from headroom_bench.results.resumption import (
    all_set_aside,
    latest_s,
    mend,
    set_aside,
    talk_of,
    without_twins,
)
from headroom_bench.results.run_folder import RecordWriter, RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder.create(tmp_path, "mock", "demo", datetime(2026, 1, 2))


def write(folder: RunFolder, records: list[RequestRecord]) -> None:
    writer = RecordWriter(folder)
    for each in records:
        writer.append(each, [1.0, 2.0])
    writer.close()


def names(folder: RunFolder) -> list[str]:
    return [name for name, _ in token_times.read(folder.path / "tokens.bin")]


def test_cut_at_any_byte_both_files_can_be_appended_to(folder: RunFolder) -> None:
    records = [record(user) for user in range(3)]
    write(folder, records)
    requests, tokens = folder.path / "requests.jsonl", folder.path / "tokens.bin"
    lines, entries = requests.read_bytes(), tokens.read_bytes()
    step = max(1, len(lines) // 150)
    for cut in [*range(0, len(lines), step), len(lines) - 1, len(lines)]:
        requests.write_bytes(lines[:cut])
        tokens.write_bytes(entries[: min(cut, len(entries))])
        whole = mend(folder)
        assert whole == records[: len(whole)]
        assert len(whole) >= lines[:cut].count(b"\n")
        had = len(names(folder))
        write(folder, [record(9)])
        assert read_requests(folder.path) == [*whole, record(9)]
        assert names(folder)[-1] == record(9).request_id
        assert len(names(folder)) == had + 1


def test_an_empty_folder_has_nothing_to_mend(folder: RunFolder) -> None:
    assert mend(folder) == []
    assert latest_s([]) == 0.0


def test_unfinished_conversations_are_set_aside_not_lost(folder: RunFolder) -> None:
    records = [record(user) for user in range(3)]
    write(folder, records)
    assert set_aside(folder, records, {talk_of(records[1])}) == [records[0], records[2]]
    assert read_requests(folder.path) == [records[0], records[2]]
    assert names(folder) == [records[0].request_id, records[2].request_id]
    aside = folder.path / "requests.unfinished.jsonl"
    assert records[1].request_id in aside.read_text()
    write(folder, [records[1]])
    assert set_aside(folder, read_requests(folder.path), {talk_of(records[1])})
    assert aside.read_text().count(records[1].request_id) == 2, "appended"


def test_what_a_killed_resumption_set_aside_counts_once(folder: RunFolder) -> None:
    records = [record(user, turn=1, started_at_s=5.0 * user) for user in range(3)]
    write(folder, records)
    set_aside(folder, records, {talk_of(records[1]), talk_of(records[2])})
    write(folder, [record(1, turn=1, started_at_s=50.0)])  # asked again
    folder.append_rows("requests.unfinished.jsonl", records[1:])  # and by one that was killed
    kept = [*read_requests(folder.path), records[2]]
    aside = all_set_aside(folder, kept)
    assert [(each.started_at_s, each.user) for each in aside] == [(5.0, 1)]
    assert all_set_aside(folder, kept[:1]) != aside


def test_a_file_of_what_was_set_aside_is_mended_too(folder: RunFolder) -> None:
    records = [record(user) for user in range(2)]
    write(folder, records)
    set_aside(folder, records, {talk_of(records[1])})
    aside = folder.path / "requests.unfinished.jsonl"
    whole = aside.read_bytes()
    aside.write_bytes(whole + whole[:20])
    assert mend(folder) == records[:1]
    assert aside.read_bytes() == whole
    assert len(all_set_aside(folder, records[:1])) == 1


def test_what_is_no_run_s_file_is_left_alone(folder: RunFolder) -> None:
    (folder.path / "tokens.bin").write_bytes(b"something else, and longer than the mark")
    with pytest.raises(UserError, match=rf"{folder.path}/tokens\.bin is not .* move it away"):
        mend(folder)
    (folder.path / "tokens.bin").unlink()
    (folder.path / "requests.jsonl").write_bytes(b"damaged\n{}\n")
    with pytest.raises(UserError, match=r"requests\.jsonl:1: is not a JSON record"):
        mend(folder)


def test_one_writer_at_a_time(folder: RunFolder) -> None:
    folder.lock()
    other = RunFolder(folder.path)
    with pytest.raises(UserError, match="still being written by another process"):
        other.lock()
    folder.unlock()
    other.lock()
    other.unlock()


def test_half_a_surrogate_pair_of_a_server_is_kept(folder: RunFolder) -> None:
    write(folder, [record(error="bad \ud83d text")])
    assert read_requests(folder.path)[0].error == "bad \ud83d text"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_after_a_failure_nothing_is_written(folder: RunFolder) -> None:
    writer = RecordWriter(folder)
    good = writer._tokens
    writer._tokens = Path("/dev/full").open("ab")  # noqa: SIM115
    with pytest.raises(UserError, match="No space left"):
        writer.append(record(0), [1.0]).result(timeout=10)
    writer._tokens.close = lambda: None  # type: ignore[method-assign]
    writer._tokens = good  # the disk has room again: half an entry may lie before it
    with pytest.raises(UserError, match="No space left"):
        writer.append(record(1), [1.0]).result(timeout=10)
    assert writer.failed
    with pytest.raises(UserError, match="No space left"):
        writer.close()
    assert [r.user for r in read_requests(folder.path)] == [0]


def test_a_record_that_stands_twice_is_counted_once(folder: RunFolder) -> None:
    records = [record(user) for user in range(3)]
    write(folder, [*records, records[1]])
    assert without_twins(folder, mend(folder)) == records
    assert read_requests(folder.path) == records
    before = (folder.path / "requests.jsonl").stat().st_mtime_ns
    assert without_twins(folder, records) == records
    assert (folder.path / "requests.jsonl").stat().st_mtime_ns == before
