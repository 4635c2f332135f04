"""Names that servers give their models."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom_bench.catalog.models import models
from headroom_bench.catalog.served import served_model, served_quant
from headroom_bench.errors import UserError


@pytest.mark.parametrize(
    ("name", "model", "quant"),
    [
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b", "MXFP4"),
        ("/models/gpt-oss-120b-mxfp4-00001-of-00003.gguf", "gpt-oss-120b", "MXFP4"),
        (r"C:\models\gpt-oss-20b.gguf", "gpt-oss-20b", None),
        ("unsloth/Qwen3-8B-GGUF", "qwen3-8b", None),
        ("Qwen_Qwen3-8B-Q4_K_M.gguf", "qwen3-8b", "Q4_K_M"),
        ("Qwen3-8B-UD-Q4_K_XL.gguf", "qwen3-8b", None),
        ("qwen3:8b-q8_0", "qwen3-8b", "Q8_0"),
        ("qwen3:8b", "qwen3-8b", None),
        ("gpt-oss-20b-MXFP4.gguf:latest", "gpt-oss-20b", "MXFP4"),
        ("hf.co/unsloth/Qwen3-8B-GGUF:Q4_K_M", "qwen3-8b", "Q4_K_M"),
        ("openai/gpt-oss-20b", "gpt-oss-20b", None),
        ("/srv/models/Qwen3-8B/", "qwen3-8b", None),
    ],
)
def test_a_servers_name_is_a_model_and_a_format(name: str, model: str, quant: str | None) -> None:
    assert served_model(name) == model
    if "XL" not in name:  # whether that packing is known is the catalogue's business
        assert served_quant(name) == quant


def test_every_model_is_known_by_the_name_of_its_file() -> None:
    for model in models():
        assert served_model(f"/m/{model.id}-Q4_K_M.gguf") == model.id
        assert served_model(model.hf_id or model.id) == model.id


@pytest.mark.parametrize("name", ["nobody-knows-it-7B-Q8_0.gguf", "", ".gguf", "/", "x.json"])
def test_what_is_not_known_is_said(name: str) -> None:
    with pytest.raises(UserError, match="does not know"):
        served_model(name)


def test_a_family_alone_is_no_model() -> None:
    with pytest.raises(UserError, match="fits several; name one of gpt-oss-120b, gpt-oss-20b"):
        served_model("gpt-oss:latest")


def test_a_file_that_is_here_is_read_itself(tmp_path: Path) -> None:
    path = tmp_path / "gpt-oss-20b.toml"
    path.write_text('name = "mine"')
    assert served_model(str(path)) == str(path)
