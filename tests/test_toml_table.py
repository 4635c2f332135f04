"""TOML tables: types, bounds, and the line on which a mistake stands."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom_bench.errors import UserError
from headroom_bench.shipped import shipped_dir
from headroom_bench.toml_table import Table, parse_toml, read_toml
from headroom_bench.units import MOST_S

TEXT = '''\
# a comment with name = "no"
top = 1
"quo ted" = """
name = "inside a text"
"""

[box]
size = 2
inner = {name = "x", deep = [
  {at = 1},
  {at = 2, "a.b" = 3},  # ] } in a comment
]}
far.away = 4

[[row]]
name = "first"
[row.more]
name = "below the first"

[[row]]
name = 'second # no comment'
[[row.part]]
name = "one"
[[row.part]]
size = [1,
  2]
when = 1979-05-27 07:32:00
'''


def table() -> Table:
    return parse_toml(TEXT, Path("x.toml"))


def where(at: Table, field: str) -> str:
    return str(at.error(field, "wrong"))


def test_every_field_is_told_at_its_own_line() -> None:
    root = table()
    box = root.table("box")
    assert box is not None
    inner = box.table("inner")
    assert inner is not None
    first, second = root.tables("row")
    more = first.table("more")
    assert more is not None
    one, two = second.tables("part")
    a, b = inner.tables("deep")
    assert where(root, "top") == "x.toml:2: top: wrong"
    assert where(root, "quo ted").startswith("x.toml:3:")
    assert where(box, "size") == "x.toml:8: box.size: wrong"
    assert where(inner, "name") == "x.toml:9: box.inner.name: wrong"
    assert where(a, "at") == "x.toml:10: box.inner.deep.at: wrong"
    assert where(b, "a.b").startswith("x.toml:11:")
    assert where(box, "far").startswith("x.toml:13:")
    assert where(first, "name") == "x.toml:16: row.name: wrong"
    assert where(more, "name").startswith("x.toml:18:")
    assert where(second, "name").startswith("x.toml:21:")
    assert where(one, "name").startswith("x.toml:23:")
    assert where(two, "size").startswith("x.toml:25:")
    assert where(two, "when").startswith("x.toml:27:")


def test_a_missing_field_is_told_at_its_table() -> None:
    root = table()
    _, second = root.tables("row")
    _, two = second.tables("part")
    assert where(two, "name").startswith("x.toml:24: row.part.name")
    assert where(root, "seed") == "x.toml: seed: wrong"


@pytest.mark.parametrize(
    "path", [*shipped_dir("personas").rglob("*.toml"), *shipped_dir("targets").glob("*.toml")],
    ids=lambda path: path.stem,
)  # fmt: skip
def test_lines_of_shipped_files(path: Path) -> None:
    """Every key is on the line that an error would name."""
    lines = path.read_text("utf-8").splitlines()

    def check(at: Table) -> None:
        for field, value in at.as_dict().items():
            number = int(where(at, field).split(":")[1])
            assert field in lines[number - 1]
            if isinstance(value, dict):
                check(at.table(field) or pytest.fail(field))
            if isinstance(value, list) and value and isinstance(value[0], dict):
                for item in at.tables(field):
                    check(item)

    check(read_toml(path))


words = st.text("ab\"'#=[]{}\\\n,. é", max_size=6)


def dump(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{dump(k)} = {dump(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",\n".join(map(dump, value)) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    return str(value)


@given(
    st.dictionaries(
        words,
        st.recursive(
            st.integers() | words,
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
            max_leaves=6,
        ),
        max_size=4,
    )
)
def test_any_valid_text_is_read(data: dict[str, object]) -> None:
    text = "\n# [ { '\n".join(f"{dump(key)} = {dump(value)}" for key, value in data.items())
    root = parse_toml(text, Path("x.toml"))
    assert root.as_dict() == data == tomllib.loads(text)
    lines = text.splitlines()
    for key in data:
        number = int(where(root, key).split(":")[1])
        assert lines[number - 1].startswith(f"{dump(key)} =")


@pytest.mark.parametrize(
    ("getter", "raw", "told"),
    [
        ("text", "3", "3 is not a text in quotes"),
        ("flag", "1", "1 is not true or false"),
        ("number", "true", "True is not a number"),
        ("number", '"3"', "'3' is not a number"),
        ("number", "-1", "-1 is out of range; it must be at least 0"),
        ("number", "inf", "inf is out of range; it must be 0 to 1,000,000,000,000"),
        ("number", "1" + 400 * "0", "1000*… is out of range; it must be 0 to 1,000,000,000,000"),
        (
            "whole",
            "1000000000001",
            "1000000000001 is out of range; it must be 0 to 1,000,000,000,000",
        ),
        ("number", "nan", "nan is out of range"),
        ("whole", "2.0", "2.0 is not a whole number"),
        ("whole", "true", "True is not a whole number"),
        ("whole", "-1", "-1 is out of range; it must be at least 0"),
        ("texts", "3", "3 is not a list of texts"),
        ("texts", "[1]", r"\[1\] is not a list of texts"),
        ("table", "[]", r"\[\] is not a table"),
    ],
)
def test_wrong_types_and_bounds(getter: str, raw: str, told: str) -> None:
    root = parse_toml(f"\nx = {raw}", Path("x.toml"))
    with pytest.raises(UserError, match=f"^x.toml:2: x: {told}"):
        getattr(root, getter)("x")


def test_bounds_are_told_as_a_range_where_there_are_two() -> None:
    root = parse_toml("x = 7", Path("x.toml"))
    with pytest.raises(UserError, match=r"7 is out of range; it must be 0\.5 to 1"):
        root.number("x", least=0.5, most=1)
    with pytest.raises(UserError, match="it must be 0 to 5"):
        root.whole("x", most=5)
    with pytest.raises(UserError, match=r"it must be 10 to 31,622,400$"):
        root.number("x", least=10, most=MOST_S)
    assert root.whole("x", most=7) == 7


def test_a_number_that_no_float_can_hold_is_told_not_thrown() -> None:
    root = parse_toml(f"x = {10**400}", Path("x.toml"))
    with pytest.raises(UserError, match=r"x: 1000*… is out of range"):
        root.whole("x")
    with pytest.raises(UserError, match="out of range"):
        root.number("x", most=5)


def test_defaults_and_missing() -> None:
    root = parse_toml("", Path("x.toml"))
    assert root.number("x", None) is None
    assert root.table("x") is None
    assert list(root.tables("x")) == []
    with pytest.raises(UserError, match="x: is missing; give one of a, b"):
        root.choice("x", ("a", "b"))
    assert "x" not in root


def test_a_field_that_nobody_asked_for() -> None:
    root = parse_toml("a = 1\nb = 2", Path("x.toml"))
    assert root.whole("a") == 1
    with pytest.raises(UserError, match=r"x\.toml:2: b: is not a field here; known are a"):
        root.done()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = 1\nb = [1,", "x.toml:2: is not valid TOML: "),
        ("a = 1\na = 2\n", "x.toml:2: is not valid TOML: Cannot overwrite a value"),
        ("a = \n", "x.toml:1: is not valid TOML: Invalid value"),
        ("[a\n", "x.toml:1: is not valid TOML: "),
    ],
)
def test_broken_syntax_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(UserError) as why:
        parse_toml(text, Path("x.toml"))
    assert str(why.value).startswith(told)


def test_hostile_texts_are_refused_in_one_line() -> None:
    for text, told in (("a = " + "[" * 5000, "nested too deep"), ("a = " + "9" * 5000, "digits")):
        with pytest.raises(UserError, match=f"is not valid TOML: .*{told}"):
            parse_toml(text, Path("x.toml"))


def test_unreadable_files(tmp_path: Path) -> None:
    for name, told in (("none.toml", "cannot be read: No such file"), (".", "cannot be read: ")):
        with pytest.raises(UserError, match=told):
            read_toml(tmp_path / name)
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe9"')
    with pytest.raises(UserError, match=r"latin\.toml: is not UTF-8 text"):
        read_toml(tmp_path / "latin.toml")
    (tmp_path / "huge.toml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(UserError, match=r"huge\.toml: is larger than 1,048,576 bytes$"):
        read_toml(tmp_path / "huge.toml")


def test_a_mark_that_some_editors_begin_a_file_with_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "marked.toml"
    file.write_bytes(b"\xef\xbb\xbfa = 1\n")
    assert read_toml(file).as_dict() == {"a": 1}


def test_overlaying_tells_where_each_field_came_from() -> None:
    base = parse_toml("a = 1\nb = 2\nd = {x = 1, y = 2}\nlist = [{n = 1}, {n = 2}]", Path("b.toml"))
    over = parse_toml("\n\n\n\n\nb = 3\nd = {y = 3}\nlist = [{m = 1}]", Path("o.toml"))
    both = base.overlaid(over, deep=["d"])
    assert both.as_dict() == {"a": 1, "b": 3, "d": {"x": 1, "y": 3}, "list": [{"m": 1}]}
    assert where(both, "a").startswith("b.toml:1: a:")
    assert where(both, "b").startswith("o.toml:6: b:")
    inner = both.table("d")
    assert inner is not None
    assert where(inner, "x").startswith("b.toml:3: d.x")
    assert where(inner, "y").startswith("o.toml:7: d.y")
    (item,) = both.tables("list")
    assert where(item, "n").startswith("o.toml:8: list.n")


def test_infinite_defaults_are_left_alone() -> None:
    assert parse_toml("", Path("x.toml")).number("x", math.inf) == math.inf
