from __future__ import annotations

import itertools
import os
import random
import threading

import pytest
from journal_captures import PARALLEL, by_task, only_records, parse, whole_lines

from headroom_bench.errors import UserError
from headroom_bench.journal.sources import follow_file, parse_source
from headroom_bench.journal.tail import JournalTail

RAW = PARALLEL.read_bytes()
LINES = list(whole_lines(PARALLEL))
GUARD_S = 30.0
"""How long a test waits for what must come before it calls itself hung."""


@pytest.fixture
def stop():
    return threading.Event()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "server.log"
    path.touch()
    return path


def append(path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_parse_source(tmp_path):
    assert parse_source(str(tmp_path / "a.log")) == tmp_path / "a.log"
    assert parse_source(f"file:{tmp_path}/a.log") == tmp_path / "a.log"
    assert parse_source("./odd:name.log").name == "odd:name.log"


@pytest.mark.parametrize("text", ["journald:llama", "journald-user:x", "docker:y", "cmd:cat z"])
def test_other_kinds_of_source_are_refused(text):
    with pytest.raises(UserError, match="not supported yet") as caught:
        parse_source(text)
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", " ", "file:"])
def test_a_source_without_a_path_is_refused(text):
    with pytest.raises(UserError, match="names no file"):
        parse_source(text)


@pytest.mark.parametrize("name", ["absent.log", ""])
def test_a_missing_file_or_a_folder_is_told_at_once(tmp_path, stop, name):
    path = tmp_path / name
    for call in (
        lambda: follow_file(path, from_end=True, stop=stop),
        lambda: JournalTail(path, "test").start(),
    ):
        with pytest.raises(UserError) as caught:
            call()
        assert str(path) in str(caught.value)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path, stop):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="it is no file; write it to one"):
        follow_file(tmp_path / "pipe", from_end=True, stop=stop)


def test_a_line_without_end_is_kept_in_part_and_the_next_one_whole(log, stop):
    append(log, b"x" * 3_000_000 + b"\nnext\n")
    stop.set()
    first, second = follow_file(log, from_end=False, stop=stop)
    assert len(first) < 200_000
    assert second == "next"


def test_odd_bytes_and_line_ends(log):
    log.write_bytes(b"a\r\n\xff\xfe\n\nlast without end")
    assert list(whole_lines(log)) == ["a", "��", ""]


def test_from_the_end_skips_what_was_there(log, stop):
    append(log, b"old\n")
    lines = follow_file(log, from_end=True, stop=stop)
    append(log, b"new\n")
    stop.set()
    assert list(lines) == ["new"]


def test_stop_drains_and_drops_the_unfinished_line(log, stop):
    lines = follow_file(log, from_end=False, stop=stop)
    append(log, b"one\ntwo\nthr")
    assert next(lines) == "one"
    append(log, b"ee\nfour")
    stop.set()
    assert list(lines) == ["two", "three"]


@pytest.mark.parametrize("rest", [b"short\n", b"longer than all that was there before\n" * 9])
def test_truncated_and_written_anew(log, stop, rest):
    append(log, b"first\nsecond\nthird unfini")
    lines = follow_file(log, from_end=False, stop=stop)
    assert list(itertools.islice(lines, 2)) == ["first", "second"]
    log.write_bytes(rest)
    stop.set()
    assert list(lines) == rest.decode().splitlines()


def test_truncated_and_grown_again_when_followed_from_the_end(log, stop):
    append(log, b"first\n")
    lines = follow_file(log, from_end=True, stop=stop)
    log.write_bytes(b"another first\nand a second\n")
    stop.set()
    assert list(lines) == ["another first", "and a second"]


def test_replaced_by_another_file(log, stop):
    append(log, b"first\n")
    lines = follow_file(log, from_end=False, stop=stop)
    assert next(lines) == "first"
    append(log, b"last of the old\nunfini")
    log.rename(log.with_suffix(".1"))
    log.write_bytes(b"first of the new\n")
    stop.set()
    assert list(lines) == ["last of the old", "first of the new"]


def test_renamed_and_not_yet_replaced(log, stop):
    append(log, b"first\n")
    lines = follow_file(log, from_end=False, stop=stop)
    moved = log.rename(log.with_suffix(".1"))
    append(moved, b"second\n")
    stop.set()
    assert list(lines) == ["first", "second"]


@pytest.mark.parametrize("seed", range(4))
def test_a_file_written_in_pieces_from_another_thread(log, seed):
    rng = random.Random(seed)
    tail = JournalTail(log, "test", from_end=False, poll_s=0.001)
    tail.start()

    def write() -> None:
        rest = RAW
        with log.open("ab", buffering=0) as file:
            while rest:
                size = rng.randint(1, 400)
                file.write(rest[:size])
                rest = rest[size:]

    writer = threading.Thread(target=write)
    writer.start()
    writer.join()
    records, samples = tail.stop(expected=6, settle_s=GUARD_S)
    expected = only_records(parse(LINES))
    assert [r.as_row() | {"t_wall": None} for r in records] == [r.as_row() for r in expected]
    assert [s.gen_tokens for s in samples] == [100]
    assert all(record.t_wall is not None for record in records)


@pytest.mark.parametrize("replace", [False, True])
def test_a_restart_raises_the_instance(log, replace):
    tail = JournalTail(log, "test", from_end=False, poll_s=0.001)
    tail.start()
    append(log, RAW)
    with tail._changed:
        assert tail._changed.wait_for(lambda: len(tail._records) == 9, timeout=GUARD_S)
    # The same server again, faster: other bytes in the same places.
    again = RAW.replace(b"0.", b"1.", 1).replace(b"build_info: b0", b"build_info: b1")
    if replace:
        fresh = log.with_suffix(".new")
        fresh.write_bytes(again)
        os.replace(fresh, log)  # noqa: PTH105
    else:
        log.write_bytes(again[: len(again) // 2])
    records, _ = tail.stop(expected=12 if replace else 9, settle_s=GUARD_S)
    assert [r.instance for r in records[:9]] == [0] * 9
    assert {r.instance for r in records[9:]} == {1}
    assert by_task(records[9:])[2].gen_tokens == 60


def test_what_was_told_before_a_file_became_unreadable_stays(log):
    tail = JournalTail(log, "test", from_end=False, poll_s=0.001)
    tail.start()
    append(log, b"\n".join(line.encode() for line in LINES[:14]) + b"\n")
    log.rename(log.with_suffix(".1"))
    log.mkdir()
    records, _ = tail.stop(settle_s=GUARD_S)
    assert {(r.task, r.outcome) for r in records} == {(0, "partial"), (2, "partial")}
    assert isinstance(tail.failure, UserError)
    assert "server.log" in str(tail.failure)


def test_open_tasks_come_out_partial_at_stop(log):
    tail = JournalTail(log, "test", from_end=False)
    append(log, b"\n".join(line.encode() for line in LINES[:14]) + b"\n")
    tail.start()
    records, _ = tail.stop(settle_s=0)
    assert {(r.task, r.outcome) for r in records} == {(0, "partial"), (2, "partial")}


def test_a_tail_is_started_once_and_before_it_is_stopped(log):
    tail = JournalTail(log, "test")
    with pytest.raises(RuntimeError):
        tail.stop()
    tail.start()
    with pytest.raises(RuntimeError):
        tail.start()
    assert tail.stop(settle_s=0) == ([], [])
