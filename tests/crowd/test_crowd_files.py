"""Persona and crowd files: the shipped ones hold, and mistakes are told where they stand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from crowd_people import ASK, CROWDS, PERSONAS, RESULT, SYSTEM, crowd, fixed, persona

from headroom_bench.crowd.crowd import Crowd, crowd_of, load_crowd, plain_crowd
from headroom_bench.crowd.draws import Distribution
from headroom_bench.crowd.persona import load_persona, probe_persona, read_persona
from headroom_bench.errors import UserError
from headroom_bench.toml_table import parse_toml

GOOD = """\
name = "mine"
output = {fixed = 20}
think_s = {uniform = [1, 2]}

[[segments]]
name = "system"
each = "conversation"
tokens = {fixed = 10}

[[segments]]
name = "ask"
each = "turn"
tokens = {p50 = 5, p90 = 9}

[device]
buffer_tokens = 2

[target]
metric = "ttfv"
limit_s = 2.0
"""


def told(path: Path, text: str | bytes) -> str:
    """The error that a persona file of this text gives, without its folder."""
    file = path / "mine.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError) as why:
        load_persona(str(file))
    return str(why.value).removeprefix(f"{path}/")


@pytest.mark.parametrize("name", PERSONAS)
def test_shipped_personas_hold(name: str) -> None:
    one = load_persona(name)
    assert one.name == name
    assert one.summary
    assert one.target is not None
    assert math.isfinite(one.largest_context)
    assert one.typical_first_context < one.largest_context


@pytest.mark.parametrize("name", CROWDS)
def test_shipped_crowds_hold(name: str) -> None:
    assert load_crowd(name).name == name
    assert load_crowd(name).users()


def test_defaults() -> None:
    one = read_persona(parse_toml(GOOD, Path("mine.toml")))
    assert one.turns == one.rounds == Distribution.fixed(1)
    assert one.group == "mine"
    assert one.patience_s is None
    assert one.target is not None
    assert one.target.share == 0.95
    assert [plan.role for plan in one.segments] == ["user", "user"]


@pytest.mark.parametrize(
    "change",
    [
        ("{fixed = 20}", "20.0"),
        ("{fixed = 20}", "{uniform = [1.0, 3.0]}"),
        ("{fixed = 20}", "{p50 = 2.5, p90 = 7.2}"),
        ("[1, 2]", "[0.5, 2.5]}\ntool_wait_s = {fixed = 0.1"),
        ("think_s", "reasoning = 0\nthink_s"),
    ],
)
def test_counts_are_whole_and_percentiles_and_pauses_need_not_be(change: tuple[str, str]) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    assert read_persona(parse_toml(text, Path("mine.toml"))).name == "mine"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("output =", "outptu ="), "mine.toml: output: is missing"),
        (("think_s", "thnik_s"), "mine.toml:3: thnik_s: is not a field here; known are device"),
        (('name = "mine"', "name = 7"), "mine.toml:1: name: 7 is not a text in quotes"),
        (('name = "mine"', 'name = "a/b"'), "mine.toml:1: name: 'a/b' must not be empty or hold"),
        (("{fixed = 20}", "{fixed = -2}"), "mine.toml:2: output: -2 is not a number from 1"),
        (("{fixed = 20}", "0"), "mine.toml:2: output: 0 is not a number from 1"),
        (("{p50 = 5, p90 = 9}", "0"), "mine.toml:13: segments.tokens: 0 is not a number from 1"),
        (("think_s", "turns = 0\nthink_s"), "mine.toml:3: turns: 0 is not a number from 1"),
        (("think_s", "rounds = 0.5\nthink_s"), "mine.toml:3: rounds: 0.5 is not a number from 1"),
        (("think_s", "turns = {fixed = 1.5}\nthink_s"), "mine.toml:3: turns: 1.5 is not a whole"),
        (("think_s", "rounds = 2.5\nthink_s"), "mine.toml:3: rounds: 2.5 is not a whole number, a"),
        (("{fixed = 20}", "{uniform = [1, 2.5]}"), "mine.toml:2: output: 2.5 is not a whole numb"),
        (("{fixed = 20}", "{uniform = [1.2, 1.4]}"), "mine.toml:2: output: 1.2 is not a whole nu"),
        (("think_s", "reasoning = 0.5\nthink_s"), "mine.toml:3: reasoning: 0.5 is not a whole n"),
        (("{p50 = 5, p90 = 9}", "5.5"), "mine.toml:13: segments.tokens: 5.5 is not a whole number"),
        (("[1, 2]", "[1, 2]}\ntool_output = {fixed = 3.5"), "mine.toml:4: tool_output: 3.5 is not"),
        (("[1, 2]", "[1, 2]}\ntool_output = {uniform = [0, 2]"), "mine.toml:4: tool_output: 0 is"),
        (("think_s", 'link = ""\nthink_s'), "mine.toml:3: link: is empty; leave it out where"),
        (('"mine"', '"mi\\u001bne"'), "mine.toml:1: name: holds '\\x1b', which no terminal can"),
        (('"mine"', '"mi\\u202ene"'), "mine.toml:1: name: holds '\\u202e', which no terminal can"),
        (("[1, 2]", "[2, 1]"), "mine.toml:3: think_s: uniform from 2 to 1 runs backwards"),
        (('"turn"', '"trun"'), "mine.toml:12: segments.each: 'trun' is not one of conversation,"),
        (('"turn"', '"round"'), 'mine.toml:5: segments: needs at least one with each = "turn"'),
        (("{p50 = 5, p90 = 9}", "true"), "mine.toml:13: segments.tokens: True is not a distribu"),
        (("tokens = {p50 = 5, p90 = 9}", ""), "mine.toml:10: segments.tokens: is missing; give"),
        (("buffer_tokens = 2", "buffer_tokens = 0"), "mine.toml:16: device.buffer_tokens: 0 is"),
        (("buffer_tokens = 2", "buffer = 2"), "mine.toml:16: device.buffer: is not a field here"),
        (("2.0", "inf"), "mine.toml:20: target.limit_s: inf is out of range; it must be 0.001"),
        (("2.0", "nan"), "mine.toml:20: target.limit_s: nan is out of range"),
        (("2.0", '"2 s"'), "mine.toml:20: target.limit_s: '2 s' is not a number"),
        (("2.0", "2.0\nshare = 95"), "mine.toml:21: target.share: 95 is out of range; it must"),
        (("2.0", "2.0\nshare = true"), "mine.toml:21: target.share: True is not a number"),
        (("metric", "# metric"), "mine.toml:18: target.metric: is missing; give one of ttft, ttfv"),
        (('name = "ask"', 'name = "system"'), "mine.toml:5: segments: two of them are named 'sys"),
        (("[device]", "[device"), "mine.toml:15: is not valid TOML: Expected ']'"),
        (("limit_s = 2.0\n", 'limit_s = "2'), "mine.toml:20: is not valid TOML: "),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_line_and_field(
    tmp_path: Path, change: tuple[str, str], error: str
) -> None:
    text = GOOD.replace(*change)
    assert text != GOOD
    assert told(tmp_path, text).startswith(error)


def test_a_file_that_is_not_utf_8(tmp_path: Path) -> None:
    assert told(tmp_path, GOOD.encode() + b"# \xff") == "mine.toml: is not UTF-8 text"


@pytest.mark.parametrize(
    ("extras", "error"),
    [
        ('{name = "t", tokens = 1, output = 1}, {name = "t", tokens = 1, output = 1}', "two of"),
        ('{name = "a/b", tokens = 1, output = 1}', "extras.name: 'a/b' must not"),
        ('{name = "t", tokens = 1}', "extras.output: is missing"),
        ('{name = "t", tokens = 1, output = 1.5}', "extras.output: 1.5 is not a whole number"),
        ("3", "extras: 3 is not a table headed [[extras]]"),
    ],
)
def test_extras_that_would_spoil_request_ids(tmp_path: Path, extras: str, error: str) -> None:
    assert error in told(tmp_path, f"extras = [{extras}]\n{GOOD}")


def test_no_segments_at_all(tmp_path: Path) -> None:
    assert told(tmp_path, "output = 3") == (
        'mine.toml: segments: needs at least one with each = "turn": what the person asks'
    )


def test_an_unknown_persona_gets_the_nearest_names() -> None:
    with pytest.raises(UserError, match="unknown persona 'chat-reeder'; did you mean chat-reader"):
        load_persona("chat-reeder")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"persona file '.*none\.toml' does not exist"):
        load_persona(str(tmp_path / "none.toml"))


def test_a_folder_that_is_called_like_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load_persona(str(tmp_path))


# --- crowds -------------------------------------------------------------------------------------


def crowd_from(path: Path, text: str) -> Crowd:
    (path / "crowd.toml").write_text(text)
    return load_crowd(str(path / "crowd.toml"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("seed = 1", "crowd.toml: group: is missing; add a [[group]]"),
        ("seed = -1", "crowd.toml:1: seed: -1 is out of range"),
        ("group = 3", "crowd.toml:1: group: 3 is not tables headed [[group]]"),
        ('[[group]]\npersona = "chat-reader"', "crowd.toml:1: group.count: is missing"),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n\n[[group]]\npersona = "chat-reeder"\n'
            "count = 2",
            "crowd.toml:6: group.persona: unknown persona 'chat-reeder'; did you mean chat-reader",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n[[group]]\ncount = 0\npersona = "x"',
            "crowd.toml:5: group.count: 0 is out of range",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\nlnk = "wifi"',
            "crowd.toml:4: group.lnk: is not a field here; known are count, link, overrides",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n[[group]]\npersona = "chat-reader"\n'
            "count = 1\noverrides = {read_tok_s = 9}",
            "crowd.toml:1: group: two different personas are both named 'chat-reader'",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n[group.overrides]\nthink_s = "x"',
            "crowd.toml:5: think_s: 'x' is not a distribution",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n[group.overrides]\n'
            'target = {metric = "ttfv", limit_s = 0}',
            "crowd.toml:5: target.limit_s: 0 is out of range",
        ),
        (
            '[[group]]\npersona = "chat-reader"\ncount = 1\n[group.overrides]\nsegments = [\n'
            '  {name = "a", each = "turn", tokens = 1},\n  {name = "b", each = "turn"},\n]',
            "crowd.toml:7: segments.tokens: is missing",
        ),
    ],
)
def test_mistakes_in_a_crowd(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(UserError) as why:
        crowd_from(tmp_path, text)
    assert str(why.value).removeprefix(f"{tmp_path}/").startswith(error)


def test_a_mistake_in_a_persona_beside_the_crowd_is_told_there(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD.replace("{fixed = 20}", '"x"'))
    text = '[[group]]\npersona = "mine.toml"\ncount = 1\n[group.overrides]\nturns = 2'
    with pytest.raises(UserError, match=r"mine\.toml:2: output: 'x' is not a distribution"):
        crowd_from(tmp_path, text)


def test_overrides_replace_fields_and_merge_device_and_target(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    group = '[[group]]\npersona = "mine.toml"\ncount = 2\nlink = "wifi"\n[group.overrides]\n'
    text = 'name = "other"\noutput = 3\ntarget = {limit_s = 9}\ndevice = {whole = true}'
    one = crowd_from(tmp_path, group + text).groups[0].persona
    assert (one.name, one.link, one.output) == ("other", "wifi", Distribution.fixed(3))
    assert one.target is not None
    assert (one.target.limit_s, one.target.metric) == (9, "ttfv")
    assert (one.device.whole, one.device.buffer_tokens) == (True, 2)


def test_users_of_one_persona_are_numbered_across_groups() -> None:
    one, other = persona("a"), persona("b")
    people = crowd((one, 2), (other, 1), (one, 1)).users()
    assert [(p.persona.name, p.index) for p in people] == [("a", 0), ("a", 1), ("b", 0), ("a", 2)]
    assert crowd((one, 2), (one, 1)).counts() == {"a": 3}


def test_crowds_from_words(tmp_path: Path) -> None:
    small = crowd_of(["chat-reader:5", "ide-coder:1"], seed=3)
    assert small.counts() == {"chat-reader": 5, "ide-coder": 1}
    assert (small.name, small.seed) == ("chat-readerx5+ide-coderx1", 3)
    assert small.with_seed(None) is small
    assert small.with_seed(8).seed == 8
    for word in ("chat-reader", "chat-reader:0", "chat-reader:x", "chat-reader:²", ":3"):
        with pytest.raises(UserError):
            crowd_of([word], 1)


def test_two_files_with_one_name_are_no_crowd(tmp_path: Path) -> None:
    """Their users would share request ids, and one target would stand for both."""
    (tmp_path / "mine.toml").write_text(GOOD.replace('"mine"', '"chat-reader"'))
    with pytest.raises(UserError, match="two different personas are both named 'chat-reader'"):
        crowd_of(["chat-reader:1", f"{tmp_path / 'mine.toml'}:1"], 1)


def test_the_plain_crowd() -> None:
    probe = probe_persona(100, 20, 0.0)
    assert probe.force_length
    assert plain_crowd(probe, 4, 1).counts() == {"probe": 4}
    for wrong in ((0, 20), (100, 0)):
        with pytest.raises(UserError, match="from 1 to 16,777,216"):
            probe_persona(*wrong, 0.0)
    with pytest.raises(UserError, match="--users"):
        plain_crowd(probe, 0, 1)


# --- contexts -----------------------------------------------------------------------------------


def test_the_largest_context_is_everything_that_a_conversation_sends_again() -> None:
    one = persona(
        turns=Distribution("uniform", 1, 4, 4), rounds=fixed(3), segments=(SYSTEM, ASK, RESULT),
        output=fixed(50), reasoning=fixed(1000), tool_output=fixed(6),
    )  # fmt: skip
    assert one.largest_context == 100 + 4 * (40 + 50) + 4 * 2 * (6 + 25) + 1000
    assert one.typical_first_context == 100 + 25 + 50 + 1000


def test_an_unbounded_length_makes_an_unbounded_context() -> None:
    endless = Distribution("lognormal", math.log(50), 0.5)
    assert persona(output=endless).largest_context == math.inf
    assert math.isfinite(persona(tool_output=endless).largest_context)
