"""Models by the names that servers give them: of a file, a folder, a repository, a tag."""

from __future__ import annotations

import re

from headroom_bench.catalog.models import find_model, is_model_file
from headroom_bench.catalog.quant import find_quant
from headroom_bench.errors import UserError
from headroom_bench.paths import is_there

_ENDING = re.compile(r"(?:(?:-\d{5}-of-\d{5})?\.gguf)?(?::latest)?$", re.IGNORECASE)
"""What ends a GGUF file's name, which part of how many and the ending, and Ollama's usual tag."""
_FORMAT = re.compile(
    r"[-._:](?:UD-)?(I?Q\d\w*|MXFP4|NVFP4|FP8|INT8|INT4|AWQ|GPTQ|BF16|F16|F32)(?:_MOE)?$",
    re.IGNORECASE,
)
"""How weights are stored, at the end of a name."""
_OWNER = re.compile(r"^[A-Za-z][A-Za-z0-9.-]*_(?=[A-Za-z])")
"""Whose it is, as some who pack files write it before the name (`Qwen_Qwen3-8B`)."""


def served_model(name: str) -> str:
    """The catalogue's id of the model that a server calls `name`, or `name` itself where that is
    a file here. Raises `UserError` where the catalogue does not know it."""
    if is_model_file(name) and is_there(name):
        return name
    whole = bare_name(name)
    plain = _FORMAT.sub("", whole)
    told = ""
    for form in (name, whole, plain, _OWNER.sub("", plain)):
        if form and not is_model_file(form):
            try:
                return find_model(form).id
            except UserError as why:
                told = f" ({why})"
    raise UserError(f"the catalogue does not know a model by the name {name!r}{told}")


def served_quant(name: str) -> str | None:
    """The weight format that the name a server gives its model tells, as the catalogue calls it;
    None where it tells none that the catalogue knows."""
    told = _FORMAT.search(bare_name(name))
    if told is None:
        return None
    try:
        return find_quant(told[1]).name
    except UserError:
        return None


def bare_name(name: str) -> str:
    """Without folders, owner, and what tells of the file only."""
    return _ENDING.sub("", re.split(r"[/\\]", name.rstrip("/\\"))[-1])
