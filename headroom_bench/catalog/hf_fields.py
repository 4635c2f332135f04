"""A Hugging Face `config.json`, read so that a wrong value is told with its key."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headroom_bench.errors import UserError

_MOST_BYTES = 4 << 20
_LARGEST = 1 << 32
_TEXT_SECTIONS = ("text_config", "language_config", "llm_config")
"""Where multimodal models keep the language model's figures."""


class Fields:
    """The language model's figures. Of several keys for one fact the first with a value counts."""

    def __init__(self, data: Mapping[str, Any], path: Path) -> None:
        self.data = data
        self.path = path

    @classmethod
    def read(cls, path: Path) -> Fields:
        """Raises `UserError`: unreadable, too large, not JSON, or not a model's config."""
        data = _read_json(path)
        outer = {key: value for key, value in data.items() if not isinstance(value, dict)}
        for section in _TEXT_SECTIONS:
            if isinstance(data.get(section), dict):
                quantized = {"quantization_config": data.get("quantization_config")}
                return cls({**quantized, **outer, **data[section]}, path)
        return cls(data, path)

    def wrong(self, problem: str) -> UserError:
        """A `UserError` that names the file."""
        return UserError(f"{self.path}: {problem}")

    def get(self, *keys: str) -> Any:
        """The first of these keys that has a value."""
        return next((self.data[key] for key in keys if self.data.get(key) is not None), None)

    def text(self, key: str, default: str = "") -> str:
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"{key} is {value!r:.60}, not text")
        return value or default

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        return default if value is None else bool(value)

    def whole(self, *keys: str, default: int | None = None) -> int:
        """A count. Of a list with one value a layer that are all the same, that value."""
        value = self.get(*keys)
        if isinstance(value, list) and value and all(item == value[0] for item in value):
            value = value[0]
        if value is None:
            if default is None:
                raise self.wrong(f"{keys[0]} is missing")
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int or not 0 <= value < _LARGEST:
            raise self.wrong(f"{keys[0]} is {value!r:.60}, not a whole number that can be")
        return value

    def positive(self, *keys: str, default: int | None = None) -> int:
        """A count above 0."""
        value = self.whole(*keys, default=default)
        if value == 0:
            raise self.wrong(f"{keys[0]} is 0")
        return value

    def items(self, *keys: str) -> list[Any] | None:
        """A list, where there is one."""
        value = self.get(*keys)
        return value if isinstance(value, list) else None

    def table(self, key: str) -> Fields:
        """A table inside; an empty one where there is none."""
        value = self.get(key)
        return Fields(value if isinstance(value, dict) else {}, self.path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UserError(f"{path}: is too large for a config.json")
        data = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise UserError(f"{path}: is nested too deep for a config.json") from None
    except ValueError as error:  # not UTF-8, not JSON, or a number of thousands of digits
        raise UserError(f"{path}: is not valid JSON: {error!s:.120}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: is not a table; a config.json is one")
    if not any(isinstance(data.get(section), dict) for section in _TEXT_SECTIONS) and not (
        "hidden_size" in data or "n_embd" in data or "d_model" in data
    ):
        raise UserError(f"{path}: is JSON, but not a model's config.json: it has no hidden_size")
    return data
