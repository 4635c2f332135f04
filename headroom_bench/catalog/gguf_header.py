"""The header of a GGUF file: metadata and tensor descriptions, never the tensors themselves.

Format: docs/gguf.md of ggml, versions 2 and 3, little-endian. A file may come from anywhere, so
every length is checked against what is left of the file before anything is read or allocated, and
work is bounded by the `MAX_…` figures below.
"""

from __future__ import annotations

import math
import os
import re
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headroom_bench.catalog.ggml_types import GGML_TYPES, GgmlType
from headroom_bench.errors import UserError

MAX_METADATA_KEYS = 1 << 12
MAX_TENSORS = 1 << 16
"""The largest published models have a few thousand."""
MAX_TEXTS = 1 << 22
"""Over all arrays of texts of a file; vocabulary and merges of today's models stay below 2^20."""
MAX_NAME_BYTES = 1 << 10
"""Of a metadata key or a tensor; llama.cpp allows a tensor 64."""
MAX_DIMS = 4
MAX_SPLIT_FILES = 9999
KEPT_NUMBERS = 1 << 12
"""Longer arrays are counted, not kept: only vocabularies are that long."""
MAX_KEPT_NUMBERS = 1 << 17
"""Over all arrays of a file; further ones are counted."""
KEPT_TEXT_BYTES = 256
"""Longer texts (chat templates) are cut."""

_MAGIC = b"GGUF"
_DEFAULT_ALIGNMENT = 32
_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_SPLIT_NAME = re.compile(r"^(?P<stem>.*)-(?P<part>\d{5})-of-(?P<count>\d{5})\.gguf$", re.DOTALL)

Scalar = int | float | bool | str


@dataclass(frozen=True, slots=True)
class CountedArray:
    """An array that was counted but not kept: texts, or very many numbers."""

    items: int


Value = Scalar | tuple[Scalar, ...] | CountedArray


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the header describes it."""

    name: str
    shape: tuple[int, ...]
    """Fastest-changing dimension first, as the file has it."""
    type: GgmlType
    values: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the header of one model says; split files are one header."""

    path: Path
    """The file that was named."""
    files: int
    file_bytes: int
    """Of all files, headers and padding included."""
    metadata: Mapping[str, Value]
    tensors: tuple[TensorInfo, ...]


def read_gguf(path: Path) -> GgufHeader:
    """The header of `path`; with a name `…-00001-of-00003.gguf`, of all the parts together.

    Raises `UserError`, in one line: no such file, not GGUF, cut short, a part missing, or figures
    that contradict each other or cannot be.
    """
    files = _split_files(path)
    parts = [_read_file(file) for file in files]
    if len(parts) > 1:
        _check_parts(path, parts)
    tensors = [tensor for part in parts for tensor in part.tensors]
    names = {tensor.name for tensor in tensors}
    if len(names) < len(tensors):
        raise UserError(f"{path}: contradicts itself: two tensors have the same name")
    return GgufHeader(
        path=path,
        files=len(files),
        file_bytes=sum(part.file_bytes for part in parts),
        metadata=parts[0].metadata,
        tensors=tuple(tensors),
    )


def _split_files(path: Path) -> list[Path]:
    match = _SPLIT_NAME.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= count <= MAX_SPLIT_FILES or not 1 <= int(match["part"]) <= count:
        raise UserError(f"{path}: part {match['part']} of {match['count']} cannot be")
    files = []
    for part in range(1, count + 1):
        file = path.with_name(f"{match['stem']}-{part:05d}-of-{count:05d}.gguf")
        if not file.exists():
            raise UserError(f"{path}: part {part} of {count} is missing: {file.name}")
        files.append(file)
    return files


def _check_parts(path: Path, parts: list[GgufHeader]) -> None:
    for number, part in enumerate(parts):
        told = part.metadata.get("split.count"), part.metadata.get("split.no")
        if told != (len(parts), number):
            raise UserError(
                f"{part.path}: is named part {number + 1} of {len(parts)}, but its header has "
                f"split.no {told[1]} and split.count {told[0]}"
            )
    wanted = parts[0].metadata.get("split.tensors.count")
    found = sum(len(part.tensors) for part in parts)
    if wanted is not None and wanted != found:
        raise UserError(f"{path}: the parts hold {found} tensors, the header says {wanted}")


def _read_file(path: Path) -> GgufHeader:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH116 - the type, links followed
            raise UserError(f"{path}: is not a file")
        with path.open("rb") as file:
            return _Reader(file, path).header()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a name with a zero byte in it
        raise UserError(f"{path!s:.80}: cannot be read: {error}") from None


