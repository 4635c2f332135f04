"""Hand-made lines for what no recording holds, and properties over the recorded ones."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_captures import PARALLEL, only_records, parse, whole_lines

from headroom_bench.journal.llamacpp import LlamaCppParser

LINES = list(whole_lines(PARALLEL))
ENTRIES = parse(LINES)
SLOT_OF_CANCEL = {153: 1, 198: 1, 203: -1}


def block(slot: int, task: int, clock: str = "", n: int = 3) -> list[str]:
    head = f"{clock}I slot print_timing: id {slot:2d} | task {task} | "
    return [
        f"{clock}I slot launch_slot_: id {slot:2d} | task {task} | processing task, is_child = 0",
        f"{head}prompt eval time =      10.00 ms /     5 tokens"
        " (    2.00 ms per token,   500.00 tokens per second)",
        f"{head}       eval time =      60.00 ms / {n:5d} tokens"
        " (   30.00 ms per token,    33.33 tokens per second)",
        f"{clock}I slot      release: id {slot:2d} | task {task} | "
        f"stop processing: n_tokens = {5 + n - 1}, truncated = 0",
    ]


def keys(lines: list[str]) -> list[tuple[int, int, str]]:
    return [(r.instance, r.task, r.outcome) for r in only_records(parse(lines))]


@pytest.mark.parametrize("text", ["nan", "-nan", "inf", "-inf", "-nan(ind)"])
def test_numbers_that_are_none(text):
    head = "slot print_timing: id  0 | task 1 | "
    (record,) = only_records(
        parse(
            [
                f"{head}prompt eval time = {text:>10} ms /     0 tokens"
                f" ({text:>8} ms per token, {text:>8} tokens per second)",
                f"{head}       eval time = {text:>10} ms /     0 tokens"
                f" ({text:>8} ms per token, {text:>8} tokens per second)",
                "slot      release: id  0 | task 1 | stop processing: n_tokens = 4, truncated = 0",
            ]
        )
    )
    assert (record.prompt_ms, record.eval_ms, record.rate_rule) == (None, None, None)
    assert (record.gen_tokens, record.outcome) == (0, "done")


def test_minutes_have_no_bound():
    (record,) = only_records(parse(block(0, 1, "807.46.387.263 ")))
    assert record.t_launch_s == pytest.approx(807 * 60 + 46.387263)


def test_text_of_a_prompt_is_not_believed():
    fakes = [f"> {line}" for line in block(0, 9)]
    fakes += [f"0.00.000.001 D srv  tokenize: prompt = {line}" for line in block(0, 9)]
    fakes += [f"{line} and more" for line in block(0, 9)]
    fakes += ["x srv          stop: cancel task, id_task = 1", "cancel task, id_task = 1"]
    real = block(0, 1)
    assert keys([*real[:2], *fakes, *real[2:]]) == [(0, 1, "done")]


def test_cancel_during_launch_makes_one_record():
    cancel = "W srv          stop: cancel task, id_task = 7"
    assert keys([cancel, *block(0, 7)]) == [(0, 7, "cancelled")]


def test_cancel_after_the_end_makes_none():
    cancel = "W srv          stop: cancel task, id_task = 7"
    assert keys([*block(0, 7), cancel, cancel]) == [(0, 7, "done")]


def test_cancel_of_a_task_whose_launch_was_not_seen():
    cancel = "W srv          stop: cancel task, id_task = 7"
    (record,) = only_records(parse([cancel, *block(2, 7)[1:]]))
    assert (record.slot, record.outcome) == (2, "cancelled")


def test_open_tasks_come_out_partial():
    lines = [*block(0, 1)[:3], *block(1, 2)[:1]]
    first, second = only_records(parse(lines))
    assert (first.outcome, first.gen_tokens, first.cached_tokens) == ("partial", 3, None)
    assert (second.outcome, second.gen_tokens) == ("partial", None)


def test_a_shifted_context_hides_the_cache():
    lines = block(0, 1, n=100)
    lines[-1] = lines[-1].replace("n_tokens = 104", "n_tokens = 60")
    (record,) = only_records(parse(lines))
    assert record.cached_tokens is None


def test_wall_time_is_kept_where_the_source_tells_it():
    assert only_records(parse(block(0, 1), t_wall=1e9))[0].t_wall == 1e9


@pytest.mark.parametrize(
    ("first", "between", "second"),
    [
        # Only the server's first lines tell.
        (block(0, 5), ["I srv  llama_server: initializing ..."], block(0, 6)),
        (block(0, 5), ["I srv          init: build_info: b1-x"], block(0, 6)),
        # Only the task id tells.
        (block(0, 5), [], block(0, 5)),
        # Clock and id together tell.
        (block(0, 5, "0.09.000.000 "), [], block(0, 1, "0.02.000.000 ")),
    ],
)
def test_signs_of_a_new_life(first, between, second):
    task = only_records(parse(second))[0].task
    assert keys([*first, *between, *second]) == [(0, 5, "done"), (1, task, "done")]


def test_a_new_life_ends_what_was_open():
    assert keys([*block(0, 0)[:2], *block(0, 0)]) == [(0, 0, "partial"), (1, 0, "done")]


@pytest.mark.parametrize(
    "second",
    [
        block(0, 4, "0.09.000.000 "),  # ids need not rise
        block(0, 4, "0.08.500.000 "),  # threads stamp a little out of order
        block(0, 9, "0.02.000.000 "),
    ],
)
def test_one_sign_alone_is_no_new_life(second):
    records = only_records(parse([*block(0, 5, "0.09.000.000 "), *second]))
    assert [record.instance for record in records] == [0, 0]


@pytest.mark.parametrize(
    ("numbers", "rule"),
    [
        ((8830.67, 60, 147.18, 6.79), "n"),
        ((8347.52, 60, 141.48, 7.07), "n-1"),
        ((3532.91, 334, 10.61, 94.26), "n-1"),
        ((20000.00, 2000, 10.01, 99.95), "n-1"),  # the ms alone would fit both
        ((20000.00, 2000, 10.00, 100.00), "n"),
        ((100.00, 10, 55.55, 1.00), None),
        ((0.00, 1, 0.00, 1000000.00), None),
    ],
)
def test_rate_rule(numbers, rule):
    ms, n, per_token, rate = numbers
    lines = block(0, 1)
    lines[2] = (
        f"I slot print_timing: id  0 | task 1 |        eval time = {ms:10.2f} ms / {n:5d} tokens"
        f" ({per_token:8.2f} ms per token, {rate:8.2f} tokens per second)"
    )
    assert only_records(parse(lines))[0].rate_rule == rule


# ---- properties


def timeless(entries):
    """Comparable whatever the order and the clock."""
    blank = [
        dataclasses.replace(entry, t_server_s=None)
        if not hasattr(entry, "t_launch_s")
        else dataclasses.replace(entry, t_server_s=None, t_launch_s=None)
        for entry in entries
    ]
    return sorted(map(repr, blank))


def bare(line: str) -> str:
    return re.sub(r"^[0-9.]+ ", "", line)


def lines_by_slot() -> list[list[str]]:
    lanes: dict[int, list[str]] = {}
    for line in LINES:
        if match := re.search(r"slot +\S+: id +(\d+) \| task \d", line):
            lanes.setdefault(int(match[1]), []).append(bare(line))
        elif match := re.search(r"cancel task, id_task = (\d+)", line):
            lanes.setdefault(SLOT_OF_CANCEL[int(match[1])], []).append(bare(line))
    return list(lanes.values())


LANES = lines_by_slot()


@settings(max_examples=60, deadline=None)
@given(st.permutations([i for i, lane in enumerate(LANES) for _ in lane]), st.booleans())
def test_any_interleaving_of_the_slots_gives_the_same(order, with_clock):
    feeds = [iter(lane) for lane in LANES]
    lines = [next(feeds[i]) for i in order]
    if with_clock:
        lines = [f"0.{i:02d}.000.000 {line}" for i, line in enumerate(lines)]
    assert timeless(parse(lines)) == timeless(ENTRIES)


FOREIGN = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            '[GIN] 2026/11/30 - 16:22:48 | 200 |  1.2s | 127.0.0.1 | POST "/api/chat"',
            'time=2026-11-30T16:22:48Z level=WARN source=server.go:1 msg="slot 0 | task 2"',
            "\trepeat_last_n = 64, repeat_penalty = 1.000",
            "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1",
            "srv  update_slots: all slots are idle",
            "[43087] 0.01.192.409 I slot launch_slot_: id  1 | task 0 | processing task",
        ]
    ),
    st.builds(lambda line, cut: bare(line)[3 + cut :], st.sampled_from(LINES), st.integers(0, 60)),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(LINES)), FOREIGN), max_size=30))
def test_foreign_lines_change_nothing(insertions):
    lines = list(LINES)
    for at, text in insertions:
        lines.insert(at, text)
    assert parse(lines) == ENTRIES


PIECES = st.sampled_from(
    [
        "slot",
        "srv",
        "I ",
        "0.00.000.001 ",
        "print_timing: ",
        "launch_slot_: ",
        "id  0 ",
        " task 1 ",
        "  ",
        " ",
        "prompt eval time = ",
        "eval time = ",
        "1e9",
        "nan",
        "-nan",
        "99999999999",
        " ms / ",
        " tokens (",
        "processing task, is_child = 0",
        "stop processing: n_tokens = ",
        ", truncated = 0",
        "cancel task, id_task = ",
        "\x1b[0m",
        "\r",
        "\n",
        "٣",
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.one_of(st.text(max_size=60), st.lists(PIECES, max_size=12).map("".join))),
)
def test_no_text_ever_raises(lines):
    parse(lines)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_file_cut_anywhere_gives_a_beginning_of_the_entries(tmp_path_factory, data):
    raw = PARALLEL.read_bytes()
    path = tmp_path_factory.getbasetemp() / "cut.log"
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)))])
    parser = LlamaCppParser("test")
    entries = [entry for line in whole_lines(path) for entry in parser.feed(line)]
    assert entries == ENTRIES[: len(entries)]
    assert all(record.outcome != "done" for record in only_records(parser.close()))
