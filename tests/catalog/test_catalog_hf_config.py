"""A model's `config.json` says what the catalogue says of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from catalog_shapes import shape
from hf_configs import CONFIGS

from headroom_bench.catalog import find_model, twin


def _write(folder: Path, config: object) -> str:
    file = folder / "config.json"
    file.write_text(json.dumps(config))
    return str(file)


@pytest.mark.parametrize("name", CONFIGS)
def test_reading_a_config_gives_the_catalogues_shape(tmp_path: Path, name: str) -> None:
    read, entry = find_model(_write(tmp_path, CONFIGS[name])), find_model(name)
    assert shape(read) == shape(entry)
    assert read.params() == entry.params()
    assert read.kv() == entry.kv()
    assert read.kv_exact
    known = twin(read)
    assert known is not None
    assert known.kv() == entry.kv()
    assert read.moe is None or (known.moe and read.moe.expert_exponent == known.moe.expert_exponent)


@pytest.mark.parametrize("name", ["DeepSeek-V3 671B", "Qwen3.5 35B-A3B", "GLM-4.5-Air 106B-A12B"])
def test_layers_that_predict_further_tokens_are_told_apart(tmp_path: Path, name: str) -> None:
    read = find_model(_write(tmp_path, CONFIGS[name]))
    assert read.native_speculative == {"mtp_layers": 1, "kind": "mtp"}
    assert read.n_layers == find_model(name).n_layers
