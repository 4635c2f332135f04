"""A GGUF's header says what the catalogue says of the model, and what the file really stores."""

from __future__ import annotations

import re
from pathlib import Path

import gguf
import numpy
import pytest
from catalog_shapes import shape
from gguf_files import Tensor, gguf_of, write_gguf

from headroom_bench.catalog import find_model, twin
from headroom_bench.catalog.ggml_types import GGML_TYPES
from headroom_bench.catalog.gguf_header import read_gguf
from headroom_bench.catalog.stored import ROLES, role_of

ARCHITECTURES = {
    "Llama 3.1 8B Instruct": "llama",
    "Qwen3 8B": "qwen3",
    "gpt-oss 120B": "gpt-oss",
    "Qwen3 30B-A3B": "qwen3moe",
    "Qwen3-Next 80B-A3B Instruct": "qwen3next",
    "Qwen3.5 35B-A3B": "qwen35moe",
    "DeepSeek-V3 671B": "deepseek2",
    "GLM-4.5-Air 106B-A12B": "glm4moe",
    "Gemma 3 12B it": "gemma3",
    "Gemma 4 26B-A4B it": "gemma4",
    "Nemotron 3 Nano 30B-A3B": "nemotron_h_moe",
    "Nemotron 3 Super 120B-A12B": "nemotron_h_moe",
    "Nemotron Nano 9B v2": "nemotron_h",
    "Falcon-H1 34B Instruct": "falcon-h1",
    "Granite 4.0 H-Small 32B-A9B": "granitehybrid",
    "LFM2 8B-A1B": "lfm2moe",
    "Kimi Linear 48B-A3B Instruct": "kimi-linear",
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_reading_a_header_gives_the_catalogues_shape(tmp_path: Path, name: str) -> None:
    entry = find_model(name)
    file = write_gguf(tmp_path / "model.gguf", *gguf_of(entry, ARCHITECTURES[name]))
    read = find_model(str(file))
    assert read.stored
    assert shape(read) == shape(entry)
    assert read.kv() == entry.kv()
    assert read.kv_exact
    assert twin(read)
    counted, computed = read.params(), entry.params()
    assert counted.routed == computed.routed
    assert counted.routed_active == computed.routed_active
    assert counted.head == computed.head
    assert counted.router == computed.router
    assert counted.attention == pytest.approx(computed.attention, rel=0.01)
    assert counted.total == pytest.approx(computed.total, rel=0.002)


@pytest.mark.parametrize(
    ("name", "arch"), [("Gemma 4 E2B it", "gemma4"), ("Gemma 3n E2B", "gemma3n")]
)
def test_layers_that_share_a_cache(tmp_path: Path, name: str, arch: str) -> None:
    entry = find_model(name)
    read = find_model(str(write_gguf(tmp_path / "m.gguf", *gguf_of(entry, arch))))
    assert read.kv() == entry.kv()
    assert read.kv_exact
    assert read.params().per_layer_embedding == entry.params().per_layer_embedding
    assert read.params_of_shape().total == pytest.approx(entry.params().total, rel=1e-6)


def test_a_shape_that_does_not_explain_the_file_is_called_estimated(tmp_path: Path) -> None:
    entry = find_model("Qwen3 8B")
    metadata, tensors = gguf_of(entry, "qwen3")
    odd = [*tensors, *(Tensor(f"blk.{i}.mystery.weight", (4096, 4096)) for i in range(30))]
    read = find_model(str(write_gguf(tmp_path / "odd.gguf", metadata, odd)))
    assert not read.kv_exact
    assert "of the file's parameters" in read.notes
    unknown = {key.replace("qwen3.", "new."): value for key, value in metadata.items()}
    unknown["general.architecture"] = "new"
    read = find_model(str(write_gguf(tmp_path / "new.gguf", unknown, tensors)))
    assert not read.kv_exact
    assert read.kv() == entry.kv()


def test_biases_and_order_do_not_matter(tmp_path: Path) -> None:
    entry = find_model("gpt-oss 20B")
    metadata, tensors = gguf_of(entry, "gpt-oss")
    biases = [
        Tensor(f"blk.{i}.ffn_{part}_exps.bias", (2880, 32))
        for i in range(entry.n_layers)
        for part in ("gate", "up", "down")
    ]
    read = find_model(str(write_gguf(tmp_path / "m.gguf", metadata, [*biases, *tensors[::-1]])))
    assert shape(read) == shape(entry)
    assert read.stored
    assert read.stored.values("experts") == entry.params().routed + 24 * 3 * 2880 * 32


def test_fused_projections_are_no_shared_ones(tmp_path: Path) -> None:
    entry = find_model("Gemma 3 12B it")
    metadata, tensors = gguf_of(entry, "gemma3")
    fused = [t for t in tensors if ".attn_k." not in t.name and ".attn_v." not in t.name]
    fused = [
        Tensor(t.name.replace("attn_q", "attn_qkv"), (3840, 8192), t.type)
        if ".attn_q." in t.name
        else t
        for t in fused
    ]
    read = find_model(str(write_gguf(tmp_path / "m.gguf", metadata, fused)))
    assert shape(read) == shape(entry)


def test_a_window_as_long_as_the_context_is_none(tmp_path: Path) -> None:
    metadata, tensors = gguf_of(find_model("Phi-3 mini 4k"), "phi3")
    metadata["phi3.attention.sliding_window"] = 4096
    read = find_model(str(write_gguf(tmp_path / "m.gguf", metadata, tensors)))
    assert read.window is None


def test_the_real_small_model(smollm2: Path) -> None:
    read, entry = find_model(str(smollm2)), find_model("SmolLM2-135M-Instruct")
    assert shape(read) == shape(entry)
    assert read.stored
    # The file named Q4_1 holds its largest tensor in 8 bits.
    assert list(read.stored.by_type()) == ["Q4_1", "Q8_0", "F32"]
    assert read.stored.file_bytes == smollm2.stat().st_size
    assert read.stored.size_bytes() == pytest.approx(smollm2.stat().st_size, rel=0.02)
    assert read.params().total == 134_515_008
    assert read.params_of_shape() == entry.params()


def test_parts_of_a_split_file_are_one_model(tmp_path: Path) -> None:
    entry = find_model("Llama 3.1 8B")
    metadata, tensors = gguf_of(entry, "llama")
    thirds = [tensors[:100], tensors[100:200], tensors[200:]]
    files = []
    for number, part in enumerate(thirds):
        told = {"split.no": number, "split.count": 3, "split.tensors.count": len(tensors)}
        name = f"m-{number + 1:05d}-of-00003.gguf"
        files.append(
            write_gguf(tmp_path / name, {**(metadata if not number else {}), **told}, part)
        )
    for file in files:
        read = find_model(str(file))
        assert shape(read) == shape(entry)
        assert read.stored
        assert read.stored.file_bytes == sum(file.stat().st_size for file in files)


def test_a_file_by_the_gguf_package_is_read_alike(tmp_path: Path) -> None:
    file = tmp_path / "small.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_token_list(["a", "b", "c"])
    writer.add_array("llama.some_flags", [True, False])
    shapes = {
        "token_embd": (3, 256),
        "blk.0.attn_q": (256, 256),
        "blk.0.attn_k": (128, 256),
        "blk.0.attn_v": (128, 256),
        "blk.0.attn_output": (256, 256),
        "blk.0.ffn_gate": (512, 256),
        "blk.0.ffn_up": (512, 256),
        "blk.0.ffn_down": (256, 512),
    }
    kinds = [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.F16]
    for number, (name, rows) in enumerate(shapes.items()):
        kind = kinds[number % 2]
        values = numpy.zeros(rows, dtype=numpy.float32)
        writer.add_tensor(f"{name}.weight", gguf.quants.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    ours, theirs = read_gguf(file), gguf.GGUFReader(file)
    assert [(t.name, t.type.name, t.size_bytes) for t in ours.tensors] == [
        (t.name, t.tensor_type.name, t.n_bytes) for t in theirs.tensors
    ]
    assert ours.metadata["llama.some_flags"] == (True, False)
    model = find_model(str(file))
    assert (model.n_layers, model.head_dim, model.n_kv_heads, model.vocab_size) == (1, 64, 2, 3)


def test_type_sizes_are_those_of_the_gguf_package() -> None:
    theirs = {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    ours = {number: (k.name, k.block, k.block_bytes) for number, k in GGML_TYPES.items()}
    assert {n: theirs[n] for n in ours.keys() & theirs.keys()} == {
        n: ours[n] for n in ours.keys() & theirs.keys()
    }
    assert len(ours.keys() & theirs.keys()) > 30


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_files_of_these_tests_have_the_names_that_converters_write(name: str) -> None:
    arch = ARCHITECTURES[name]
    number = next(n for n, known in gguf.MODEL_ARCH_NAMES.items() if known == arch)
    known = {gguf.TENSOR_NAMES[t].replace("{bid}", "N") for t in gguf.MODEL_TENSORS[number]}
    _, tensors = gguf_of(find_model(name), arch)
    ours = {re.sub(r"^blk\.\d+", "blk.N", t.name.rsplit(".", 1)[0]) for t in tensors}
    # Not every family's prediction blocks were known to converters when the package was released.
    assert {t for t in ours - known if ".nextn." not in t} == set()


def test_every_tensor_of_a_converter_has_a_role() -> None:
    for name in gguf.TENSOR_NAMES.values():
        assert role_of(f"{name.format(bid=0, xid=0)}.weight", 1) in ROLES


def test_experts_written_one_by_one_are_experts(tmp_path: Path) -> None:
    entry = find_model("Mixtral 8x7B")
    assert entry.moe
    metadata, tensors = gguf_of(entry, "llama")
    apart = []
    for tensor in tensors:
        if "_exps" not in tensor.name:
            apart.append(tensor)
            continue
        stem = tensor.name.replace("_exps.weight", "")
        apart += [
            tensor._replace(name=f"{stem}.{i}.weight", shape=tensor.shape[:2])
            for i in range(entry.moe.n_experts)
        ]
    read = find_model(str(write_gguf(tmp_path / "old.gguf", metadata, apart)))
    assert read.params().routed == entry.params().routed
    assert read.moe
    assert read.moe.n_experts == 8
