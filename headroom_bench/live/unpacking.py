"""Bodies that a proxy packed on the way, though nobody asked for it (gzip or deflate)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

LARGEST_UNPACKED_BYTES = 2**26
"""No more is unpacked out of one body: a small one may be made to fill the memory."""
UNPACKED_AT_ONCE_BYTES = 2**16
"""A thousand times as much may be in a packed piece. So many bytes, be they all ends of lines, are
2 ms of work."""
_PACKINGS = {
    "aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "exi", "gzip", "pack200-gzip",
    "x-compress", "x-gzip", "zstd",
}  # fmt: skip
"""IANA's registry of HTTP content codings. Servers also write `none`, or `utf-8`, of a plain body.
"""
_PACKED_AT_ONCE_BYTES = 2**12
_MOST_EMPTY = 1000
"""Members that hold nothing: each is work of which nothing comes."""
_GZIP_HEAD = b"\x1f\x8b"
_GZIP, _ZLIB, _BARE = 31, 15, -15
"""`wbits` of zlib, by what a stream begins with."""


class PackingError(Exception):
    """Why a body cannot be unpacked, or no further."""


def packing(encoding: str) -> str:
    """What a Content-Encoding says that a body is packed with; empty for none."""
    named = [name.strip().lower() for name in encoding.split(",")]
    return ", ".join(name for name in named if name in _PACKINGS)


class Unpacker:
    """One body, fed in pieces."""

    def __init__(self, name: str) -> None:
        """`name`: what `packing` found. Raises `PackingError` for one that is not known."""
        if name not in ("gzip", "x-gzip", "deflate"):
            raise PackingError(f"the body is packed with {name[:60]!r}, which nobody asked for")
        self._name = name
        self._head = b""
        self._stream: zlib._Decompress | None = None
        """Of this member: gzip may have several (RFC 1952 §2.2). None before its head is there."""
        self._left = LARGEST_UNPACKED_BYTES
        self.members = 0
        """Those that are whole."""
        self._over = False
        """What came after one is none, and nothing to anybody."""
        self._holds = False
        """This member holds something."""
        self._empty = 0

    def feed(self, packed: bytes) -> Iterator[bytes]:
        """What these bytes hold, in pieces of a bounded size. Raises `PackingError`."""
        for start in range(0, len(packed), _PACKED_AT_ONCE_BYTES):  # zlib copies what it leaves
            yield from self._feed(packed[start : start + _PACKED_AT_ONCE_BYTES])

    def _feed(self, packed: bytes) -> Iterator[bytes]:
        full = False
        while packed or full:
            if self._stream is None:
                packed = self._begun(packed)
                if self._stream is None:
                    return
            try:
                plain = self._stream.decompress(packed, UNPACKED_AT_ONCE_BYTES)
            except zlib.error as why:
                raise PackingError(f"the body is no {self._name} as it says: {why}") from None
            self._left -= len(plain)
            if self._left < 0:
                raise PackingError(f"more than {LARGEST_UNPACKED_BYTES:,} bytes are packed in it")
            if plain:
                self._holds = True
                yield plain
            full = len(plain) == UNPACKED_AT_ONCE_BYTES  # the stream may hold more by itself
            packed = self._stream.unconsumed_tail or self._stream.unused_data
            if self._stream.eof:
                self._end_member()
                full = False

    def _begun(self, packed: bytes) -> bytes:
        """Begins a member once its head is there; gives back what it is to be fed with."""
        if self._over:
            return b""
        if self.members and not self._head:
            packed = packed.lstrip(b"\0")  # members may be padded, as on tapes
        self._head += packed
        if len(self._head) < len(_GZIP_HEAD):
            return b""
        head, self._head = self._head, b""
        self._over = self.members > 0 and not head.startswith(_GZIP_HEAD)
        if self._over:
            return b""
        self._stream = zlib.decompressobj(self._wbits(head))
        return head

    def _end_member(self) -> None:
        self._stream = None
        self.members += 1
        self._empty += not self._holds
        self._holds = False
        if self._empty > _MOST_EMPTY:
            raise PackingError(f"more than {_MOST_EMPTY:,} empty members are packed in it")

    def _wbits(self, head: bytes) -> int:
        if head.startswith(_GZIP_HEAD):
            return _GZIP
        if head[0] & 15 == 8 and (head[0] << 8 | head[1]) % 31 == 0:  # RFC 1950 §2.2
            return _ZLIB
        if self._name == "deflate":  # without its wrapping, as some have it (RFC 9110 §8.4.1.2)
            return _BARE
        raise PackingError(f"the body is no {self._name} as it says")


def unpacked(pieces: Iterable[tuple[int, bytes]], encoding: str) -> Iterable[tuple[int, bytes]]:
    """The stamped pieces of a body as they were before they were packed, if they were.

    A body that breaks off is given as far as it goes. Raises `PackingError` as it is read.
    """
    name = packing(encoding)
    return _unpack(pieces, name) if name else pieces


def _unpack(pieces: Iterable[tuple[int, bytes]], name: str) -> Iterator[tuple[int, bytes]]:
    unpacker = Unpacker(name)
    for stamp_ns, packed in pieces:
        for plain in unpacker.feed(packed):
            yield stamp_ns, plain
