"""Arguments for an offered tool that its JSON schema accepts."""

from __future__ import annotations

import json
import random
from typing import Any

from mock_server.answers import WORDS, ToolCall

_DEPTH = 12
"""A schema that nests deeper gets null there."""
_FORMATS = {
    "date": "2026-11-30",
    "date-time": "2026-11-30T12:00:00Z",
    "time": "12:00:00Z",
    "email": "a@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "ipv4": "192.0.2.1",
    "hostname": "example.org",
}


def choose_call(key: str, functions: list[dict[str, Any]], wanted: str | None = None) -> ToolCall:
    """One of `functions` (`name`, `parameters`), or the one that is `wanted`, with arguments.

    Equal `key`: equal call. At least one function must be given.
    """
    chosen = random.Random(key)
    named = [function for function in functions if function["name"] == wanted]
    function = chosen.choice(named or functions)
    schema = function.get("parameters")
    root = schema if isinstance(schema, dict) else {"type": "object"}
    value = _value(root, root, chosen, _DEPTH)
    return ToolCall(function["name"], json.dumps(value if isinstance(value, dict) else {}))


def _value(schema: Any, root: dict[str, Any], chosen: random.Random, depth: int) -> Any:
    """A value that `schema` accepts. What it says by `pattern`, `not` or `if` is not looked at."""
    if not isinstance(schema, dict) or depth < 0:
        return None
    if "$ref" in schema:
        return _value(_referred(str(schema["$ref"]), root), root, chosen, depth - 1)
    if "const" in schema:
        return schema["const"]
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return chosen.choice(schema["enum"])
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), list) and schema[union]:
            return _value(schema[union][0], root, chosen, depth - 1)
    if isinstance(schema.get("allOf"), list) and schema["allOf"]:
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            merged |= part if isinstance(part, dict) else {}
        return _value(merged, root, chosen, depth - 1)
    return _typed(schema, root, chosen, depth)


def _typed(schema: dict[str, Any], root: dict[str, Any], chosen: random.Random, depth: int) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    if isinstance(kind, list):
        kind = kind[0] if kind else "null"
    if kind == "object":
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        made = [str(name) for name in names] or list(properties)
        return {n: _value(properties.get(n, {}), root, chosen, depth - 1) for n in made}
    if kind == "array":
        count = max(1, _whole(schema.get("minItems"), 1))
        return [
            _value(schema.get("items", {}), root, chosen, depth - 1) for _ in range(min(64, count))
        ]
    if kind == "boolean":
        return chosen.random() < 0.5
    if kind in ("integer", "number"):
        return _number(schema, chosen, whole=kind == "integer")
    return _text(schema, chosen) if kind == "string" else None


def _number(schema: dict[str, Any], chosen: random.Random, *, whole: bool) -> float | int:
    above = _real(schema.get("exclusiveMinimum"), None)
    low = _real(schema.get("minimum"), above)
    below = _real(schema.get("exclusiveMaximum"), None)
    high = _real(schema.get("maximum"), below)
    if low is None:
        low = 0.0 if high is None or high > 0 else high - 10
    if high is None:
        high = low + 10
    step = _real(schema.get("multipleOf"), 1.0 if whole else None)
    if not step or step < 0:
        return (low + high) / 2 if above is not None or below is not None else low
    least, most = -(-low // step), high // step
    least += least * step == above
    most -= most * step == below
    value = step * chosen.randint(int(least), max(int(least), int(most)))
    return int(value) if whole else value


def _text(schema: dict[str, Any], chosen: random.Random) -> str:
    text = _FORMATS.get(str(schema.get("format")), "")
    while not text or len(text) < _whole(schema.get("minLength"), 0) < 10_000:
        text = (text + chosen.choice(WORDS)).strip()
    most = schema.get("maxLength")
    return text[: _whole(most, len(text))] if most is not None else text


def _whole(value: Any, default: int) -> int:
    return (
        int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0
        else default
    )


def _real(value: Any, default: float | None) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15
    return float(value) if good else default


def _referred(path: str, root: dict[str, Any]) -> Any:
    """What a local reference such as `#/$defs/City` points at."""
    found: Any = root
    for name in path.removeprefix("#").strip("/").split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found