class _Reader:
    """Walks one file's header from front to back."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._at = 0
        self._texts_left = MAX_TEXTS
        self._numbers_left = MAX_KEPT_NUMBERS

    def header(self) -> GgufHeader:
        tensor_count, key_count = self._counts()
        metadata = self._metadata(key_count)
        described = [self._tensor() for _ in range(tensor_count)]
        self._check_data(described, metadata)
        return GgufHeader(
            path=self._path,
            files=1,
            file_bytes=self._size,
            metadata=metadata,
            tensors=tuple(tensor for tensor, _ in described),
        )

    # ---- pieces -----------------------------------------------------------------------------

    def _wrong(self, problem: str) -> UserError:
        return UserError(f"{self._path}: {problem}")

    def _counts(self) -> tuple[int, int]:
        start = self._file.read(4)
        self._at = len(start)
        if start != _MAGIC:
            hint = " (it is empty)" if not start else ""
            raise self._wrong(f"is not a GGUF file{hint}; it does not begin with GGUF")
        version = self._number("<I")
        if version not in (2, 3):
            big_endian = version in (2 << 24, 3 << 24)
            told = "big-endian" if big_endian else f"version {version}"
            raise self._wrong(f"is GGUF, but {told}; only little-endian versions 2 and 3 are read")
        tensors, keys = self._number("<Q"), self._number("<Q")
        # A tensor takes 32 bytes of header at least, a key 13.
        self._check_count("tensors", tensors, MAX_TENSORS, 32)
        self._check_count("metadata keys", keys, MAX_METADATA_KEYS, 13)
        return tensors, keys

    def _check_count(self, what: str, count: int, most: int, bytes_each: int) -> None:
        if count > most or count * bytes_each > self._size - self._at:
            raise self._wrong(
                f"is cut short or damaged: {count:,} {what} cannot be in {self._size:,} bytes"
                if count <= most
                else f"says it holds {count:,} {what}; no model has more than {most:,}"
            )

    def _check_left(self, size: int) -> None:
        if size > self._size - self._at:
            raise self._wrong(
                f"is cut short or damaged: its header wants {size:,} bytes at offset {self._at:,}, "
                f"the file has {self._size:,}"
            )

    def _take(self, size: int) -> bytes:
        self._check_left(size)
        data = self._file.read(size)
        if len(data) != size:
            raise self._wrong("became shorter while it was read")
        self._at += size
        return data

    def _skip(self, size: int) -> None:
        self._check_left(size)
        self._file.seek(size, os.SEEK_CUR)
        self._at += size

    def _number(self, form: str) -> int:
        value: int = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _text(self, most: int) -> str:
        """A string; of one longer than `most` bytes only the beginning is read."""
        length = self._number("<Q")
        self._check_left(length)
        kept = self._take(min(length, most))
        self._skip(length - len(kept))
        return kept.decode("utf-8", "replace")

    def _name(self, what: str) -> str:
        length = self._number("<Q")
        if length > MAX_NAME_BYTES:
            raise self._wrong(f"is damaged: the name of a {what} has {length:,} bytes")
        return self._take(length).decode("utf-8", "replace")

    def _metadata(self, count: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _ in range(count):
            key = self._name("metadata key")
            if key in found:
                raise self._wrong(f"contradicts itself: metadata key {key!r:.80} stands twice")
            found[key] = self._value(self._number("<I"), key)
        return found

    def _value(self, kind: int, key: str) -> Value:
        if kind == _STRING:
            return self._text(KEPT_TEXT_BYTES)
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(kind, key)

    def _scalar(self, kind: int, key: str) -> Scalar:
        form = self._form(kind, key)
        value: Scalar = struct.unpack(form, self._take(struct.calcsize(form)))[0]
        return value

    def _form(self, kind: int, key: str) -> str:
        if kind not in _SCALARS:
            raise self._wrong(f"is damaged: metadata {key!r:.80} has the unknown type {kind}")
        return _SCALARS[kind]

    def _array(self, key: str) -> Value:
        kind, count = self._number("<I"), self._number("<Q")
        if kind == _ARRAY:
            raise self._wrong(f"is damaged: metadata {key!r:.80} is an array of arrays")
        if kind == _STRING:
            return self._texts(key, count)
        form = self._form(kind, key)
        size = struct.calcsize(form)
        if count > min(KEPT_NUMBERS, self._numbers_left):
            self._skip(count * size)
            return CountedArray(count)
        self._numbers_left -= count
        return struct.unpack(f"<{count}{form[1]}", self._take(count * size))

    def _texts(self, key: str, count: int) -> Value:
        if count > self._texts_left or count * 8 > self._size - self._at:
            raise self._wrong(f"is damaged: metadata {key!r:.80} says it has {count:,} texts")
        self._texts_left -= count
        for _ in range(count):
            self._skip(self._number("<Q"))
        return CountedArray(count)

    def _tensor(self) -> tuple[TensorInfo, int]:
        """A tensor's description and where its data begins, counted from the data section."""
        name = self._name("tensor")
        dims = self._number("<I")
        if not 1 <= dims <= MAX_DIMS:
            raise self._wrong(f"is damaged: tensor {name!r:.80} has {dims:,} dimensions")
        shape = tuple(self._number("<Q") for _ in range(dims))
        kind, offset = self._number("<I"), self._number("<Q")
        if kind not in GGML_TYPES:
            raise self._wrong(
                f"tensor {name!r:.80} has type {kind}, which this version cannot size"
            )
        stored, values = GGML_TYPES[kind], math.prod(shape)
        if values == 0 or values >= 1 << 63:
            raise self._wrong(f"tensor {name!r:.80} has an impossible shape {list(shape)}")
        if shape[0] % stored.block:
            raise self._wrong(
                f"contradicts itself: tensor {name!r:.80} has rows of {shape[0]:,} values, "
                f"which {stored.name} cannot store in blocks of {stored.block}"
            )
        size = values // stored.block * stored.block_bytes
        return TensorInfo(name, shape, stored, values, size), offset

    def _check_data(
        self, described: list[tuple[TensorInfo, int]], metadata: Mapping[str, Value]
    ) -> None:
        """Tensors lie one after another inside the file."""
        alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment > 1 << 20:
            raise self._wrong(f"is damaged: general.alignment is {alignment!r:.40}")
        start = -(-self._at // alignment) * alignment
        free_from, last = 0, ""
        for tensor, offset in sorted(described, key=lambda pair: pair[1]):
            if offset < free_from:
                raise self._wrong(
                    f"contradicts itself: tensors {last!r:.80} and {tensor.name!r:.80} overlap"
                )
            free_from, last = offset + tensor.size_bytes, tensor.name
        missing = start + free_from - self._size
        if described and missing > 0:
            raise self._wrong(
                f"is cut short: {missing:,} of its {start + free_from:,} bytes are missing; "
                "fetch it again"
            )
