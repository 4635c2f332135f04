"""`tokens.bin`: when every token-bearing stream event came.

The file begins with `MAGIC`. Then, for each request: the length of its id in bytes (uint16), the
id (UTF-8), the number of events (uint32), and that many float64 moments on the run's clock in
seconds. Everything is little-endian. A last entry that is cut short (a killed run) is ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headroom_bench.errors import UserError

MAGIC = b"headroom-tokens-1\n"
_LENGTH = struct.Struct("<H")
_COUNT = struct.Struct("<I")
_MOMENTS = np.dtype("<f8")


def encode(request_id: str, times_s: Sequence[float] | NDArray[np.float64]) -> bytes:
    """One request's entry."""
    name = request_id.encode()
    times = np.asarray(times_s, _MOMENTS)
    return b"".join((_LENGTH.pack(len(name)), name, _COUNT.pack(len(times)), times.tobytes()))


def whole_bytes(data: bytes) -> int:
    """How many bytes of a file's contents are whole entries, the beginning included; 0 where even
    that is torn.

    Raises:
        ValueError: it does not begin as a tokens.bin does.
    """
    whole = len(MAGIC) if data.startswith(MAGIC) else 0
    for _, _, end in _entries(data):
        whole = end
    return whole


def _entries(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """The id of every whole entry, and where its moments begin and end. Raises ValueError as
    `whole_bytes` does."""
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):  # killed while its very beginning was written
            return
        raise ValueError("not a tokens.bin of this version")
    at = len(MAGIC)
    while at + _LENGTH.size <= len(data):
        named = at + _LENGTH.size
        counted = named + _LENGTH.unpack_from(data, at)[0]
        start = counted + _COUNT.size
        if start > len(data):
            return
        at = start + _MOMENTS.itemsize * _COUNT.unpack_from(data, counted)[0]
        if at > len(data):
            return
        yield data[named:counted], start, at


def damaged(path: Path) -> UserError:
    """What to do about a file that is none of ours."""
    return UserError(
        f"{path} is not a tokens.bin of this version, or is damaged; move it away to go on "
        "without the token times in it"
    )


def read(path: Path) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Request ids and their event times, shape (events,), seconds on the run's clock.

    Raises:
        UserError: the file cannot be read, or is not a tokens.bin.
    """
    try:
        data = path.read_bytes()
    except OSError as why:
        raise UserError(f"{path} cannot be read: {why.strerror}") from None
    try:
        for name, start, end in _entries(data):
            count = (end - start) // _MOMENTS.itemsize
            yield name.decode(), np.frombuffer(data, _MOMENTS, count, start)
    except ValueError:  # an id that is not UTF-8 among them
        raise damaged(path) from None
