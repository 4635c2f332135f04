"""What `--vs` says is different."""

from __future__ import annotations

from collections.abc import Collection

from headroom_bench.errors import UserError


def differences(text: str, known: Collection[str]) -> dict[str, str]:
    """`strix-halo-128`, or `runtime=vllm,quant=FP8`: what differs, by the names in `known`.

    Raises `UserError`: another name, one that stands twice, or a part without a value.
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.partition("=")
        name = key.strip().replace("-", "_") if equals else "hardware"
        word = (value if equals else key).strip()
        if name not in known or not word:
            raise UserError(f"--vs {part!r}: write a box, or KEY=VALUE with {', '.join(known)}")
        if name in found:
            raise UserError(f"--vs {text!r}: {name} stands there twice")
        found[name] = word
    return found
