"""Files cut short, foreign, contradictory or hostile: one clear line, soon, in little memory."""

from __future__ import annotations

import json
import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_files import Tensor, gguf_of, header_bytes, text, write_gguf
from hf_configs import CONFIGS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom_bench.catalog import find_model
from headroom_bench.errors import UserError

_MOST_BYTES = 24 << 20
_MOST_SECONDS = 3.0
_FUZZ = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

_TINY_METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 128,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 128,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c", "d"],
    "llama.attention.some_list": [1, 2],
}


def _tiny_tensors() -> list[Tensor]:
    found = [Tensor("token_embd.weight", (64, 32), "Q8_0"), Tensor("output_norm.weight", (64,))]
    for i in range(2):
        for name, shape in (
            ("attn_q", (64, 64)),
            ("attn_k", (64, 32)),
            ("attn_v", (64, 32)),
            ("attn_output", (64, 64)),
            ("ffn_up", (64, 128)),
            ("ffn_gate", (64, 128)),
            ("ffn_down", (128, 64)),
        ):
            found.append(Tensor(f"blk.{i}.{name}.weight", shape, "Q4_0"))
    return found


def _tiny(folder: Path) -> Path:
    return write_gguf(folder / "tiny.gguf", _TINY_METADATA, _tiny_tensors())


