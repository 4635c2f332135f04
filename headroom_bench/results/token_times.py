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
_LENGTH = struct.Struct("<H").pack
_COUNT = struct.Struct("<I").pack
_MOMENTS = np.dtype("<f8")


def encode(request_id: str, times_s: Sequence[float] | NDArray[np.float64]) -> bytes:
    """One request's entry."""
    name = request_id.encode()
    times = np.asarray(times_s, _MOMENTS)
    return b"".join((_LENGTH(len(name)), name, _COUNT(len(times)), times.tobytes()))


def whole_bytes(data: bytes) -> int:
    """How many bytes of a file's contents are whole entries, the beginning included; 0 where even
    that is torn.

    Raises:
        ValueError: it does not begin as a tokens.bin does.
    """
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):
            return 0
        raise ValueError("not a tokens.bin of this version")
    whole = at = len(MAGIC)
    while at + 2 <= len(data):
        counted = at + 2 + struct.unpack_from("<H", data, at)[0]
        if counted + 4 > len(data):
            break
        at = counted + 4 + 8 * struct.unpack_from("<I", data, counted)[0]
        if at <= len(data):
            whole = at
    return whole


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
    if not data.startswith(MAGIC):
        if MAGIC.startswith(data):  # killed while its very beginning was written
            return
        raise damaged(path)
    at = len(MAGIC)
    while at + 2 <= len(data):
        (length,) = struct.unpack_from("<H", data, at)
        counted = at + 2 + length
        if counted + 4 > len(data):
            return
        try:
            name = data[at + 2 : counted].decode()
        except UnicodeDecodeError:
            raise damaged(path) from None
        (count,) = struct.unpack_from("<I", data, counted)
        start, at = counted + 4, counted + 4 + 8 * count
        if at > len(data):
            return
        yield name, np.frombuffer(data, dtype="<f8", count=count, offset=start)
