"""Finding a model: by a name of the catalogue, or in a file of one's own."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

from headroom_bench.catalog._shelf import Shelf
from headroom_bench.catalog.checks import checked
from headroom_bench.catalog.model import Model
from headroom_bench.errors import UserError
from headroom_bench.paths import is_there, typed_path

_FILES = (".toml", ".json", ".gguf")


def _check(model: Model, where: str) -> None:
    if model.stored is not None:
        raise UserError(f"{where}: stored is what a GGUF file holds; it cannot be written by hand")
    checked(model, where)


_SHELF = Shelf("model", Model, "models", lambda m: (m.id, m.name, m.hf_id, *m.aliases), _check)


def models() -> tuple[Model, ...]:
    """All shipped models, in the order of the data file."""
    return _SHELF.entries


def is_model_file(name: str) -> bool:
    """Whether what a user typed is a path rather than a name."""
    return name.lower().endswith(_FILES)


def find_model(name: str) -> Model:
    """The model meant by a name, a Hugging Face id, words that only it has, or a file.

    Files: GGUF (its header is read, never the weights; of a split one any part), a Hugging Face
    `config.json`, or TOML with the keys of one catalogue entry.
    Raises `UserError`: nothing or several things fit (the nearest are offered), or the file does
    not exist or is wrong.
    """
    if not is_model_file(name):
        try:
            return _SHELF.named(name)
        except UserError:
            if not is_there(name):
                raise
            told = "give a .gguf, a config.json or a .toml file, or a name"
            raise UserError(f"{name!r} is no model: {told}") from None
    path = typed_path(name)
    if not path.is_file():
        raise UserError(f"model file {name!r} does not exist")
    if path.suffix.lower() == ".toml":
        return _SHELF.own(path)
    state = path.stat()
    return _read_file(path, state.st_size, state.st_mtime_ns)


def twin(model: Model) -> Model | None:
    """The catalogue's entry of the same shape, whatever its name; the first where several are."""
    return next((entry for entry in models() if _outline(entry) == _outline(model)), None)


@functools.lru_cache(maxsize=8)
def _read_file(path: Path, _size: int, _changed_ns: int) -> Model:
    """Read again only when it changed: a header with its vocabulary takes tenths of a second."""
    if path.suffix.lower() == ".gguf":  # readers are imported here: few commands are given a file
        from headroom_bench.catalog.gguf_shape import model_from_gguf

        return _with_fitted_facts(model_from_gguf(path))
    from headroom_bench.catalog.hf_config import model_from_config

    return _with_fitted_facts(model_from_config(path))


def _with_fitted_facts(model: Model) -> Model:
    """With the expert exponent that was fitted for this shape: no file knows it."""
    known = twin(model)
    if model.moe is None or known is None or known.moe is None:
        return model
    names = [f.name for f in dataclasses.fields(known.moe) if f.name.startswith("expert_exponent")]
    moe = dataclasses.replace(model.moe, **{name: getattr(known.moe, name) for name in names})
    return dataclasses.replace(model, moe=moe)


def _outline(model: Model) -> tuple[object, ...]:
    """What tells shapes apart. The vocabulary is left out: files pad it."""
    moe, linear = model.moe, model.linear_attention
    return (
        model.n_layers, model.hidden_size, model.n_heads, model.head_dim,
        model.kv().full_bytes(), model.kv().window_bytes(),
        (moe.n_experts, moe.experts_per_token, moe.moe_intermediate) if moe else None,
        (linear.kind, linear.n_linear_layers) if linear else None,
        None if moe else model.ffn_intermediate,
    )  # fmt: skip