def _refusal(path: Path) -> str:
    """The one line that the file is refused with; nothing may be slow or large on the way."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        with pytest.raises(UserError) as caught:
            find_model(str(path))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.perf_counter() - began < _MOST_SECONDS
    assert peak < _MOST_BYTES
    told = str(caught.value)
    assert "\n" not in told
    assert len(told) < 400
    assert path.name in told
    return told


def _raw(folder: Path, data: bytes, hole: int = 0) -> Path:
    path = folder / "bad.gguf"
    path.write_bytes(data)
    os.truncate(path, len(data) + hole)
    return path


def _start(tensors: int, keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


def _array(kind: int, count: int) -> bytes:
    return _start(0, 1) + text("a.b") + struct.pack("<IIQ", 9, kind, count)


def _one_tensor(shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _start(1, 0) + text("t.weight") + dims + struct.pack("<IQ", kind, offset)


HUGE = 1 << 63
HOSTILE = {
    "empty": (b"", 0, "it is empty"),
    "foreign": (b"PK\x03\x04" + bytes(100), 0, "not a GGUF file"),
    "safetensors": (struct.pack("<Q", 90) + b'{"a":1}', 0, "not a GGUF file"),
    "only magic": (b"GGUF", 0, "cut short"),
    "version 1": (_start(0, 0, 1), 0, "version 1"),
    "big-endian": (_start(0, 0, 3 << 24), 0, "big-endian"),
    "2^63 tensors": (_start(HUGE, 0), 0, "no model has more than"),
    "2^64-1 keys": (_start(0, 2**64 - 1), 0, "no model has more than"),
    "more tensors than bytes": (_start(60_000, 0), 0, "60,000 tensors cannot be in"),
    "key of 2^63 bytes": (_start(0, 1) + struct.pack("<Q", HUGE) + bytes(32), 0, "name of a"),
    "key of a gigabyte": (_start(0, 1) + struct.pack("<Q", 1 << 30), 1 << 31, "name of a"),
    "text of 2^63 bytes": (_start(0, 1) + text("k") + struct.pack("<IQ", 8, HUGE), 64, "wants"),
    "numbers of 2^63 items": (_array(4, HUGE), 64, "wants"),
    "texts of 2^63 items": (_array(8, HUGE), 64, "texts"),
    "texts in a hole of a terabyte": (_array(8, 1 << 30), 1 << 40, "texts"),
    "arrays of arrays": (_array(9, 1) + struct.pack("<IQ", 9, 1) * 10_000, 0, "array of arrays"),
    "unknown value type": (_start(0, 1) + text("k") + struct.pack("<I", 99), 32, "unknown type 99"),
    "key twice": (_start(0, 2) + (text("k") + struct.pack("<II", 4, 1)) * 2, 32, "stands twice"),
    "no dimensions": (_one_tensor(()), 64, "0 dimensions"),
    "2^32-1 dimensions": (_start(1, 0) + text("t") + b"\xff" * 4, 64, "dimensions"),
    "dimensions that overflow": (_one_tensor((HUGE, 2)), 64, "impossible shape"),
    "an empty dimension": (_one_tensor((32, 0)), 64, "impossible shape"),
    "unknown tensor type": (_one_tensor((32,), 77), 64, "type 77"),
    "rows of no whole blocks": (_one_tensor((33,), 2), 64, "blocks of 32"),
    "data beyond the end": (_one_tensor((1 << 40,)), 64, "cut short"),
    "offset beyond the end": (_one_tensor((32,), 0, HUGE), 64, "cut short"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_header_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    data, hole, complaint = HOSTILE[name]
    assert complaint in _refusal(_raw(tmp_path, data, hole))


def _with(**over: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        metadata = {**_TINY_METADATA, **{f"llama.{k}": v for k, v in over.items()}}
        metadata = {key: value for key, value in metadata.items() if value is not None}
        return write_gguf(folder / "bad.gguf", metadata, _tiny_tensors())

    return write


def _without(*names: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        kept = [tensor for tensor in _tiny_tensors() if tensor.name not in names]
        return write_gguf(folder / "bad.gguf", _TINY_METADATA, kept)

    return write


def _plus(*tensors: Tensor) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        return write_gguf(folder / "bad.gguf", _TINY_METADATA, [*_tiny_tensors(), *tensors])

    return write


def _arch(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        metadata = {**_TINY_METADATA, "general.architecture": name}
        return write_gguf(folder / "bad.gguf", metadata, _tiny_tensors())

    return write


CONTRADICTIONS: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no layers": (_with(block_count=0), "0 layers cannot be"),
    "too many layers": (_with(block_count=4_000_000_000), "layers cannot be"),
    "fewer layers than blocks": (_with(block_count=1), "there is a block 1"),
    "more layers than blocks": (_with(block_count=3), "block 2 of 3 has no tensors"),
    "layer count as text": (_with(block_count="two"), "cannot be"),
    "no layer count": (_with(block_count=None), "llama.block_count is missing"),
    "no heads": (_with(**{"attention.head_count": 0}), "no attention heads"),
    "key heads that do not fit": (_with(**{"attention.head_count_kv": 3}), "3 key heads of 16"),
    "another width": (_with(embedding_length=128), "embedding_length is 128"),
    "an empty list": (_with(**{"attention.head_count_kv": [0]}), "values for 2 layers"),
    "no embedding": (_without("token_embd.weight"), "no token_embd"),
    "no attention": (
        _without(*(f"blk.{i}.attn_{p}.weight" for i in range(2) for p in "qkv")),
        "no attention layers",
    ),
    "a tensor twice": (_plus(_tiny_tensors()[0]), "same name"),
    "experts without a count": (
        _plus(Tensor("blk.0.ffn_down_exps.weight", (32, 64, 4))),
        "expert_count is missing",
    ),
    "a projector": (_arch("clip"), "projector, not a language model"),
    "other keys": (_arch("qwen3"), "qwen3.block_count is missing"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_named(tmp_path: Path, name: str) -> None:
    write, complaint = CONTRADICTIONS[name]
    told = _refusal(write(tmp_path))
    assert any(part in told for part in complaint.split("|")), told


def test_more_experts_used_than_there_are(tmp_path: Path) -> None:
    metadata, tensors = gguf_of(find_model("Mixtral 8x7B"), "llama")
    metadata["llama.expert_used_count"] = 9
    told = _refusal(write_gguf(tmp_path / "bad.gguf", metadata, tensors))
    assert "experts_per_token is above n_experts" in told
    metadata["llama.expert_count"] = 16
    told = _refusal(write_gguf(tmp_path / "bad.gguf", metadata, tensors))
    assert "expert_count is 16, but blk.0.ffn_down_exps.weight" in told


def test_parts_that_are_missing_or_swapped(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    write_gguf(first, {**_TINY_METADATA, "split.no": 0, "split.count": 2}, _tiny_tensors())
    assert "part 2 of 2 is missing" in _refusal(first)
    second = tmp_path / "m-00002-of-00002.gguf"
    write_gguf(second, {"split.no": 0, "split.count": 2}, [])
    with pytest.raises(UserError, match=r"named part 2 of 2, but its header has split\.no 0"):
        find_model(str(first))
    assert "part 00009 of 00002 cannot be" in _refusal_of_name(tmp_path, "m-00009-of-00002.gguf")


def _refusal_of_name(folder: Path, name: str) -> str:
    path = folder / name
    path.write_bytes(b"GGUF")
    return _refusal(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder.gguf").mkdir()
    for name in ("nothing.gguf", "folder.gguf", "nothing.json", "nothing.toml"):
        with pytest.raises(UserError, match="does not exist"):
            find_model(str(tmp_path / name))


def test_arrays_of_numbers_take_little_memory(tmp_path: Path) -> None:
    keys = 2000
    one = struct.pack("<IIQ", 9, 5, 4096) + bytes(range(1, 129)) * 128
    data = _start(0, keys) + b"".join(text(f"k{i}") + one for i in range(keys))
    assert "not a language model" in _refusal(_raw(tmp_path, data))


def test_names_from_a_file_are_printable(tmp_path: Path) -> None:
    metadata = {**_TINY_METADATA, "general.name": "\x1b[31mred\nline"}
    model = find_model(str(write_gguf(tmp_path / "m.gguf", metadata, _tiny_tensors())))
    assert model.name.isprintable()


def _read_or_refuse(path: Path) -> None:
    began, refused = time.perf_counter(), ""
    try:
        model = find_model(str(path))
        model.kv()
        model.params()
        model.attention_flops_per_pair()
    except UserError as why:
        refused = str(why)
    assert "\n" not in refused
    assert time.perf_counter() - began < _MOST_SECONDS


@_FUZZ
@given(length=st.integers(0, 3000))
def test_fuzz_truncation(tmp_path: Path, length: int) -> None:
    path = _tiny(tmp_path)
    whole = path.stat().st_size
    os.truncate(path, length * whole // 3001)
    with pytest.raises(UserError, match=r"cut short|not a GGUF"):
        find_model(str(path))


@_FUZZ
@given(data=st.data())
def test_fuzz_bytes(tmp_path: Path, data: st.DataObject) -> None:
    header = bytearray(header_bytes(_TINY_METADATA, _tiny_tensors()))
    for _ in range(data.draw(st.integers(1, 4))):
        header[data.draw(st.integers(4, len(header) - 1))] = data.draw(st.integers(0, 255))
    _read_or_refuse(_raw(tmp_path, bytes(header), 200_000))


@_FUZZ
@given(data=st.data())
def test_fuzz_lengths(tmp_path: Path, data: st.DataObject) -> None:
    """Eight bytes anywhere become a length that is huge, negative or just too large."""
    header = bytearray(header_bytes(_TINY_METADATA, _tiny_tensors()))
    at = data.draw(st.integers(4, len(header) - 8))
    lengths = st.sampled_from([0, 1, 1 << 16, 1 << 31, 1 << 32, HUGE - 1, HUGE, 2**64 - 1])
    header[at : at + 8] = struct.pack("<Q", data.draw(lengths))
    _read_or_refuse(
        _raw(tmp_path, bytes(header), data.draw(st.sampled_from([0, 1 << 20, 1 << 36])))
    )


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 300),
    st.sampled_from([1 << 31, 1 << 33, 10**40, -1]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-1, 9), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@_FUZZ
@given(data=st.data())
def test_fuzz_configs(tmp_path: Path, data: st.DataObject) -> None:
    config = json.loads(json.dumps(CONFIGS[data.draw(st.sampled_from(sorted(CONFIGS)))]))
    section = config.get("text_config", config)
    for _ in range(data.draw(st.integers(1, 3))):
        section[data.draw(st.sampled_from(sorted(section)))] = data.draw(_VALUES)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    _read_or_refuse(file)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not valid JSON"),
        ("[1, 2]", "not a table"),
        ('{"a": 1}', "not a model's config.json"),
        ("[" * 200_000, "nested too deep|not valid JSON"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"hidden_size": 64}', "num_hidden_layers is missing"),
        ('{"hidden_size": 64, "num_hidden_layers": -3}', "num_hidden_layers is -3"),
        ('{"hidden_size": 64, "num_hidden_layers": 2}', "num_attention_heads is missing"),
    ],
)
def test_wrong_configs_are_refused(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(content)
    told = _refusal(file)
    assert any(part in told for part in complaint.split("|")), told


@pytest.mark.parametrize(
    ("over", "complaint"),
    [
        ({"num_key_value_heads": 64}, "64 key-value heads"),
        ({"num_attention_heads": 33}, "no multiple of 33 heads"),
        ({"num_hidden_layers": 4_000_000}, "4,000,000 cannot be"),
        ({"vocab_size": 1 << 30}, "vocab_size 1,073,741,824 cannot be"),
        ({"layer_types": ["full_attention"]}, "1 layers are described"),
        ({"layer_types": ["odd"] * 32}, "kind 'odd'"),
        ({"num_local_experts": 4, "num_experts_per_tok": 5}, "above n_experts"),
        ({"hidden_size": "wide"}, "hidden_size is 'wide'"),
        ({"model_type": "deepseek_v4"}, "compressed cache"),
        ({"layer_types": ["mamba"] * 32}, "no attention layers"),
    ],
)
def test_impossible_configs_are_refused(
    tmp_path: Path, over: dict[str, Any], complaint: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**CONFIGS["Llama 3.1 8B Instruct"], **over}))
    assert complaint in _refusal(file)
