"""Lines of JSON Lines files: what the quick way writes is what JSON's own encoder would."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from record_makers import record

from headroom_bench.records import REQUEST_COLUMNS, JournalRecord, JournalSample
from headroom_bench.redaction import hide
from headroom_bench.results.rows import line_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(), max_size=20) | st.sampled_from(
    ["null", '":null,"', "\ud83d", "\0"]
)


@dataclass
class Other:
    """A row that is no record."""

    row: dict[str, Any]

    def as_row(self) -> dict[str, Any]:
        return self.row


def read(line: bytes) -> list[tuple[str, Any, type]]:
    """Keys in their order, values and types; only strict JSON."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    row = json.loads(line, parse_constant=refuse)
    return [(key, value, type(value)) for key, value in row.items()]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("ttft_s", "end_s", "tpot_s", "network_s"), st.none() | FINITE),
            **dict.fromkeys(("prompt_tokens", "turn"), st.integers()),
            **dict.fromkeys(("error", "model", "suspect", "persona"), st.none() | TEXTS),
            "truncated": st.none() | st.booleans(),
        },
    )
)
def test_a_record_is_read_back_as_it_was(values: dict[str, Any]) -> None:
    written = record(**{"persona": "chat", **values})
    expected = [(key, value, type(value)) for key, value in written.as_row().items()]
    assert read(line_of(written)) == expected


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("column", REQUEST_COLUMNS)
def test_what_is_no_number_is_refused_in_every_column(column: str, wrong: float) -> None:
    written = record(error="a null and a null")
    setattr(written, column, wrong)
    with pytest.raises(ValueError, match="JSON compliant"):
        line_of(written)


@pytest.mark.parametrize("inside", [[float("nan")], {"a": float("inf")}, [None, float("nan")]])
def test_what_is_no_number_is_refused_inside_a_value(inside: object) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        line_of(Other({"deep": inside, "none": None}))


@pytest.mark.parametrize(
    "row",
    [
        JournalRecord("journal", 0, 1, 2, t_server_s=1.5),
        JournalSample("journal", 0, 1, 2, 3, tok_s=0.1),
        Other({"b": None, "a": [None, "null", {"c": 1e-7}], "ä": "ü"}),
    ],
)
def test_other_rows(row: Any) -> None:
    assert read(line_of(row)) == [(k, v, type(v)) for k, v in row.as_row().items()]


def test_numbers_of_numpy() -> None:
    expected = line_of(record(ttft_s=0.1))
    assert line_of(record(ttft_s=np.float64(0.1))) == expected
    with pytest.raises(TypeError):
        line_of(record(prompt_tokens=np.int64(3)))


def test_half_a_surrogate_pair_is_escaped() -> None:
    assert b'"error":"\\ud83d"' in line_of(record(error="\ud83d"))


@pytest.mark.parametrize("secret", ['a"b\\c\nd/é\x1b', "planted-key", "cached_tokens", "0.375"])
@pytest.mark.parametrize("around", ["{}", "bad key {}!", "\ud83d {}"])
def test_secrets_are_masked_whatever_json_escapes(secret: str, around: str) -> None:
    hide(secret)
    said = record(error=around.format(secret), ttft_s=0.375)
    masked = replace(said, error=around.format("***"))
    assert read(line_of(said)) == [(k, v, type(v)) for k, v in masked.as_row().items()]
